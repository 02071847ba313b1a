//! Changes that were carried out although nobody heard of it: none is called lost, and none is made twice.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tidings::bus::line::LineError;
use tidings::bus::settle::{Settled, Settlement};
use tidings_core::time::ManualClock;
use tidings_store::memory::Memory;

use super::moody::{Mood, Moody};
use super::pauses::{Node, message, settle as settle_nodes};
use super::together::{Two, store, two_over};
use crate::bus::{bodies, complete, counts, receive, receive_one, send, settle};
use crate::support::{Answer, TestServer, server};

/// DynamoDB Local removes what has expired by the real clock.
fn later() -> Arc<ManualClock> {
    let clock = server::clock();
    clock.advance(Duration::from_secs(365 * 24 * 3600));
    clock
}

/// Two nodes, the first with a moody store and a queue with two messages.
async fn two() -> (Two, Arc<Moody>, String) {
    let clock = later();
    let store = store(&clock).await;
    let moody = Moody::over(Arc::clone(&store), "m");
    let two = two_over(clock, (moody.clone(), store), |_| {}).await;
    for n in 0..40 {
        let queue = format!("q{n}");
        two.a.client().put(&format!("/bus/{queue}"), &json!({ "lockSeconds": 60 })).await.expect(201);
        two.settle().await;
        if two.owner(&queue).0.url == two.a.url {
            send(&two.a.client(), &queue, "one").await;
            send(&two.a.client(), &queue, "two").await;
            return (two, moody, queue);
        }
    }
    panic!("the first node has none of forty");
}

/// A call on the second node, which forwards it; the first carries it out, and dies before it can say so.
async fn dies_after(two: &Two, moody: &Moody, call: impl Future<Output = Answer>) -> Answer {
    moody.is_now(Mood::Lost);
    let dies = async {
        moody.met(1).await;
        two.a.services.nodes.as_ref().unwrap().pretend_to_be_dead();
        two.clock.advance(Duration::from_secs(11));
    };
    tokio::join!(call, dies).0
}

fn is_unknown(answer: &Answer) {
    let problem = answer.problem(503);
    assert_eq!(problem["type"], "urn:tidings:problem:outcome-unknown", "{problem}");
    assert!(problem["detail"].as_str().unwrap().contains("not known"), "{problem}");
}

#[tokio::test]
async fn a_settlement_whose_node_dies_is_not_called_lost() {
    let (two, moody, queue) = two().await;
    let b = two.b.client();
    let got = receive_one(&b, &queue).await;
    let body = json!([{ "lockToken": got["lockToken"], "action": "complete" }]);
    let path = format!("/bus/{queue}/settle");
    is_unknown(&dies_after(&two, &moody, b.post(&path, &body)).await);
    // It was done, and who looks sees it.
    two.b.services.look_at_nodes().await.unwrap();
    assert_eq!(bodies(&receive(&b, &queue, 10).await), ["two"]);
    let id = got["messageId"].as_str().unwrap();
    let history = b.get(&format!("/bus/{queue}/history?messageId={id}")).await.expect(200).json();
    assert_eq!(history["items"][0]["state"], "completed", "{history}");
}

// A message for each call that deletes one, and not two.
#[tokio::test]
async fn a_message_is_not_deleted_twice_when_its_node_dies() {
    let (two, moody, queue) = two().await;
    let b = two.b.client();
    let path = format!("/bus/{queue}/messages/head");
    is_unknown(&dies_after(&two, &moody, b.delete(&path)).await);
    two.b.services.look_at_nodes().await.unwrap();
    assert_eq!(bodies(&receive(&b, &queue, 10).await), ["two"]);
    assert_eq!(counts(&b, &queue).await["outgoing"], 1);
}

// One that only receives goes on with the node that takes over.
#[tokio::test]
async fn who_waits_for_a_message_waits_on_when_its_node_dies() {
    let (two, _, queue) = two().await;
    let b = two.b.client();
    assert_eq!(receive(&b, &queue, 10).await.len(), 2);
    let body = json!({ "max": 5, "waitSeconds": 60 });
    let path = format!("/bus/{queue}/receive");
    let waits = b.post(&path, &body);
    let dies = async {
        // Locks are lost with their node: both come again.
        two.a.services.nodes.as_ref().unwrap().pretend_to_be_dead();
        two.clock.advance(Duration::from_secs(11));
    };
    let answer = tokio::join!(waits, dies).0.expect(200).json();
    assert_eq!(bodies(answer["messages"].as_array().unwrap()), ["one", "two"]);
}

/// A node alone with a moody store, and a queue with messages that were received.
async fn alone(messages: usize) -> (TestServer, Arc<Moody>, Vec<Value>) {
    let clock = later();
    let moody = Moody::over(store(&clock).await, "m");
    let server = TestServer::among(moody.clone(), clock, None).await;
    server.client().put("/bus/q", &json!({ "lockSeconds": 60 })).await.expect(201);
    for n in 0..messages {
        send(&server.client(), "q", &n.to_string()).await;
    }
    let got = receive(&server.client(), "q", messages).await;
    assert_eq!(got.len(), messages);
    (server, moody, got)
}

