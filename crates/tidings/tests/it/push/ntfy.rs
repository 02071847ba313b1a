//! What ntfy's clients rely on beyond the ordinary, and what they are refused, to the letter.

use reqwest::Method;
use reqwest::header::ALLOW;
use serde_json::{Value, json};

use super::{ask, follow, kept, line, server};
use crate::support::raw::{self, Raw};
use crate::support::{Answer, Client, TestServer};

fn admin(server: &TestServer) -> Client {
    server.push(Some(server.admin_token()))
}

/// The code of a refusal, whose status it begins with; 0 if there was none.
fn code(answer: &Answer) -> u64 {
    let code = answer.text().lines().next().and_then(|line| serde_json::from_str::<Value>(line).ok()?["code"].as_u64());
    assert!(code.is_none_or(|code| code / 100 == u64::from(answer.status)), "{}", answer.text());
    code.unwrap_or_default()
}

// S002-68: the Android app tells buttons apart by their ids.
#[tokio::test(flavor = "multi_thread")]
async fn every_action_has_an_id_of_its_own() {
    let server = server().await;
    let listener = follow(&server, "/ops/json", "\"event\":\"open\"").await;
    let view = json!({ "action": "view", "label": "Open", "url": "https://x.example" });
    let mut named = view.clone();
    named["id"] = json!("mine");
    let body = json!({ "topic": "ops", "message": "M", "actions": [view, named] }).to_string();
    let by_json = ask(&server, &["-d", &body], "/").await;
    let header = format!("Actions: {}", json!([view]));
    let by_header = ask(&server, &["-H", &header, "-d", "x"], "/ops").await;

    let actions = [&by_json["actions"][0], &by_json["actions"][1], &by_header["actions"][0]];
    let mut ids: Vec<_> = actions.map(|action| action["id"].as_str().unwrap()).to_vec();
    for (id, action) in ids.iter().zip(actions) {
        assert!(id.len() == 10 && id.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{action}");
        assert_eq!((action["action"].as_str(), action["url"].as_str()), (Some("view"), Some("https://x.example")));
    }
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 3);
    // The same for everybody, now and later.
    let (_, said) = line(listener, "\"event\":\"message\"").await;
    assert_eq!(serde_json::from_str::<Value>(&said).unwrap(), by_json);
    assert_eq!(kept(&server, "ops").await, [by_json, by_header]);
}

// S002-61: RFC 9218 has a header of the same name, which browsers send.
#[tokio::test]
async fn only_a_browsers_priority_is_overlooked() {
    let server = server().await;
    let client = admin(&server);
    for value in ["u=1", "u=1, i", "u=0,i", "u=4, 2"] {
        let answer = client.post_with("/ops", &[("priority", value)], "x").await.expect(200);
        assert_eq!(answer.json().get("priority"), None, "{value}");
        let listening = client.request(Method::GET, "/ops/json?poll=1&p=default").header("priority", value);
        assert_eq!(code(&Answer::to(listening).await.expect(200)), 0, "{value}");
    }
    let answer = client.post_with("/ops?p=high", &[("priority", "u=1, i")], "x").await.expect(200);
    assert_eq!(answer.json()["priority"], 4);
    for value in ["important", "invalid", "i", "u=", "u=x", "u=12", "u=1, ii"] {
        let answer = client.post_with("/ops", &[("priority", value)], "x").await;
        assert_eq!(code(&answer), 40007, "{value}");
        let listening = client.request(Method::GET, "/ops/json?poll=1").header("priority", value);
        assert_eq!(code(&Answer::to(listening).await), 40007, "{value}");
    }
    for value in ["important", "invalid", "i", "u%3D1", "u%3D1,%20i"] {
        for path in ["publish?message=x&", "json?poll=1&"] {
            let answer = client.get(&format!("/ops/{path}priority={value}")).await;
            assert_eq!(code(&answer), 40007, "{path}{value}");
        }
    }
    assert_eq!(kept(&server, "ops").await.len(), 5);
}

// S002-68: as ntfy's documentation shows it for PowerShell.
#[tokio::test]
async fn json_with_capitals_is_the_same() {
    let server = server().await;
    let client = admin(&server);
    let body = json!({
        "Topic": "ops", "Title": "Unauthorized access detected", "Message": "Remote access detected.", "Priority": 5,
        "Tags": ["warning", "skull"],
        "Actions": [{ "Action": "view", "Label": "Open portal", "URL": "https://door.example/", "Clear": true }],
    });
    let published = client.post("/", &body).await.expect(200).json();
    assert_eq!(published["title"], "Unauthorized access detected");
    assert_eq!(
        (published["message"].as_str(), published["priority"].as_u64()),
        (Some("Remote access detected."), Some(5))
    );
    let action = &published["actions"][0];
    assert_eq!((action["url"].as_str(), action["clear"].as_bool()), (Some("https://door.example/"), Some(true)));
    assert_eq!(kept(&server, "ops").await, [published]);
}

// S002-68
#[tokio::test]
async fn a_topic_that_is_no_text_is_refused_in_ntfys_form() {
    let server = server().await;
    let client = admin(&server);
    for path in ["/li%ffve", "/li%ffve/send"] {
        assert_eq!(code(&client.post_as(path, "text/plain", "x").await.expect(400)), 40009, "{path}");
    }
    for path in ["/li%ffve/json?poll=1", "/li%ffve/sse", "/li%ffve/raw", "/li%ffve/auth", "/li%ffve/publish"] {
        assert_eq!(code(&client.get(path).await.expect(400)), 40009, "{path}");
    }
}

