//! What bodies may look like: JSON, size, compression, content type. What is refused changes nothing.

use serde_json::json;

use crate::support::raw::{self, Raw};
use crate::support::{Answer, Client, TestServer, gzip};

const LIMIT: usize = 1_048_576;
const GZIP: [(&str, &str); 2] = [("content-type", "application/json"), ("content-encoding", "gzip")];

async fn post(client: &Client, body: impl Into<reqwest::Body>) -> Answer {
    client.post_as("/events", "application/json", body).await
}

/// JSON of one event that is `depth` levels deep and has that many bytes.
fn nested(depth: usize) -> String {
    let inner = depth - 1;
    format!(r#"{{"eventType":"a","data":{}1{}}}"#, "{\"x\":".repeat(inner), "}".repeat(inner))
}

/// A batch of small events in exactly `bytes` bytes.
fn batch_of(bytes: usize) -> String {
    let big = format!(r#"{{"eventType":"a","data":{{"x":"{}"}}}}"#, "x".repeat(200_000));
    let events = [big.as_str(); 5].join(",");
    let frame = format!(r#"[{events},{{"eventType":"a","data":{{"x":""}}}}]"#).len();
    format!(r#"[{events},{{"eventType":"a","data":{{"x":"{}"}}}}]"#, "x".repeat(bytes - frame))
}

#[tokio::test]
async fn broken_json_is_refused() {
    let server = TestServer::start().await;
    for broken in ["{", "{]", "[{\"eventType\":\"a\"},", "{\"eventType\":\"a\"} x", "{'eventType':'a'}", "\u{feff}{}"] {
        post(&server.client(), broken).await.problem(400);
        let token = server.client().post_as("/tokens", "application/json", broken).await;
        token.problem(400);
    }
    let not_utf8 = b"{\"eventType\":\"\xff\"}".to_vec();
    let detail = post(&server.client(), not_utf8).await.problem(400)["detail"].as_str().unwrap().to_owned();
    assert!(detail.contains("UTF-8"), "{detail}");
    assert!(server.client().stored().await.is_empty());
}

// SX-27: JSON at 63, 64 and 65 levels, and so deep that a parser that recurses would die.
#[tokio::test]
async fn json_deeper_than_64_levels_is_refused() {
    let server = TestServer::start().await;
    for (depth, status) in [(63, 202), (64, 202), (65, 400), (100_000, 400)] {
        let answer = post(&server.client(), nested(depth)).await.expect(status);
        if status == 400 {
            assert!(answer.problem(400)["detail"].as_str().unwrap().contains("64"), "{}", answer.text());
        }
    }
    let arrays = "[".repeat(500_000);
    post(&server.client(), arrays).await.problem(400);
    let deep = nested(65);
    server.client().post_as("/tokens", "application/json", deep).await.problem(400);
    assert_eq!(server.client().stored().await.len(), 2);
}

// SX-27: limits.body_bytes at n-1, n, n+1.
#[tokio::test]
async fn a_body_over_one_mebibyte_is_413() {
    let server = TestServer::start().await;
    for (bytes, status) in [(LIMIT + 1, 413), (LIMIT - 1, 202), (LIMIT, 202)] {
        let body = batch_of(bytes);
        assert_eq!(body.len(), bytes);
        let before = server.client().stored().await.len();
        let answer = post(&server.client(), body).await.expect(status);
        if status == 413 {
            assert!(answer.problem(413)["detail"].as_str().unwrap().contains("1048576"));
            assert_eq!(server.client().stored().await.len(), before);
        }
    }
}

#[tokio::test]
async fn a_body_may_be_as_large_as_the_configuration_says() {
    let server = TestServer::start_with(|config| config.limits.body_bytes = 4 * LIMIT as u64).await;
    let event = format!(r#"{{"eventType":"a","data":{{"x":"{}"}}}}"#, "x".repeat(200_000));
    let body = format!("[{}]", vec![event; 15].join(","));
    assert!(body.len() > 2 * LIMIT);
    post(&server.client(), body).await.expect(202);
    assert_eq!(server.client().stored().await.len(), 15);
}

// SX-27: a client that sends everything before it listens hears the answer.
#[tokio::test]
async fn a_refusal_is_heard_by_who_sends_before_listening() {
    let server = TestServer::start().await;
    let body = "x".repeat(8 * LIMIT);
    let announced = format!("content-length: {}\r\n\r\n{body}", body.len());
    let chunked = format!("transfer-encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
    for rest in [announced, chunked] {
        let mut connection = Raw::connect(server.address).await;
        let head = raw::head("POST", "/events", server.admin_token());
        assert!(connection.send(format!("{head}connection: close\r\n{rest}")).await, "the server went away");
        connection.last_answer().await.problem(413);
    }
}

// SX-27: a length that is not announced is counted as it comes.
#[tokio::test]
async fn a_chunked_body_over_the_limit_is_413() {
    let server = TestServer::start().await;
    for (bytes, status) in [(LIMIT, 202), (LIMIT + 1, 413)] {
        let pieces: Vec<_> = batch_of(bytes).into_bytes().chunks(50_000).map(<[u8]>::to_vec).collect();
        let pieces = pieces.into_iter().map(Ok::<_, std::io::Error>);
        let body = reqwest::Body::wrap_stream(futures_util::stream::iter(pieces));
        let answer = post(&server.client(), body).await.expect(status);
        if status == 413 {
            answer.problem(413);
        }
    }
    assert_eq!(server.client().stored().await.len(), 6);
}

#[tokio::test]
async fn gzip_is_unpacked() {
    let server = TestServer::start().await;
    let one = gzip(json!({ "eventId": "1", "eventType": "a" }).to_string().as_bytes());
    server.client().post_with("/events", &GZIP, one).await.expect(202);
    let lines = gzip(b"{\"eventId\":\"2\",\"eventType\":\"a\"}\n{\"eventId\":\"3\",\"eventType\":\"a\"}");
    let headers = [("content-type", "application/x-ndjson"), ("content-encoding", "gzip")];
    server.client().post_with("/events", &headers, lines).await.expect(202);
    assert_eq!(server.client().stored().await.len(), 3);
    let plain = [("content-type", "application/json"), ("content-encoding", "identity")];
    server.client().post_with("/events", &plain, r#"{"eventType":"a"}"#).await.expect(202);
}

// SX-27: the limit holds on the unpacked size, and unpacking stops there.
#[tokio::test]
async fn a_gzip_bomb_is_413() {
    let server = TestServer::start().await;
    let bomb = gzip(&vec![b' '; 200 * LIMIT]);
    assert!(bomb.len() < LIMIT / 4);
    server.client().post_with("/events", &GZIP, bomb).await.problem(413);
    for (bytes, status) in [(LIMIT, 202), (LIMIT + 1, 413)] {
        server.client().post_with("/events", &GZIP, gzip(batch_of(bytes).as_bytes())).await.expect(status);
    }
    assert_eq!(server.client().stored().await.len(), 6);
}

#[tokio::test]
async fn corrupt_gzip_is_400() {
    let server = TestServer::start().await;
    let good = gzip(br#"{"eventType":"a"}"#);
    let mut changed = good.clone();
    let checksum = changed.len() - 6;
    changed[checksum] ^= 0xff;
    for bad in [b"{\"eventType\":\"a\"}".to_vec(), good[..good.len() - 3].to_vec(), changed, Vec::new()] {
        server.client().post_with("/events", &GZIP, bad).await.problem(400);
    }
    assert!(server.client().stored().await.is_empty());
}

// RFC 9110 8.4.1
#[tokio::test]
async fn the_name_of_a_coding_has_any_case() {
    let server = TestServer::start().await;
    for (n, coding) in ["GZIP", "Gzip", "X-GZip"].into_iter().enumerate() {
        let headers = [("content-type", "application/json"), ("content-encoding", coding)];
        let body = gzip(format!(r#"{{"eventType":"a","eventId":"{n}"}}"#).as_bytes());
        server.client().post_with("/events", &headers, body).await.expect(202);
    }
}

#[tokio::test]
async fn other_encodings_and_content_types_are_415() {
    let server = TestServer::start().await;
    for encoding in ["br", "deflate", "gzip, gzip", "zstd"] {
        let headers = [("content-type", "application/json"), ("content-encoding", encoding)];
        server.client().post_with("/events", &headers, r#"{"eventType":"a"}"#).await.problem(415);
    }
    for content_type in ["text/plain", "application/xml", "multipart/form-data", "application/jsonx", "nonsense"] {
        server.client().post_as("/events", content_type, r#"{"eventType":"a"}"#).await.problem(415);
        server.client().post_as("/tokens", content_type, r#"{"scopes":["read"]}"#).await.problem(415);
    }
    assert!(server.client().stored().await.is_empty());
}

// RFC 9110 8.4: several headers are one list.
#[tokio::test]
async fn all_codings_of_a_body_count() {
    let server = TestServer::start().await;
    let send = async |codings: &[&'static str], body: Vec<u8>| {
        let codings = codings.iter().map(|coding| ("content-encoding", *coding));
        let headers: Vec<_> = codings.chain([("content-type", "application/json")]).collect();
        server.client().post_with("/events", &headers, body).await.status
    };
    let plain = br#"{"eventType":"a"}"#;
    for codings in [["gzip", "gzip"], ["gzip", "br"], ["identity", "br"]] {
        assert_eq!(send(&codings, gzip(plain)).await, 415, "{codings:?}");
    }
    assert_eq!(send(&["identity", "gzip"], gzip(plain)).await, 202);
    assert_eq!(send(&["identity, identity"], plain.to_vec()).await, 202);
}

// RFC 9112 6.1: a body that is packed for the way would be taken for what is in it.
#[tokio::test]
async fn a_transfer_is_chunked_and_no_more() {
    let server = TestServer::start().await;
    let address = server.url.trim_start_matches("http://").parse().unwrap();
    for (coding, status) in [("gzip, chunked", 400), ("Chunked", 202)] {
        let mut raw = Raw::connect(address).await;
        let head = raw::head("POST", "/events", server.admin_token());
        let head =
            format!("{head}content-type: application/json\r\nconnection: close\r\ntransfer-encoding: {coding}\r\n\r\n");
        raw.send(format!("{head}11\r\n{{\"eventType\":\"a\"}}\r\n0\r\n\r\n")).await;
        let answer = raw.last_answer().await;
        assert_eq!(answer.status, status, "{answer:?}");
        if status == 400 {
            let detail = answer.problem(400)["detail"].clone();
            assert!(detail.as_str().unwrap().contains("Transfer-Encoding"), "{detail}");
        }
    }
}

// A form is taken as it comes; what is wrong is the packing, and not what is in it. A file may be packed as any other body.
#[tokio::test]
async fn an_upload_that_is_packed_otherwise_is_415() {
    let server = TestServer::start().await;
    let client = server.client();
    let headers = |encoding| [("content-type", "text/csv"), ("content-encoding", encoding)];
    let csv = b"product,support_group,user\np,g,u\n";
    for encoding in ["gzip", "br"] {
        let problem = client.post_with("/invoices", &headers(encoding), gzip(b"x")).await.problem(415);
        assert!(problem["detail"].as_str().unwrap().contains("Content-Encoding"), "{problem}");
    }
    let problem = client.post_with("/notification-map/import", &headers("br"), csv.to_vec()).await.problem(415);
    assert!(problem["detail"].as_str().unwrap().contains("Content-Encoding"), "{problem}");
    assert_eq!(client.get("/notification-map").await.expect(200).json()["items"], json!([]));
    client.post_with("/notification-map/import", &headers("identity"), csv.to_vec()).await.expect(200);
    client.post_with("/notification-map/import", &headers("gzip"), gzip(csv)).await.expect(200);
}

// The header that curl sends on its own, and none at all.
#[tokio::test]
async fn a_forgotten_content_type_does_not_matter() {
    let server = TestServer::start().await;
    let client = server.client();
    client.post_as("/events", "application/x-www-form-urlencoded", r#"{"eventType":"a"}"#).await.expect(202);
    client.post_as("/tokens", "application/x-www-form-urlencoded", r#"{"scopes":["read"]}"#).await.expect(201);
    client.post_with("/events", &[], r#"{"eventType":"a"}"#).await.expect(202);
    client.post_as("/events", "Application/JSON; charset=UTF-8", r#"{"eventType":"a"}"#).await.expect(202);
}

// A body that ends before its announced length is no event.
#[tokio::test]
async fn a_truncated_body_stores_nothing() {
    let server = TestServer::start().await;
    let event = r#"{"eventType":"a"}"#;
    let head = raw::head("POST", "/events", server.admin_token());
    for length in [
        format!("content-length: {}\r\n\r\n{event}", event.len() + 10),
        format!("transfer-encoding: chunked\r\n\r\n{:x}\r\n{event}\r\n", event.len()),
    ] {
        let mut connection = Raw::connect(server.address).await;
        connection.send(format!("{head}{length}")).await;
        connection.finish().await;
        let answer = connection.read_to_end().await;
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 400"), "{answer}");
    }
    assert!(server.client().stored().await.is_empty());
}

// Two ways to give the length are a way to smuggle a second request past a proxy.
#[tokio::test]
async fn contradicting_lengths_store_nothing_twice() {
    let server = TestServer::start().await;
    let head = raw::head("POST", "/events", server.admin_token());
    for lengths in ["content-length: 5\r\ncontent-length: 6\r\n", "content-length: x\r\n", "content-length: -1\r\n"] {
        let mut connection = Raw::connect(server.address).await;
        connection.send(format!("{head}{lengths}\r\n{{}}   ")).await;
        assert_eq!(connection.last_answer().await.status, 400, "{lengths}");
    }
    assert!(server.client().stored().await.is_empty());
}
