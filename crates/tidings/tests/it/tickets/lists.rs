//! A caller's tickets.

use serde_json::{Value, json};

use super::{desk, id_of, open};
use crate::support::Client;

fn ids(list: &Value) -> Vec<String> {
    list["tickets"].as_array().unwrap().iter().map(id_of).collect()
}

async fn list(agent: &Client, query: &str) -> Value {
    agent.get(&format!("/tickets?{query}")).await.expect(200).json()
}

// S004-16, S004-27, S004-28
#[tokio::test]
async fn a_callers_tickets_come_newest_first() {
    let (server, agent) = desk().await;
    let mut made = Vec::new();
    for _ in 0..25 {
        made.push(id_of(&open(&agent, "poc-user-001").await));
        open(&agent, "somebody-else").await;
        server.advance(1);
    }
    made.reverse();
    assert_eq!(ids(&list(&agent, "caller=poc-user-001").await), made[..10]);
    assert_eq!(ids(&list(&agent, "caller=poc-user-001&limit=1").await), made[..1]);
    let all = list(&agent, "caller=poc-user-001&limit=100").await;
    assert_eq!((ids(&all), &all["cursor"]), (made.clone(), &Value::Null));
    // Page by page, while new ones arrive.
    let mut seen = Vec::new();
    let mut cursor = String::new();
    loop {
        let page = list(&agent, &format!("caller=poc-user-001&limit=7{cursor}")).await;
        seen.extend(ids(&page));
        open(&agent, "poc-user-001").await;
        match page["cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(seen, made);
}

// S004-28, S004-29, S004-30
#[tokio::test]
async fn bad_questions_are_refused() {
    let (_server, agent) = desk().await;
    let ticket = open(&agent, "c").await;
    assert_eq!(list(&agent, "caller=nobody").await, json!({ "tickets": [], "cursor": null }));
    assert_eq!(ids(&list(&agent, "caller_id=c").await), [id_of(&ticket)]);
    assert_eq!(ids(&list(&agent, "caller_id=c&caller=c").await), [id_of(&ticket)]);
    for (query, fields) in [
        ("", vec!["caller"]),
        ("caller=", vec!["caller"]),
        ("caller=%20", vec!["caller"]),
        ("caller=c&caller_id=d", vec!["caller_id"]),
        ("caller=c&limit=0", vec!["limit"]),
        ("caller=c&limit=101", vec!["limit"]),
        ("limit=x", vec!["caller", "limit"]),
        ("caller=c&status=open", vec!["status"]),
        ("caller=c&cursor=zz", vec!["cursor"]),
    ] {
        assert_eq!(agent.get(&format!("/tickets?{query}")).await.bad_fields(), fields, "{query}");
    }
    agent.get("/tickets?caller=c&limit=100").await.expect(200);
}

#[tokio::test]
async fn a_cursor_belongs_to_its_caller() {
    let (_server, agent) = desk().await;
    for caller in ["c", "c", "d", "d"] {
        open(&agent, caller).await;
    }
    let page = list(&agent, "caller=c&limit=1").await;
    let cursor = page["cursor"].as_str().unwrap();
    assert_eq!(agent.get(&format!("/tickets?caller=d&cursor={cursor}")).await.bad_fields(), ["cursor"]);
}

// S004-46
#[tokio::test]
async fn a_page_of_large_tickets_is_shorter() {
    let (server, agent) = desk().await;
    let mut made = Vec::new();
    for _ in 0..12 {
        let body = json!({ "caller_id": "c", "issue_description": "x".repeat(10_000) });
        made.push(id_of(&agent.post("/tickets", &body).await.expect(201).json()));
        server.advance(1);
    }
    made.reverse();
    let first = agent.get("/tickets?caller=c&limit=12").await.expect(200);
    assert!(first.body.len() < 64 * 1024, "{}", first.body.len());
    let cursor = first.json()["cursor"].as_str().unwrap().to_owned();
    let rest = list(&agent, &format!("caller=c&limit=12&cursor={cursor}")).await;
    let rest_more = rest["cursor"].as_str().map(|cursor| format!("caller=c&limit=12&cursor={cursor}"));
    let mut seen = [ids(&first.json()), ids(&rest)].concat();
    if let Some(query) = rest_more {
        seen.extend(ids(&list(&agent, &query).await));
    }
    assert_eq!(seen, made);
}

crate::support::on_dynamodb! {
    a_callers_tickets_come_newest_first,
}
