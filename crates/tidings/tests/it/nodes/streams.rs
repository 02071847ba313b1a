//! Streams hang on any node, whichever the news is made on.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Value, json};
use tidings::config::{Config, Listen};
use tokio::time::timeout;

use super::together::{Two, store, two, two_over};
use crate::support::raw::{self, Raw};
use crate::support::{TestServer, event, server};
use crate::ui::Visitor;

const PATIENCE: Duration = Duration::from_secs(30);

/// A stream that is known to listen: it has said so.
async fn listen(address: SocketAddr, path: &str, token: &str, said: &str) -> Raw {
    let mut stream = Raw::connect(address).await;
    stream.send(format!("{}\r\n", raw::head("GET", path, token))).await;
    let head = timeout(PATIENCE, stream.read_until(said)).await.expect("an answer");
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    stream
}

async fn hear(stream: &mut Raw, text: &str) -> String {
    timeout(PATIENCE, stream.read_until(text)).await.unwrap_or_else(|_| panic!("nobody hears of {text}"))
}

async fn rule(two: &Two) {
    let rule = json!({ "pattern": { "eventType": ["order.placed"] }, "title": "Order {{ data.id }}",
        "targets": [{ "channel": "inbox", "users": ["u1"] }] });
    two.a.client().put("/rules/orders", &rule).await.expect(201);
}

// S001-108: the entry is made on one node, the stream hangs on the other.
#[tokio::test]
async fn an_inbox_is_heard_on_another_node() {
    let two = two().await;
    rule(&two).await;
    let mut stream = listen(two.b.address, "/notifications/stream?user=u1", two.b.admin_token(), "listening").await;
    for n in 0..3 {
        let placed = json!({ "eventType": "order.placed", "data": { "id": format!("number-{n}") } });
        two.a.client().send(&placed).await;
        let heard = hear(&mut stream, &format!("number-{n}")).await;
        assert_eq!(heard.matches("event: notification").count(), 1, "{heard}");
    }
}

fn with_push(config: &mut Config) {
    config.push.listen = Listen::on(SocketAddr::from(([127, 0, 0, 1], 0)));
}

fn push_address(server: &TestServer) -> SocketAddr {
    server.push_url.as_ref().unwrap().trim_start_matches("http://").parse().unwrap()
}

#[tokio::test]
async fn a_push_subscription_hears_what_is_published_on_another_node() {
    let clock = server::clock();
    let store = store(&clock).await;
    let two = two_over(clock, (std::sync::Arc::clone(&store), store), with_push).await;
    let mut stream = listen(push_address(&two.b), "/ops/json", two.b.admin_token(), "open").await;
    for text in ["disk full", "disk empty"] {
        two.a.push(Some(two.a.admin_token())).post_as("/ops", "text/plain", text.to_owned()).await.expect(200);
        let heard = hear(&mut stream, text).await;
        assert_eq!(heard.matches("\"event\":\"message\"").count(), 1, "{heard}");
    }
}

/// The ids of the events in what a stream has sent.
fn ids(text: &str) -> Vec<String> {
    let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
    data.map(|data| serde_json::from_str::<Value>(data).unwrap()["eventId"].as_str().unwrap().to_owned()).collect()
}

// What every node accepts, once each; of a node that comes later, too.
#[tokio::test]
async fn the_stream_of_events_has_those_of_all_nodes() {
    let two = two().await;
    let mut stream = listen(two.b.address, "/events/stream?type=order.*", two.b.admin_token(), "\r\n\r\n").await;
    for n in 0..20 {
        let server = if n % 2 == 0 { &two.a } else { &two.b };
        server.client().send(&json!({ "eventId": format!("e{n}"), "eventType": "order.placed" })).await;
        server.client().send(&event("other")).await;
    }
    // Two ways lead here: the order is each node's own.
    let mut heard = String::new();
    while ids(&heard).len() < 20 {
        heard += &hear(&mut stream, "\n\n").await;
    }
    for half in 0..2 {
        let own: Vec<String> =
            ids(&heard).into_iter().filter(|id| id[1..].parse::<u32>().unwrap() % 2 == half).collect();
        assert_eq!(own, (0..10).map(|n| format!("e{}", 2 * n + half)).collect::<Vec<_>>());
    }
    let c = TestServer::among(std::sync::Arc::clone(&two.store), std::sync::Arc::clone(&two.clock), Some(&two.a)).await;
    two.settle().await;
    let mut n = 100;
    // It is listened to as soon as it is seen; what it took before that is nobody's news.
    let heard = timeout(PATIENCE, async {
        loop {
            c.client().send(&json!({ "eventId": format!("c{n}"), "eventType": "order.late" })).await;
            n += 1;
            if let Ok(heard) = timeout(Duration::from_millis(200), stream.read_until("order.late")).await {
                return heard;
            }
        }
    });
    assert!(heard.await.expect("the third node is heard").contains("\"c1"));
}

#[tokio::test]
async fn the_dashboards_live_list_has_them_too() {
    let two = two().await;
    let visitor = Visitor::admin(&two.a).await;
    let mut answer = visitor.request(reqwest::Method::GET, "/ui/live/stream").send().await.unwrap();
    assert_eq!(answer.status(), 200);
    two.b.client().send(&json!({ "eventId": "from-b", "eventType": "order.placed" })).await;
    let mut heard = String::new();
    while !heard.contains("from-b") {
        let piece = timeout(PATIENCE, answer.chunk()).await.expect("it is shown").unwrap().unwrap();
        heard.push_str(std::str::from_utf8(&piece).unwrap());
    }
    assert!(heard.contains("event: row"), "{heard}");
}

crate::support::on_dynamodb! {
    an_inbox_is_heard_on_another_node,
    a_push_subscription_hears_what_is_published_on_another_node,
    the_stream_of_events_has_those_of_all_nodes,
}