#[tokio::test]
async fn a_settlement_whose_answer_is_lost_is_found_out() {
    let (server, moody, got) = alone(4).await;
    let client = server.client();
    (0..10).for_each(|_| moody.answer());
    moody.is_now(Mood::Lost);
    complete(&client, "q", &got[0]).await;
    let delayed = json!({ "action": "abandon", "delaySeconds": 5 });
    assert_eq!(settle(&client, "q", &got[1], delayed).await["status"], "ok");
    assert_eq!(settle(&client, "q", &got[2], json!({ "action": "deadletter" })).await["status"], "ok");
    // One that was not carried out is as before.
    moody.is_now(Mood::Away);
    let refused = settle(&client, "q", &got[3], json!({ "action": "complete" })).await;
    assert_eq!(refused["status"], "failed", "{refused}");
    moody.is_now(Mood::Well);
    complete(&client, "q", &got[3]).await;
    server.services.bus.refresh().await.unwrap();
    let counts = counts(&client, "q").await;
    let counted = ["active", "locked", "outgoing", "deadLettered", "scheduled"].map(|name| counts[name].as_u64());
    assert_eq!(counted, [0, 0, 2, 1, 1].map(Some), "{counts}");
}

#[tokio::test]
async fn a_settlement_of_which_nothing_can_be_found_out_is_unknown() {
    let (server, moody, got) = alone(2).await;
    let client = server.client();
    (0..10).for_each(|_| moody.answer());
    moody.is_now(Mood::LostAndBlind);
    let (number, token) = (&got[0]["sequenceNumber"], got[0]["lockToken"].as_str().unwrap());
    is_unknown(&client.delete(&format!("/bus/q/messages/{number}/{token}")).await);
    // Who asks again hears the same, and in a list it is not called lost either.
    is_unknown(&client.delete(&format!("/bus/q/messages/{number}/{token}")).await);
    let again = settle(&client, "q", &got[0], json!({ "action": "complete" })).await;
    assert_eq!(again["status"], "failed", "{again}");
    assert!(again["error"].as_str().unwrap().contains("not known"), "{again}");
    // A message that may be gone is not handed out again when its lock is over.
    server.clock.advance(Duration::from_secs(61));
    assert_eq!(bodies(&receive(&client, "q", 10).await), ["1"]);
}

/// Two nodes without a face, of which the first has the queue and a moody store.
async fn nodes() -> ([Node; 2], Arc<Moody>) {
    let memory = Arc::new(Memory::new(server::clock()));
    loop {
        let moody = Moody::over(memory.clone(), "m");
        let nodes = [Node::over(moody.clone()).await, Node::over(memory.clone()).await];
        settle_nodes(&nodes).await;
        if nodes[0].has_it() {
            return (nodes, moody);
        }
        // Their places in the ring are chance.
        for node in &nodes {
            node.leave().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn who_asks_again_when_it_is_known_hears_that_it_is_done() {
    let ([node, _], moody) = nodes().await;
    let line = node.line();
    node.bus.send("q", vec![message("a".to_owned()), message("b".to_owned())]).await.unwrap();
    let taken = line.receive(2, Duration::ZERO, None).await.unwrap();
    (0..2).for_each(|_| moody.answer());
    moody.is_now(Mood::LostAndBlind);
    let settled = line.settle_one(taken[0].token, Settlement::Complete).await;
    assert!(matches!(settled, Err(LineError::Unknown)), "{settled:?}");
    moody.is_now(Mood::Away);
    // By the time of this test, which passes by itself.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let settled = line.settle_one(taken[0].token, Settlement::Complete).await;
    assert!(matches!(settled, Ok(Settled::Done)), "{settled:?}");
    // It is done, and nothing else was.
    let other = line.settle_one(taken[0].token, Settlement::Defer).await;
    assert!(matches!(other, Err(LineError::LockLost)), "{other:?}");
    node.bus.refresh().await.unwrap();
    assert_eq!((line.figures().outgoing, line.figures().locked), (1, 1));
}

// The owner sleeps in the middle of a settlement, and another node has the line when it wakes.
#[tokio::test]
async fn a_settlement_of_a_line_that_was_taken_over_is_found_in_the_history() {
    let rounds = [(Mood::Lost, false, "done"), (Mood::Away, false, "elsewhere"), (Mood::Away, true, "elsewhere")];
    for (mood, received_there, expected) in rounds {
        let ([owner, other], moody) = nodes().await;
        let line = owner.line();
        owner.bus.send("q", vec![message("a".to_owned())]).await.unwrap();
        let taken = line.receive(1, Duration::ZERO, None).await.unwrap();
        moody.is_now(mood);
        let sleeps = async {
            moody.met(1).await;
            other.outlast().await;
            assert!(other.has_it());
            if received_there {
                let again = other.line().receive(1, Duration::ZERO, None).await.unwrap();
                other.line().settle_one(again[0].token, Settlement::Complete).await.unwrap();
            }
            moody.answer();
        };
        let settled = tokio::join!(line.settle_one(taken[0].token, Settlement::Complete), sleeps).0;
        match expected {
            "done" => assert!(matches!(settled, Ok(Settled::Done)), "{settled:?}"),
            _ => assert!(matches!(settled, Err(LineError::Elsewhere)), "{mood:?} {received_there}: {settled:?}"),
        }
    }
}

// Who goes away before his messages were written down as his leaves them to the next one.
#[tokio::test]
async fn a_receiver_that_goes_away_locks_nothing() {
    let clock = server::clock();
    let moody = Moody::over(Arc::new(Memory::new(clock)), "g");
    let node = Node::over(moody.clone()).await;
    node.look().await;
    node.bus.send("q", vec![message("a".to_owned())]).await.unwrap();
    let line = node.line();
    moody.is_now(Mood::Lost);
    tokio::select! {
        received = line.receive(1, Duration::ZERO, None) => panic!("{received:?}"),
        () = moody.met(1) => {}
    }
    moody.is_now(Mood::Well);
    assert_eq!(line.receive(1, Duration::ZERO, None).await.unwrap().len(), 1);
}

crate::support::on_dynamodb! {
    a_settlement_whose_node_dies_is_not_called_lost,
    a_settlement_whose_answer_is_lost_is_found_out,
}
