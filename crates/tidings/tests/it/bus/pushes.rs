//! Push subscriptions: where a message goes is decided when it goes.

use serde_json::{Value, json};

use super::{counts, send};
use crate::support::{Client, TestServer};

const PATH: &str = "/bus/t/subscriptions/p";

async fn with_topic() -> TestServer {
    let server = TestServer::start().await;
    server.client().put("/bus/t", &json!({ "kind": "topic" })).await.expect(201);
    server
}

/// Waits until so many messages were handed over; gives where to, by body.
async fn handed_over(client: &Client, count: usize) -> Vec<(Value, Value)> {
    for _ in 0..5000 {
        let list = client.get("/api/messages?message_type=bus_push").await.expect(200).json();
        let items = list["items"].as_array().unwrap();
        if items.len() >= count {
            let shown = |item: &Value| (item["payload"]["body"].clone(), item["target"]["url"].clone());
            return items.iter().map(shown).collect();
        }
        tokio::task::yield_now().await;
    }
    panic!("fewer than {count} were handed over");
}

#[tokio::test]
async fn after_a_change_only_the_new_endpoint_gets_messages() {
    let server = with_topic().await;
    let client = server.client();
    client.put(PATH, &json!({ "push": { "url": "https://old.example.com/a" } })).await.expect(201);
    send(&client, "t", "m0").await;
    handed_over(&client, 1).await;
    client.put(PATH, &json!({ "push": { "url": "https://new.example.com/b" } })).await.expect(200);
    send(&client, "t", "m1").await;
    let all = handed_over(&client, 2).await;
    assert!(all.contains(&(json!("m0"), json!("https://old.example.com/…"))), "{all:?}");
    assert!(all.contains(&(json!("m1"), json!("https://new.example.com/…"))), "{all:?}");
    // Without an endpoint it waits for whoever fetches it.
    client.put(PATH, &json!({})).await.expect(200);
    send(&client, "t", "m2").await;
    let got = client.post(&format!("{PATH}/receive"), &json!({ "waitSeconds": 10 })).await.expect(200).json();
    assert_eq!((&got["messages"][0]["body"], &got["messages"][0]["deliveryCount"]), (&json!("m2"), &json!(1)));
    assert_eq!(handed_over(&client, 2).await.len(), 2);
    assert_eq!(counts(&client, "t/subscriptions/p").await["locked"], 1);
}

// A secret that is not shown can be kept, but only for the address that it is for.
#[tokio::test]
async fn a_hidden_secret_is_kept_for_the_same_url_only() {
    let server = with_topic().await;
    let client = server.client();
    let with = |url: &str, secret: &str| json!({ "push": { "url": url, "secret": secret } });
    let (one, other) = ("https://one.example.com/", "https://other.example.com/");
    assert_eq!(client.put(PATH, &with(one, "***")).await.bad_fields(), ["push.secret"]);
    client.get(PATH).await.problem(404);
    client.put(PATH, &with(one, "whsec_c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0")).await.expect(201);
    assert_eq!(client.put(PATH, &with(other, "***")).await.bad_fields(), ["push.secret"]);
    let kept = client.put(PATH, &with(one, "***")).await.expect(200).json();
    assert_eq!(kept["push"], json!({ "url": one, "secret": "***" }));
    let push = server.services.bus.subscription("t", "p").unwrap().record.definition.push.clone().unwrap();
    assert!(push.secret.unwrap().starts_with("whsec_"));
    client.put(PATH, &json!({ "push": { "url": one } })).await.expect(200);
    assert_eq!(client.put(PATH, &with(one, "***")).await.bad_fields(), ["push.secret"]);
}

// S003-69, S003-80: what peek-lock says in headers, a push delivery has to say, too.
#[tokio::test]
async fn what_is_handed_over_has_the_properties_of_the_message() {
    let server = with_topic().await;
    let client = server.client();
    client.put(PATH, &json!({ "push": { "url": "https://one.example.com/" } })).await.expect(201);
    let headers = [
        ("brokerproperties", r#"{"MessageId":"m1","Label":"läb"}"#),
        ("priority", "\"High\""),
        ("webhook-id", "forged"),
    ];
    client.post_with("/bus/t/messages", &headers, "x").await.expect(201);
    handed_over(&client, 1).await;
    let list = client.get("/api/messages?message_type=bus_push").await.expect(200).json();
    let headers = tidings::bus::push::headers_of(list["items"][0]["payload"].as_object().unwrap());
    let broker: Value = serde_json::from_str(headers["brokerproperties"].to_str().unwrap()).unwrap();
    assert_eq!(
        (&broker["MessageId"], &broker["Label"], &broker["DeliveryCount"]),
        (&json!("m1"), &json!("l\u{e4}b"), &json!(1))
    );
    assert!(broker.get("LockToken").is_none(), "{broker}");
    assert_eq!(headers["priority"], "\"High\"");
    assert!(!headers.contains_key("webhook-id"));
}
