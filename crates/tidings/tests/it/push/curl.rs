//! Publishing and listening with curl, as ntfy's documentation shows it.

use super::{ask, curl, follow, kept, line, run, server};

// S002-68, S002-61
#[tokio::test(flavor = "multi_thread")]
async fn publishes_text_headers_query_and_json() {
    let server = server().await;
    let by_text = ask(&server, &["-d", "Backup successful"], "/ops").await;
    assert_eq!(by_text["id"].as_str().unwrap().len(), 12);
    assert_eq!(by_text["time"], 1_772_366_400);
    assert_eq!(by_text["expires"], 1_772_366_400 + 12 * 3600);
    assert_eq!((by_text["event"].as_str(), by_text["topic"].as_str()), (Some("message"), Some("ops")));
    assert_eq!((by_text["message"].as_str(), by_text.get("priority")), (Some("Backup successful"), None));

    let headers = ["-H", "Title: Größe", "-H", "Priority: urgent", "-H", "Tags: warning,skull", "-d", "Hi"];
    let by_headers = ask(&server, &headers, "/ops").await;
    assert_eq!((by_headers["title"].as_str(), by_headers["priority"].as_u64()), (Some("Größe"), Some(5)));
    assert_eq!(by_headers["tags"], serde_json::json!(["warning", "skull"]));

    let by_query = ask(&server, &[], "/ops/publish?message=Hello%20you&title=T&p=low").await;
    assert_eq!((by_query["message"].as_str(), by_query["priority"].as_u64()), (Some("Hello you"), Some(2)));

    let json = r#"{"topic":"ops","message":"M","title":"T","priority":4,"tags":["a"],"click":"https://x.example/"}"#;
    let by_json = ask(&server, &["-X", "PUT", "-d", json], "/").await;
    assert_eq!((by_json["click"].as_str(), by_json["priority"].as_u64()), (Some("https://x.example/"), Some(4)));

    let kept = kept(&server, "ops").await;
    assert_eq!(kept, [by_text, by_headers, by_query, by_json]);
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_have_ntfys_form() {
    let server = server().await;
    let refused = ask(&server, &["-H", "Priority: 9", "-d", "x"], "/ops").await;
    assert_eq!((refused["code"].as_u64(), refused["http"].as_u64()), (Some(40007), Some(400)));
    assert_eq!(ask(&server, &["-H", "Delay: 30m", "-d", "x"], "/ops").await["code"], 40004);
    assert_eq!(ask(&server, &["-d", "x"], "/a.b").await["code"], 40009);
    // An object, and no list that has an object's values.
    for body in ["{", "[\"ops\", \"M\", \"T\", 4]", "[]", "\"ops\"", "null"] {
        assert_eq!(ask(&server, &["-d", body], "/").await["code"], 40017, "{body}");
    }
    assert_eq!(ask(&server, &[], "/ops/nothing").await["code"], 40401);
    // What is no UTF-8 is not taken for another text.
    for path in ["/ops/publish?message=a%ffb", "/ops/publish?%ff=b", "/ops/json?poll=1&title=%ff"] {
        let refused = ask(&server, &[], path).await;
        assert_eq!((refused["code"].as_u64(), refused["http"].as_u64()), (Some(40011), Some(400)), "{path}");
    }
    for name in ["title", "x-tags", "click"] {
        let request = server.push(Some(server.admin_token())).request(reqwest::Method::POST, "/ops");
        let value = reqwest::header::HeaderValue::from_bytes(b"M\xfcller").unwrap();
        let refused = request.header(name, value).body("x").send().await.unwrap();
        assert_eq!(refused.status(), 400, "{name}");
        assert!(refused.text().await.unwrap().contains(name));
    }
    assert_eq!(ask(&server, &["-X", "DELETE"], "/ops").await["code"], 40501);
    assert_eq!(ask(&server, &[], "/ops/json?poll=1&since=yesterday").await["code"], 40008);
    // S002-64: one byte too many.
    assert_eq!(ask(&server, &["-d", &"x".repeat(4097)], "/ops").await["code"], 41301);
    assert_eq!(ask(&server, &["-d", &"x".repeat(4096)], "/ops").await["event"], "message");
}

#[tokio::test(flavor = "multi_thread")]
async fn listens_in_every_format() {
    let server = server().await;
    let json = follow(&server, "/ops,other/json", "\"event\":\"open\"").await;
    let sse = follow(&server, "/ops/sse", "event: open").await;
    let raw = follow(&server, "/ops/raw", "\n").await;
    let published = ask(&server, &["-d", "two\nlines"], "/ops").await;
    let (json, said) = line(json, "\"event\":\"message\"").await;
    assert_eq!(serde_json::from_str::<serde_json::Value>(&said).unwrap(), published);
    let (_sse, said) = line(sse, "lines").await;
    assert_eq!(serde_json::from_str::<serde_json::Value>(said.strip_prefix("data: ").unwrap()).unwrap(), published);
    assert_eq!(line(raw, "lines").await.1, "two lines\n");
    ask(&server, &["-d", "for the first alone"], "/other").await;
    line(json, "for the first alone").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn polls_since_an_id_a_time_and_a_duration() {
    let server = server().await;
    let first = ask(&server, &["-d", "1"], "/ops").await;
    server.advance(1);
    ask(&server, &["-d", "2"], "/ops").await;
    ask(&server, &["-H", "Cache: no", "-d", "not kept"], "/ops").await;
    let poll = |since: String| {
        let command = curl(&server, &[], &format!("/ops/raw?poll=1&since={since}"));
        async move { run(command).await }
    };
    assert_eq!(poll("all".to_owned()).await, "1\n2\n");
    assert_eq!(poll(first["id"].as_str().unwrap().to_owned()).await, "2\n");
    assert_eq!(poll((first["time"].as_i64().unwrap() + 1).to_string()).await, "2\n");
    assert_eq!(poll("10m".to_owned()).await, "2\n");
    assert_eq!(poll("2h".to_owned()).await, "1\n2\n");
    // Twelve hours after it was published, a message is gone.
    server.advance(11);
    assert_eq!(poll("all".to_owned()).await, "2\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_health_checks_browsers_and_whoever_asks_about_access() {
    let server = server().await;
    assert_eq!(ask(&server, &[], "/v1/health").await["healthy"], true);
    assert_eq!(ask(&server, &[], "/ops,other/auth").await["success"], true);
    let preflight = run(curl(&server, &["-i", "-X", "OPTIONS"], "/ops")).await.to_ascii_lowercase();
    assert!(
        preflight.starts_with("http/1.1 200") && preflight.contains("access-control-allow-headers: authorization, *")
    );
    // SX-03: the correlation id comes back.
    let answer = run(curl(&server, &["-i", "-H", "X-Correlation-ID: c-17", "-d", "x"], "/ops")).await;
    assert!(answer.contains("x-correlation-id: c-17") && answer.contains("access-control-allow-origin: *"), "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subscription_ends_with_the_server() {
    let mut server = server().await;
    let running = follow(&server, "/ops/json", "open").await;
    server.stop().await;
    let (code, _) = tokio::task::spawn_blocking(|| running.wait()).await.unwrap();
    assert_eq!(code, Some(0));
}
