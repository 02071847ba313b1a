//! Waits between deliveries: whoever ends them, and across restarts.

use std::time::Duration;

use serde_json::{Value, json};

use super::{bodies, counts, receive, receive_one, send, settle, with_queue};
use crate::support::{Client, TestServer};

const DEAD: &str = "q/$deadletterqueue";

async fn advance(server: &TestServer, seconds: u64) {
    server.clock.advance(Duration::from_secs(seconds));
    server.services.bus.settle_time().await.unwrap();
}

async fn restart(server: TestServer) -> (TestServer, Client) {
    let token = server.admin_token().to_owned();
    let server = server.restart().await;
    let client = server.client_with(&token);
    (server, client)
}

/// Three dead letters, two of which somebody had and gave back for ten seconds.
async fn with_resting() -> TestServer {
    let server = with_queue("q", &json!({})).await;
    let client = server.client();
    for body in ["a", "b", "c"] {
        send(&client, "q", body).await;
        let got = receive_one(&client, "q").await;
        settle(&client, "q", &got, json!({ "action": "deadletter", "reason": "r" })).await;
    }
    for letter in receive(&client, DEAD, 2).await {
        let wait = json!({ "action": "abandon", "delaySeconds": 10 });
        assert_eq!(settle(&client, DEAD, &letter, wait).await["status"], "ok");
    }
    server
}

async fn listed(client: &Client) -> Vec<Value> {
    client.get("/dead-letters").await.expect(200).json()["items"].as_array().unwrap().clone()
}

// SX-08: a dead letter that waits is on the desk as the others are.
#[tokio::test]
async fn a_dead_letter_that_waits_can_be_dealt_with() {
    let server = with_resting().await;
    let client = server.client();
    assert_eq!(counts(&client, "q").await["deadLettered"], 3);
    let all = listed(&client).await;
    assert_eq!(all.len(), 3);
    let first = all.iter().find(|letter| letter["message"]["body"] == "a").unwrap();
    client.post(&format!("/dead-letters/{}/resubmit", first["id"].as_str().unwrap()), &json!({})).await.expect(201);
    let back = client.post(&format!("/bus/{DEAD}/resubmit"), &json!({ "all": true })).await.expect(200).json();
    assert_eq!((&back["resubmitted"], &back["locked"]), (&json!(2), &json!(0)));
    assert_eq!(bodies(&receive(&client, "q", 9).await), ["a", "b", "c"]);
    assert!(listed(&client).await.is_empty());
    let counts = counts(&client, "q").await;
    assert_eq!((&counts["deadLettered"], &counts["deadLetteredBytes"]), (&json!(0), &json!(0)));
}

#[tokio::test]
async fn a_dead_letter_waits_as_long_as_it_was_told_and_across_a_restart() {
    let server = with_resting().await;
    let client = server.client();
    advance(&server, 4).await;
    let third = receive(&client, DEAD, 9).await;
    assert_eq!(bodies(&third), ["c"]);
    settle(&client, DEAD, &third[0], json!({ "action": "complete" })).await;
    let (server, client) = restart(server).await;
    advance(&server, 5).await;
    assert!(receive(&client, DEAD, 9).await.is_empty(), "it is not time yet");
    advance(&server, 1).await;
    let again = receive(&client, DEAD, 9).await;
    assert_eq!(bodies(&again), ["a", "b"]);
    assert_eq!((&again[0]["deliveryCount"], &counts(&client, "q").await["deadLettered"]), (&json!(2), &json!(2)));
    for letter in &again {
        settle(&client, DEAD, letter, json!({ "action": "complete" })).await;
    }
    assert_eq!(counts(&client, "q").await["deadLettered"], 0);
}

// S003-82, S003-91: a delivery that nobody ended is followed by the same wait as one that failed.
#[tokio::test]
async fn a_lock_that_expires_is_followed_by_the_wait_of_the_policy() {
    let retry = json!({ "strategy": "fixed", "baseSeconds": 4, "jitter": false });
    for ordered in [false, true] {
        let settings = json!({ "lockSeconds": 5, "retry": retry, "ordered": ordered });
        let server = with_queue("q", &settings).await;
        let client = server.client();
        send(&client, "q", "a").await;
        receive_one(&client, "q").await;
        advance(&server, 5).await;
        assert!(receive(&client, "q", 1).await.is_empty(), "ordered {ordered}");
        let (server, client) = restart(server).await;
        advance(&server, 3).await;
        assert!(receive(&client, "q", 1).await.is_empty(), "ordered {ordered}");
        advance(&server, 1).await;
        let again = receive_one(&client, "q").await;
        assert_eq!((&again["deliveryCount"], &again["attempts"][0]["outcome"]), (&json!(2), &json!("expired")));
    }
}

// S003-81: the key of an ordered queue waits across a restart, too, and nobody overtakes.
#[tokio::test]
async fn a_wait_in_an_ordered_queue_survives_a_restart() {
    let server = with_queue("q", &json!({ "ordered": true })).await;
    let client = server.client();
    for (body, session) in [("a1", "a"), ("a2", "a"), ("b1", "b")] {
        let properties = json!({ "SessionId": session }).to_string();
        client.post_with("/bus/q/messages", &[("brokerproperties", &properties)], body).await.expect(201);
    }
    let first = receive_one(&client, "q").await;
    let wait = json!({ "action": "abandon", "delaySeconds": 3600, "reason": "Busy" });
    assert_eq!(settle(&client, "q", &first, wait).await["status"], "ok");
    let (server, client) = restart(server).await;
    assert_eq!(bodies(&receive(&client, "q", 9).await), ["b1"]);
    advance(&server, 3599).await;
    // The lock on the other one was lost meanwhile.
    assert_eq!(bodies(&receive(&client, "q", 9).await), ["b1"]);
    advance(&server, 1).await;
    let again = receive_one(&client, "q").await;
    assert_eq!((&again["body"], &again["deliveryCount"]), (&json!("a1"), &json!(2)));
    assert_eq!(again["attempts"][0]["reason"], "Busy");
    assert!(receive(&client, "q", 9).await.is_empty());
}
