//! Comments: at the end, in order, none lost.

use std::sync::Arc;

use serde_json::{Value, json};
use tidings_store::faults::{Faulty, Moment};
use tidings_store::memory::Memory;
use tidings_store::{Item, Write};

use super::{comment, desk, id_of, look, open, texts};
use crate::support::{Client, TestServer, server};

// S004-13 to S004-15, S004-21
#[tokio::test]
async fn a_comment_goes_to_the_end_and_moves_updated_at() {
    let (server, agent) = desk().await;
    let ticket = open(&agent, "c").await;
    server.advance(1);
    comment(&agent, &ticket, "Tried restarting Outlook but still not working").await;
    server.advance(1);
    let ticket = comment(&agent, &ticket, "Checked internet connection - it's working fine").await;
    assert_eq!(texts(&ticket).len(), 2);
    assert_eq!(ticket["comments"][0]["added_at"], "2026-03-01T13:00:00.000000Z");
    assert_eq!(ticket["comments"][1]["added_at"], "2026-03-01T14:00:00.000000Z");
    assert_eq!(ticket["updated_at"], ticket["comments"][1]["added_at"]);
    assert_eq!(ticket["created_at"], "2026-03-01T12:00:00.000000Z");
    assert!(ticket["comments"][0]["author"].as_str().unwrap().starts_with("token:"), "{ticket}");
    assert_eq!(look(&agent, &ticket).await, ticket);
}

// S004-20, S004-23: an unknown ticket stays unknown.
#[tokio::test]
async fn a_comment_makes_no_ghost() {
    let (server, agent) = desk().await;
    let unknown = json!({ "ticket_id": "33567ee8-f182-4f8a-b03e-2f1515915471" });
    let path = format!("/tickets/{}/comments", id_of(&unknown));
    agent.post(&path, &json!({ "comment_text": "hello?" })).await.problem(404);
    agent.get(&format!("/tickets/{}", id_of(&unknown))).await.problem(404);
    assert_eq!(server.client().stored().await, [""; 0]);
    agent.post("/tickets/x/comments", &json!({ "comment_text": "x" })).await.problem(400);
    // What somebody else's bare update left in the table is no ticket either.
    let ghost = Item::new().with("ticket_id", id_of(&unknown)).with("updated_at", "2026-03-01T12:00:00.000000Z");
    server.services.store.transact(vec![Write::put(tidings::tickets::table(), ghost)]).await.unwrap();
    agent.get(&format!("/tickets/{}", id_of(&unknown))).await.problem(404);
    agent.post(&path, &json!({ "comment_text": "hello?" })).await.problem(404);
}

#[tokio::test]
async fn bad_comments_are_refused() {
    let (_server, agent) = desk().await;
    let ticket = open(&agent, "c").await;
    let path = format!("/tickets/{}/comments", id_of(&ticket));
    for (body, fields) in [
        (json!({}), vec!["comment_text"]),
        (json!({ "comment_text": "  " }), vec!["comment_text"]),
        (json!({ "comment_text": 1, "added_at": "x" }), vec!["added_at", "comment_text"]),
        (json!({ "comment_text": "x".repeat(4001) }), vec!["comment_text"]),
    ] {
        assert_eq!(agent.post(&path, &body).await.bad_fields(), fields, "{body}");
    }
    // The path is judged with the body.
    let both = agent.post("/tickets/zz/comments", &json!({ "comment_text": "" })).await;
    assert_eq!(both.bad_fields(), ["ticket_id", "comment_text"]);
    assert_eq!(look(&agent, &ticket).await, ticket);
    comment(&agent, &ticket, &"x".repeat(4000)).await;
    comment(&agent, &ticket, &"x".repeat(3999)).await;
}

