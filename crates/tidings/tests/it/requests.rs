//! Requests that are wrong before anybody looks at their content: paths, methods, parameters, headers.

use reqwest::Method;

use crate::support::raw::{self, Raw};
use crate::support::{Answer, TestServer, event};

// SX-24
#[tokio::test]
async fn an_unknown_path_is_404() {
    let server = TestServer::start().await;
    for path in ["/event", "/events/", "/events/a/b", "/Events", "/admin", "/trace", "/limit", "//events"] {
        server.client().get(path).await.problem(404);
        server.stranger().get(path).await.problem(404);
    }
}

// SX-24, RFC 9110: 405 says what is allowed.
#[tokio::test]
async fn a_wrong_method_is_405_and_names_the_right_ones() {
    let server = TestServer::start().await;
    for (method, path, allowed) in [
        (Method::DELETE, "/events", ["GET", "POST"].as_slice()),
        (Method::PUT, "/events/e", &["GET"]),
        (Method::GET, "/tokens/t", &["DELETE"]),
        (Method::POST, "/healthz", &["GET"]),
        (Method::PATCH, "/audit-log", &["GET"]),
    ] {
        let answer = Answer::to(server.client().request(method, path)).await;
        answer.problem(405);
        for method in allowed {
            assert!(answer.header("allow").contains(method), "{path}: {:?}", answer.headers);
        }
    }
}

// Paths that try to leave, or that are no text.
#[tokio::test]
async fn odd_paths_are_refused() {
    let server = TestServer::start().await;
    server.client().send(&event("a")).await;
    for (path, status) in [
        ("/events/%00", 404),
        ("/events/a%00b", 404),
        ("/events/%2e%2e", 404),
        ("/events/%2e%2e%2fadmin", 404),
        ("/events/..%2f..%2fetc%2fpasswd", 404),
        ("/events/%ff%fe", 400),
        ("/trace/%00", 400),
        ("/trace/%ff", 400),
        ("/trace/%20", 400),
        ("/%00", 404),
        ("/%ff", 404),
    ] {
        let mut connection = Raw::connect(server.address).await;
        let head = raw::head("GET", path, server.admin_token());
        connection.send(format!("{head}connection: close\r\n\r\n")).await;
        connection.last_answer().await.problem(status);
    }
    for path in ["/tokens/%00", "/tokens/x", &format!("/tokens/{}", "x".repeat(5000))] {
        server.client().delete(path).await.problem(404);
    }
    server.client().get(&format!("/events/{}", "x".repeat(5000))).await.problem(404);
    server.client().get(&format!("/trace/{}", "x".repeat(129))).await.problem(400);
    assert_eq!(server.client().stored().await.len(), 1);
}

// SX-10: nothing is silently ignored.
#[tokio::test]
async fn an_unknown_query_parameter_is_refused_on_every_route() {
    let server = TestServer::start().await;
    for path in [
        "/healthz",
        "/readyz",
        "/metrics",
        "/openapi.json",
        "/events",
        "/events/e",
        "/events/stream",
        "/trace/c",
        "/audit-log",
        "/audit-log/verify",
        "/tokens",
        "/admin/backup",
    ] {
        let answer = server.client().get(&format!("{path}?lmit=5&x")).await;
        assert_eq!(answer.bad_fields(), ["lmit", "x"], "{path}");
    }
    let answer = server.client().post("/events?dryRun=true", &event("a")).await;
    assert_eq!(answer.bad_fields(), ["dryRun"]);
    assert_eq!(server.client().delete("/tokens/x?force=1").await.bad_fields(), ["force"]);
    assert!(server.client().stored().await.is_empty());
}

#[tokio::test]
async fn a_repeated_query_parameter_is_refused() {
    let server = TestServer::start().await;
    assert_eq!(server.client().get("/events?type=a&type=b").await.bad_fields(), ["type"]);
    assert_eq!(server.client().get("/audit-log?limit=1&limit=1").await.bad_fields(), ["limit"]);
}

