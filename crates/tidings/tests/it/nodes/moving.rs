//! A line that is to move to another node while somebody has one of its messages for long.

use std::sync::Arc;
use std::time::Duration;

use tidings::bus::definition::{Definition, Kind};
use tidings::bus::entity::Origin;
use tidings::bus::settle::Settlement;
use tidings::bus::{Path, Where};
use tidings_store::memory::Memory;
use tokio::time::timeout;

use super::moody::{Mood, Moody};
use super::pauses::{LEASE, Node, message, settle};
use crate::support::server;

/// A line hands out within this, or does not.
const PROMPT: Duration = Duration::from_secs(20);

/// Two nodes; the second has the queue because the first was away, and the first is back.
async fn nodes() -> [Node; 2] {
    let store = Arc::new(Memory::new(server::clock()));
    let mut nodes = [Node::over(store.clone()).await, Node::over(store).await];
    settle(&nodes).await;
    if !nodes[0].has_it() {
        nodes.swap(0, 1);
    }
    nodes[1].outlast().await;
    assert!(nodes[1].has_it());
    nodes
}

async fn pass(nodes: &[Node; 2], times: usize) {
    for _ in 0..times {
        for node in nodes {
            node.clock.advance(LEASE / 4);
            node.look().await;
        }
    }
}

// The queue must not stand still until the lock is over.
#[tokio::test]
async fn a_slow_receiver_does_not_stop_a_line_that_is_to_move() {
    let nodes = nodes().await;
    let [back, has] = &nodes;
    for id in ["slow", "a", "b", "c"] {
        has.bus.send("q", vec![message(id.to_owned())]).await.unwrap();
    }
    let line = has.line();
    let slow = line.receive(1, Duration::ZERO, None).await.unwrap();
    // The other one is back, and should have the queue.
    back.clock.advance(LEASE * 2);
    back.look().await;
    has.look().await;
    // For a moment nothing is handed out; who asks hears so, and who waits is told when it goes on.
    let none = timeout(PROMPT, line.receive(1, Duration::ZERO, None)).await.expect("an answer").unwrap();
    assert_eq!(none.len(), 0);
    let waits = timeout(PROMPT, line.receive(1, PROMPT, None));
    let (waited, ()) = tokio::join!(waits, pass(&nodes, 1));
    let waited = waited.expect("it goes on").unwrap();
    assert_eq!(waited[0].held.message.message.id, "a");
    assert!(has.has_it());
    // The slow one renews for as long as it likes, and everybody else has what he wants.
    let next = timeout(PROMPT, line.receive(1, Duration::ZERO, None)).await.expect("an answer").unwrap();
    line.settle_one(waited[0].token, Settlement::Complete).await.unwrap();
    line.settle_one(next[0].token, Settlement::Complete).await.unwrap();
    line.settle_one(slow[0].token, Settlement::Complete).await.unwrap();
    // Later, with no lock out, it moves, and nothing is lost with that.
    pass(&nodes, 14).await;
    assert!(back.has_it() && !has.has_it());
    let last = timeout(PROMPT, back.line().receive(5, Duration::ZERO, None)).await.expect("an answer").unwrap();
    let ids: Vec<&str> = last.iter().map(|taken| taken.held.message.message.id.as_str()).collect();
    assert_eq!(ids, ["c"]);
}

// Nobody waits longer than the last lock lasts.
#[tokio::test]
async fn a_line_moves_as_soon_as_its_last_lock_is_over() {
    let nodes = nodes().await;
    let [back, has] = &nodes;
    has.bus.send("q", vec![message("a".to_owned()), message("b".to_owned())]).await.unwrap();
    let line = has.line();
    let held = line.receive(1, Duration::ZERO, None).await.unwrap();
    back.clock.advance(LEASE * 2);
    back.look().await;
    has.look().await;
    assert!(has.has_it());
    let looks = has.doubts();
    line.settle_one(held[0].token, Settlement::Complete).await.unwrap();
    timeout(PROMPT, looks).await.expect("it is time to look");
    has.look().await;
    back.look().await;
    assert!(back.has_it() && !has.has_it());
    assert_eq!(back.line().receive(5, Duration::ZERO, None).await.unwrap().len(), 1);
}

/// Two nodes, the second with a moody store; the first has both queues.
async fn both() -> ([Node; 2], Arc<Moody>) {
    loop {
        let store = Arc::new(Memory::new(server::clock()));
        let moody = Moody::over(store.clone(), "m");
        let nodes = [Node::over(store).await, Node::over(moody.clone()).await];
        let queue = |name| (Path::queue(name), Definition::new(Kind::Queue), Origin::File);
        nodes[0].bus.declare(&[queue("q"), queue("p")]).await.unwrap();
        settle(&nodes).await;
        let [q, p] = ["q", "p"].map(|name| nodes[0].bus.line(&Path::queue(name)).unwrap());
        // Which go where is chance, and which is taken first.
        if q.is_ours() && p.is_ours() && q.entity < p.entity {
            return (nodes, moody);
        }
    }
}

// Its place is given out before the line is let go of, or not at all.
#[tokio::test]
async fn what_is_sent_in_the_moment_a_line_moves_is_not_passed_over() {
    let (nodes, moody) = both().await;
    let [back, has] = &nodes;
    for _ in 0..3 {
        has.clock.advance(LEASE / 4);
        has.look().await;
    }
    // The first is taken for dead. The second has one of its queues, and is still at the other when the first is back.
    has.clock.advance(LEASE / 2);
    moody.is_now(Mood::Slow);
    moody.answer();
    let returns = async {
        moody.met(2).await;
        assert!(has.has_it());
        back.clock.advance(LEASE * 2);
        back.look().await;
        let sends = async {
            has.bus.send("q", vec![message("late".to_owned())]).await.unwrap();
            moody.answer();
        };
        tokio::join!(has.look(), sends);
    };
    tokio::join!(has.look(), returns);
    settle(&nodes).await;
    assert!(back.has_it() && !has.has_it());
    back.bus.send("q", vec![message("later".to_owned())]).await.unwrap();
    back.bus.collect_posts().await.unwrap();
    let taken = back.line().receive(5, Duration::ZERO, None).await.unwrap();
    let ids: Vec<&str> = taken.iter().map(|taken| taken.held.message.message.id.as_str()).collect();
    assert_eq!(ids, ["late", "later"]);
}

// A look that is under way while a line is taken read how it was before: that is no reason to give the line up.
#[tokio::test]
async fn a_line_that_is_taken_during_a_look_stays() {
    let moody = Moody::over(Arc::new(Memory::new(server::clock())), "m");
    let node = Node::over(moody.clone()).await;
    node.bus.release_all().await;
    assert!(!node.has_it());
    moody.is_now(Mood::Late);
    let takes = async {
        // The nodes, and then their leases.
        moody.answer();
        moody.met(2).await;
        assert_eq!(node.bus.whereabouts(&Path::queue("q")).await.unwrap(), Where::Here);
        node.bus.send("q", vec![message("a".to_owned())]).await.unwrap();
        let taken = node.line().receive(1, Duration::ZERO, None).await.unwrap();
        moody.answer();
        taken
    };
    let taken = tokio::join!(node.look(), takes).1;
    assert!(node.has_it());
    node.line().settle_one(taken[0].token, Settlement::Complete).await.unwrap();
}
