//! Dead letters of queues that another node has: either node deals with them, by the API and on the dashboard.

use serde_json::{Value, json};
use tidings::messages::dead;

use super::together::{Two, two};
use crate::bus::{bodies, counts, receive, send, settle};
use crate::support::{Client, TestServer};
use crate::ui::Visitor;

/// Puts dead letters into a queue.
async fn fill(owner: &Client, queue: &str, texts: &[&str]) {
    for text in texts {
        send(owner, queue, text).await;
    }
    for message in receive(owner, queue, 50).await {
        settle(owner, queue, &message, json!({ "action": "deadletter", "reason": "test" })).await;
    }
    assert_eq!(counts(owner, queue).await["deadLettered"], texts.len());
}

/// The id of the letter with this body.
async fn id_of(client: &Client, text: &str) -> String {
    let list = client.get("/dead-letters?limit=100").await.expect(200).json();
    let found = list["items"].as_array().unwrap().iter().find(|letter| letter["message"]["body"] == text);
    found.unwrap_or_else(|| panic!("no {text} in {list}"))["id"].as_str().unwrap().to_owned()
}

async fn queue(two: &Two, name: &str) {
    two.a.client().put(&format!("/bus/{name}"), &json!({ "lockSeconds": 60 })).await.expect(201);
    two.settle().await;
}

fn texts(messages: &[Value]) -> Vec<String> {
    let mut texts: Vec<String> = bodies(messages).into_iter().map(ToOwned::to_owned).collect();
    texts.sort();
    texts
}

#[tokio::test]
async fn either_node_sends_them_back_and_throws_them_away() {
    let two = two().await;
    queue(&two, "q").await;
    let (owner, other) = two.owner("q");
    let (owner, client) = (owner.client(), other.client());
    fill(&owner, "q", &["one", "two", "three", "four", "five"]).await;
    let path = format!("/dead-letters/{}/resubmit", id_of(&client, "one").await);
    let back = client.post(&path, &json!({ "body": "ONE" })).await.expect(201).json();
    assert_eq!((&back["path"], back["sequenceNumber"].is_u64()), (&json!("q"), true), "{back}");
    client.delete(&format!("/dead-letters/{}", id_of(&client, "two").await)).await.expect(204);
    let ids = json!({ "ids": [id_of(&client, "three").await, "bus-none-1"] });
    let many = client.post("/dead-letters/resubmit", &ids).await.expect(200).json();
    let statuses: Vec<_> = many["items"].as_array().unwrap().iter().map(|item| item["status"].clone()).collect();
    assert_eq!((statuses, &many["done"]), (vec![json!(201), json!(404)], &json!(1)), "{many}");
    assert!(many["items"][0]["sequenceNumber"].is_u64() && many["items"][0]["message_id"].is_string(), "{many}");
    // A mistake is told as if it were made here.
    let ids = json!({ "ids": [id_of(&client, "four").await], "target": { "to": ["x@y.example"] } });
    let bad = client.post("/dead-letters/resubmit", &ids).await.expect(200).json();
    assert_eq!((&bad["items"][0]["status"], &bad["items"][0]["errors"][0]["field"]), (&json!(400), &json!("target")));
    let ids = json!({ "ids": [id_of(&client, "four").await] });
    let many = client.post("/dead-letters/purge", &ids).await.expect(200).json();
    assert_eq!((&many["items"][0]["status"], &many["done"]), (&json!(204), &json!(1)), "{many}");
    assert_eq!(texts(&receive(&client, "q", 10).await), ["ONE", "three"]);
    assert_eq!(counts(&owner, "q").await["deadLettered"], 1);
    // Who may not, may not there either.
    let reader = other.client_for(&["read"]).await;
    reader.delete(&format!("/dead-letters/{}", id_of(&client, "five").await)).await.problem(403);
    let log = client.get("/audit-log?action=dead_letter.resubmit").await.expect(200).json();
    assert_eq!(log["items"].as_array().unwrap().len(), 2, "{log}");
}

#[tokio::test]
async fn the_dashboard_of_either_node_does_it_as_well() {
    let two = two().await;
    queue(&two, "q").await;
    let (owner, other) = two.owner("q");
    let (owner, client) = (owner.client(), other.client());
    fill(&owner, "q", &["one", "two", "three", "four"]).await;
    let visitor = Visitor::admin(other).await;
    let path = format!("/ui/dead-letters/{}/resubmit", id_of(&client, "one").await);
    let answer = visitor.act(&path, &[("before", "one"), ("body", "one")]).await.expect(303);
    assert_eq!(answer.header("location"), "/ui/dead-letters?done=sent");
    visitor.act(&format!("/ui/dead-letters/{}/discard", id_of(&client, "two").await), &[]).await.expect(303);
    // As a browser sends it, with the address it sees.
    let pattern = json!({ "body": ["three"] }).to_string();
    let fields = [("path", "q/$deadletterqueue"), ("where", pattern.as_str()), ("form", &visitor.form_token().await)];
    let origin = visitor.form("/ui/bus/resubmit", &fields).header("origin", &other.url);
    let answer = crate::support::Answer::to(origin.header("sec-fetch-site", "same-origin")).await.expect(303);
    assert!(answer.header("location").contains("1%20sent%20back") || answer.header("location").contains("1+sent+back"));
    assert_eq!(texts(&receive(&client, "q", 10).await), ["one", "three"]);
    visitor.act("/ui/bus/purge", &[("path", "q/$deadletterqueue")]).await.expect(303);
    assert_eq!(counts(&owner, "q").await["deadLettered"], 0);
    // A form of nobody's session is not forwarded.
    visitor.submit("/ui/bus/purge", &[("path", "q")]).await.expect(403);
}

// A job over all of them is done by every node for its own queues.
#[tokio::test]
async fn a_job_over_letters_of_several_nodes_is_finished() {
    let two = two().await;
    let mut queues = Vec::new();
    let has = |server: &TestServer, queues: &[String], two: &Two| {
        queues.iter().filter(|queue| two.owner(queue).0.url == server.url).count()
    };
    while queues.is_empty() || has(&two.a, &queues, &two) == 0 || has(&two.b, &queues, &two) == 0 {
        let name = format!("q{}", queues.len());
        queue(&two, &name).await;
        queues.push(name);
    }
    for name in &queues {
        fill(&two.owner(name).0.client(), name, &["x", "y"]).await;
    }
    two.clock.advance(std::time::Duration::from_secs(1));
    let job = two.a.client().post("/dead-letters/purge", &json!({ "all": true })).await.expect(202).json();
    let path = format!("/dead-letters/jobs/{}", job["id"].as_str().unwrap());
    let mut rounds = 0;
    let done = loop {
        let job = two.a.client().get(&path).await.expect(200).json();
        if job["state"] == "done" {
            break job;
        }
        rounds += 1;
        assert!(rounds < 10, "{job}");
        dead::work(&two.a.services).await.unwrap();
        dead::work(&two.b.services).await.unwrap();
    };
    assert_eq!((&done["done"], &done["failed"]), (&json!(2 * queues.len()), &json!(0)), "{done}");
    assert_eq!(two.b.client().get("/dead-letters").await.expect(200).json()["items"], json!([]));
}