// SX-10: validated, never clamped; SX-27: at n-1, n, n+1.
#[tokio::test]
async fn limits_are_validated_and_never_clamped() {
    let server = TestServer::start().await;
    for path in ["/events", "/audit-log", "/trace/c"] {
        for (limit, good) in [
            ("0", false),
            ("1", true),
            ("999", true),
            ("1000", true),
            ("1001", false),
            ("abc", false),
            ("-1", false),
            ("", false),
            ("1.5", false),
            ("99999999999999999999", false),
        ] {
            let answer = server.client().get(&format!("{path}?limit={limit}")).await;
            if good {
                answer.expect(200);
            } else {
                assert_eq!(answer.bad_fields(), ["limit"], "{path} {limit}");
            }
        }
    }
}

// SX-24: every failing parameter, not only the first.
#[tokio::test]
async fn all_failing_parameters_are_named_at_once() {
    let server = TestServer::start().await;
    let answer = server.client().get("/events?limit=0&from=soon&to=2026-02-30&type=%01").await;
    assert_eq!(answer.bad_fields(), ["type", "from", "to", "limit"]);
    assert_eq!(server.client().get("/events?from=2026-02-02&to=2026-02-01").await.bad_fields(), ["from"]);
    assert_eq!(
        server.client().get("/audit-log?limit=0&from=x&format=xml").await.bad_fields(),
        ["from", "format", "limit"]
    );
}

// SX-24: longer than any key: the asker's mistake.
#[tokio::test]
async fn filters_longer_than_any_name_are_refused() {
    let server = TestServer::start().await;
    let long = "x".repeat(3000);
    for (path, field) in [
        ("/events", "type"),
        ("/events", "source"),
        ("/events", "correlationId"),
        ("/audit-log", "user"),
        ("/audit-log", "action"),
        ("/audit-log", "entity"),
        ("/audit-log", "entityId"),
    ] {
        let answer = server.client().get(&format!("{path}?{field}={long}")).await;
        assert_eq!(answer.bad_fields(), [field], "{path}");
    }
}

// A header with control characters never reaches a handler.
#[tokio::test]
async fn a_header_with_control_characters_is_400() {
    let server = TestServer::start().await;
    for header in ["x-odd: a\x01b", "x-odd: a\0b", "x odd: a", "x-correlation-id: a\x7fb", "no colon"] {
        let mut connection = Raw::connect(server.address).await;
        let head = raw::head("POST", "/events", server.admin_token());
        connection.send(format!("{head}{header}\r\ncontent-length: 17\r\n\r\n{{\"eventType\":\"a\"}}")).await;
        assert_eq!(connection.last_answer().await.status, 400, "{header:?}");
    }
    assert!(server.client().stored().await.is_empty());
    server.client().get("/healthz").await.expect(200);
}

// SX-27: a head is bounded.
#[tokio::test]
async fn a_huge_header_is_431() {
    let server = TestServer::start().await;
    let mut connection = Raw::connect(server.address).await;
    connection.send(raw::head("GET", "/events", server.admin_token())).await;
    connection.send(format!("x-huge: {}\r\n\r\n", "x".repeat(300_000))).await;
    assert_eq!(connection.last_answer().await.status, 431);
    let mut connection = Raw::connect(server.address).await;
    connection.send(raw::head("GET", "/events", server.admin_token())).await;
    for n in 0..200 {
        connection.send(format!("x-{n}: x\r\n")).await;
    }
    connection.send("\r\n").await;
    assert_eq!(connection.last_answer().await.status, 431);
    server.client().get("/healthz").await.expect(200);
}