// S002-68: mail scanners and previews look at links before people do.
#[tokio::test]
async fn a_link_that_is_only_looked_at_publishes_nothing() {
    let server = server().await;
    let client = admin(&server);
    for path in ["/ops/publish", "/ops/send", "/ops/trigger"] {
        for method in [Method::HEAD, Method::DELETE] {
            let answer = Answer::to(client.request(method.clone(), path)).await.expect(405);
            assert_eq!(answer.header(ALLOW.as_str()), "GET,POST,PUT", "{method} {path}");
        }
    }
    assert!(kept(&server, "ops").await.is_empty());
    for method in [Method::GET, Method::POST, Method::PUT] {
        Answer::to(client.request(method, "/ops/trigger")).await.expect(200);
    }
    assert_eq!(kept(&server, "ops").await.len(), 3);
}

// SX-27: counted to the byte, whatever is asked for.
#[tokio::test]
async fn a_head_has_64_kib() {
    let server = server().await;
    let address = server.push_url.as_ref().unwrap().strip_prefix("http://").unwrap().parse().unwrap();
    for (method, path, good) in
        [("GET", "/ops/auth", 200), ("POST", "/ops", 200), ("OPTIONS", "/ops", 200), ("GET", "/ops/nothing", 404)]
    {
        // Who hangs up halfway would not be waited for while the message is stored.
        let head = format!("{}connection: close\r\n", raw::head(method, path, server.admin_token()));
        let (_, headers) = head.split_once("\r\n").unwrap();
        let used = path.len() + headers.len() + "x-huge: \r\n".len();
        for (bytes, status) in [(65_535, good), (65_536, good), (65_537, 431), (100_000, 431)] {
            let mut connection = Raw::connect(address).await;
            connection.send(format!("{head}x-huge: {}\r\n\r\n", "x".repeat(bytes - used))).await;
            let answer = connection.last_answer().await;
            assert_eq!(answer.status, status, "{method} {path}: {bytes}");
            if status == 431 {
                let refused: Value = serde_json::from_str(&answer.body).unwrap();
                assert_eq!((refused["code"].as_u64(), refused["http"].as_u64()), (Some(43101), Some(431)));
                assert!(answer.head.contains("x-correlation-id"), "{answer:?}");
            }
        }
    }
    assert_eq!(kept(&server, "ops").await.len(), 2);
}

// S002-68
#[tokio::test]
async fn a_reserved_topic_has_a_code_of_its_own() {
    let server = server().await;
    let client = admin(&server);
    for topic in ["docs", "v1"] {
        assert_eq!(code(&client.post_as(&format!("/{topic}"), "text/plain", "x").await), 40010, "{topic}");
        assert_eq!(code(&client.post("/", &json!({ "topic": topic, "message": "x" })).await), 40010, "{topic}");
        assert_eq!(code(&client.get(&format!("/ops,{topic}/json?poll=1")).await), 40010, "{topic}");
    }
    assert_eq!(code(&client.post("/", &json!({ "topic": "a.b", "message": "x" })).await), 40009);
}

#[tokio::test]
async fn an_attachment_has_a_name_in_any_case() {
    let server = server().await;
    let client = admin(&server);
    for (url, name) in
        [("http://e.com", "attachment"), ("https://e.com/x/a%20b.txt?c", "a b.txt"), ("https://e.com/x/dir/", "dir")]
    {
        let published = client.post_with("/ops", &[("attach", url)], "").await.expect(200).json();
        assert_eq!(published["attachment"], json!({ "name": name, "url": url }));
        assert_eq!(published["message"], format!("You received a file: {name}"));
    }
}

#[tokio::test]
async fn since_takes_parts_of_hours() {
    let server = server().await;
    let client = admin(&server);
    client.post_as("/ops", "text/plain", "1").await.expect(200);
    server.advance(1);
    client.post_as("/ops", "text/plain", "2").await.expect(200);
    for (since, texts) in [("0.5h", "2\n"), ("1.5h", "1\n2\n"), ("1h30m", "1\n2\n"), ("30m1h", "1\n2\n")] {
        let answer = client.get(&format!("/ops/raw?poll=1&since={since}")).await.expect(200);
        assert_eq!(answer.text(), texts, "{since}");
    }
    for since in ["-1h", "-1.5h", "1.5", "1..5h", "1.5y"] {
        assert_eq!(code(&client.get(&format!("/ops/raw?poll=1&since={since}")).await), 40008, "{since}");
    }
}

#[tokio::test]
async fn a_comma_too_many_between_topics_is_overlooked() {
    let server = server().await;
    let client = admin(&server);
    client.post_as("/sa", "text/plain", "1").await.expect(200);
    client.post_as("/sb", "text/plain", "2").await.expect(200);
    for (topics, texts) in [("sa,,sb", "1\n2\n"), ("sa,", "1\n"), (",sb", "2\n")] {
        assert_eq!(client.get(&format!("/{topics}/raw?poll=1")).await.expect(200).text(), texts, "{topics}");
        client.get(&format!("/{topics}/auth")).await.expect(200);
    }
    for topics in [",", ",,"] {
        assert_eq!(code(&client.get(&format!("/{topics}/raw?poll=1")).await), 40009, "{topics}");
    }
    // What is left has to be allowed as ever.
    server.push(None).get("/,sa/auth").await.expect(401);
}