// S004-24
#[tokio::test(flavor = "multi_thread")]
async fn comments_at_the_same_time_all_survive() {
    let (server, agent) = desk().await;
    let ticket = open(&agent, "c").await;
    let one = |agent: Client, ticket: Value, writer: usize| async move {
        for turn in 0..5 {
            comment(&agent, &ticket, &format!("{writer} {turn}")).await;
        }
    };
    let writers: Vec<_> = (0..20).map(|writer| tokio::spawn(one(agent.clone(), ticket.clone(), writer))).collect();
    for turn in 0..50 {
        // The clock moves while they write, also backward.
        let at = if turn % 7 == 3 { "2026-03-01T11:00:00Z" } else { "2026-03-01T12:00:30Z" };
        server.clock.jump_to(at.parse().unwrap());
        tokio::task::yield_now().await;
    }
    for writer in writers {
        writer.await.unwrap();
    }
    let ticket = look(&agent, &ticket).await;
    let texts = texts(&ticket);
    assert_eq!(texts.len(), 100);
    for writer in 0..20 {
        let own: Vec<_> = texts.iter().filter(|text| text.starts_with(&format!("{writer} "))).collect();
        assert_eq!(own, (0..5).map(|turn| format!("{writer} {turn}")).collect::<Vec<_>>().iter().collect::<Vec<_>>());
    }
    let times: Vec<_> =
        ticket["comments"].as_array().unwrap().iter().map(|comment| comment["added_at"].as_str().unwrap()).collect();
    assert!(times.is_sorted(), "{times:?}");
    // S004-25
    assert_eq!(ticket["updated_at"].as_str(), times.last().copied());
}

// S004-25: whatever the clock does.
#[tokio::test]
async fn updated_at_is_never_before_the_last_comment() {
    let (server, agent) = desk().await;
    let ticket = open(&agent, "c").await;
    server.clock.jump_to("2026-02-01T00:00:00Z".parse().unwrap());
    let ticket = comment(&agent, &ticket, "the clock was set back").await;
    assert_eq!(ticket["updated_at"], "2026-03-01T12:00:00.000000Z");
    assert_eq!(ticket["comments"][0]["added_at"], "2026-03-01T12:00:00.000000Z");
}

// S004-43
#[tokio::test]
async fn a_full_ticket_says_so_and_loses_nothing() {
    let (server, agent) = desk().await;
    let ticket = open(&agent, "c").await;
    let path = format!("/tickets/{}/comments", id_of(&ticket));
    let text = "€".repeat(4000);
    let mut added = 0;
    let full = loop {
        let answer = agent.post(&path, &json!({ "comment_text": text })).await;
        if answer.status != 201 {
            break answer;
        }
        added += 1;
    };
    assert!(full.problem(409)["detail"].as_str().unwrap().contains("400 KB"));
    assert_eq!(added, 400 * 1024 / (12_000 + 100));
    assert_eq!(texts(&look(&agent, &ticket).await).len(), added);
    comment(&agent, &ticket, "a short one still fits").await;
    assert_eq!(server.client().stored().await.len(), added + 2);
}

// S004-24, S004-43: several see room for one more; it is one that gets it, and the others hear why they do not.
#[tokio::test(flavor = "multi_thread")]
async fn a_ticket_that_others_fill_meanwhile_says_so() {
    let clock = server::clock();
    let store = Arc::new(Faulty::new(Arc::new(Memory::new(clock.clone()))));
    let server = TestServer::over(store.clone(), clock).await;
    let agent = server.client_for(&["tickets"]).await;
    let ticket = open(&agent, "c").await;
    let (path, text) = (format!("/tickets/{}/comments", id_of(&ticket)), "\u{20ac}".repeat(4000));
    let most = 400 * 1024 / (12_000 + 100);
    for _ in 1..most {
        comment(&agent, &ticket, &text).await;
    }
    let gate = store.hold(Moment::Before);
    let writers: Vec<_> = (0..4)
        .map(|_| {
            let (agent, path, body) = (agent.clone(), path.clone(), json!({ "comment_text": text }));
            tokio::spawn(async move { agent.post(&path, &body).await })
        })
        .collect();
    gate.arrived(4).await;
    gate.open();
    let mut answers = Vec::new();
    for writer in writers {
        let answer = writer.await.unwrap();
        if answer.status != 201 {
            assert!(answer.problem(409)["detail"].as_str().unwrap().contains("400 KB"));
        }
        answers.push(answer.status);
    }
    answers.sort_unstable();
    assert_eq!(answers, [201, 409, 409, 409]);
    assert_eq!(texts(&look(&agent, &ticket).await).len(), most);
}

crate::support::on_dynamodb! {
    a_comment_goes_to_the_end_and_moves_updated_at,
    bad_comments_are_refused,
}