// SX-27: and counted to the byte.
#[tokio::test]
async fn a_head_has_64_kib() {
    let server = TestServer::start().await;
    let head = raw::head("GET", "/events", server.admin_token());
    let (_, headers) = head.split_once("\r\n").unwrap();
    let used = "/events".len() + headers.len() + "x-huge: \r\n".len();
    for (bytes, status) in [(65_535, 200), (65_536, 200), (65_537, 431), (100_000, 431)] {
        let mut connection = Raw::connect(server.address).await;
        connection.send(format!("{head}x-huge: {}\r\n\r\n", "x".repeat(bytes - used))).await;
        connection.finish().await;
        assert_eq!(connection.last_answer().await.status, status, "{bytes}");
    }
}

// RFC 9112, 3.2
#[tokio::test]
async fn a_request_has_one_host() {
    let server = TestServer::start().await;
    for (head, status) in [
        ("GET /healthz HTTP/1.1\r\nhost: a\r\n", 200),
        ("GET /healthz HTTP/1.1\r\nHOST:\r\n", 200),
        ("GET /healthz HTTP/1.0\r\n", 200),
        ("GET /healthz HTTP/1.1\r\n", 400),
        ("GET /healthz HTTP/1.1\r\nhost: a\r\nHost: a\r\n", 400),
        ("GET /ui/ HTTP/1.1\r\nhost: a\r\nHost: b\r\n", 400),
        ("GET /healthz HTTP/1.0\r\nhost: a\r\nHost: b\r\n", 400),
    ] {
        let mut connection = Raw::connect(server.address).await;
        connection.send(format!("{head}connection: close\r\n\r\n")).await;
        let answer = connection.last_answer().await;
        assert_eq!(answer.status, status, "{head}");
        if status == 400 {
            assert!(answer.head.contains("x-correlation-id") && answer.body.contains("Host"), "{answer:?}");
        }
    }
}

// What is no text would become another name.
#[tokio::test]
async fn parameters_that_are_no_text_are_refused() {
    let server = TestServer::start().await;
    let client = server.client();
    for (path, field) in [
        ("/notifications?user=%ff", "user"),
        ("/events?type=%ff", "type"),
        ("/tickets?caller=a%C3", "caller"),
        ("/alerts?actorId=%80", "actorId"),
    ] {
        assert_eq!(client.get(path).await.bad_fields(), [field], "{path}");
    }
    client.get("/notifications?user=%C3%A4+b").await.expect(200);
}

#[tokio::test]
async fn what_is_no_http_at_all_is_400() {
    let server = TestServer::start().await;
    for nonsense in
        ["\x16\x03\x01\x02\0\x01\0\x01\r\n\r\n", "hello\r\n\r\n", "GET /events\r\n\r\n", "GET / HTTP/9.9\r\n\r\n"]
    {
        let mut connection = Raw::connect(server.address).await;
        connection.send(nonsense).await;
        connection.finish().await;
        let answer = connection.read_to_end().await;
        assert!(answer.starts_with("HTTP/1.1 400"), "{nonsense:?}: {answer:?}");
    }
    server.client().get("/healthz").await.expect(200);
}

// An answer does not repeat whatever length of address it was asked for.
#[tokio::test]
async fn a_refusal_repeats_no_more_of_an_address_than_is_needed() {
    let server = TestServer::start().await;
    for (method, status) in [(reqwest::Method::GET, 404), (reqwest::Method::POST, 404)] {
        for (length, whole) in [(199, true), (200, true), (201, false), (8000, false)] {
            let path = format!("/{}", "x".repeat(length - 1));
            let answer = crate::support::Answer::to(server.client().request(method.clone(), &path)).await;
            let detail = answer.problem(status)["detail"].as_str().unwrap().to_owned();
            assert_eq!(detail.contains(&path), whole, "{length}");
            assert!(detail.chars().count() < 300, "{detail}");
        }
    }
    let long = format!("/events/{}", "x".repeat(8000));
    let answer = crate::support::Answer::to(server.client().request(reqwest::Method::PATCH, &long)).await;
    assert!(answer.problem(405)["detail"].as_str().unwrap().chars().count() < 300);
}
