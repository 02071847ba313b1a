//! Opening and reading.

use reqwest::Method;
use serde_json::{Value, json};
use uuid::Uuid;

use super::{desk, id_of, look, open, problem};
use crate::support::{Answer, TestServer};

// S004-05, S004-10 to S004-12, S004-17
#[tokio::test]
async fn a_ticket_is_opened_with_the_seeds_attributes() {
    let (server, agent) = desk().await;
    let answer = agent.post("/tickets", &problem("poc-user-001")).await.expect(201);
    let ticket = answer.json();
    assert_eq!(answer.header("location"), format!("/tickets/{}", id_of(&ticket)));
    Uuid::parse_str(&id_of(&ticket)).unwrap();
    let expected = json!({
        "ticket_id": id_of(&ticket), "caller_id": "poc-user-001",
        "issue_description": "My laptop won't turn on after pressing the power button", "status": "open",
        "created_at": "2026-03-01T12:00:00.000000Z", "updated_at": "2026-03-01T12:00:00.000000Z", "comments": [],
    });
    assert_eq!(ticket, expected);
    assert_eq!(look(&agent, &ticket).await, expected);
    // S004-46: in a fixed order.
    let text = agent.get(&format!("/tickets/{}", id_of(&ticket))).await.text();
    let places: Vec<_> =
        ["ticket_id", "caller_id", "issue_description", "status", "created_at", "updated_at", "comments"]
            .map(|name| text.find(name).unwrap())
            .into();
    assert!(places.is_sorted(), "{text}");
    // S004-44: it is still there after a year.
    server.advance(365 * 24);
    look(&server.client(), &ticket).await;
}

// S004-19, S004-20
#[tokio::test]
async fn a_ticket_is_found_by_its_id_alone() {
    let (_server, agent) = desk().await;
    let ticket = open(&agent, "c").await;
    let path = format!("/tickets/{}", id_of(&ticket));
    assert_eq!(agent.get(&format!("{path}?fields=status")).await.expect(200).json(), json!({ "status": "open" }));
    let some = agent.get(&format!("{path}?fields=ticket_id,comments")).await.expect(200).json();
    assert_eq!(some, json!({ "ticket_id": id_of(&ticket), "comments": [] }));
    assert_eq!(agent.get(&format!("{path}?fields=status,x")).await.bad_fields(), ["fields"]);
    assert_eq!(agent.get(&format!("{path}?field=status")).await.bad_fields(), ["field"]);
    agent.get(&path.to_uppercase().replace("TICKETS", "tickets")).await.expect(200);
    agent.get("/tickets/33567ee8-f182-4f8a-b03e-2f1515915471").await.problem(404);
    for bad in ["7", "33567ee8-f182-4f8a-b03e-2f151591547", "33567ee8f1824f8ab03e2f1515915471", "%7B%7D"] {
        assert_eq!(agent.get(&format!("/tickets/{bad}")).await.bad_fields(), ["ticket_id"], "{bad}");
    }
}

// S004-07, S004-08, S004-18
#[tokio::test]
async fn bad_tickets_are_refused_with_every_mistake() {
    let (server, agent) = desk().await;
    for (body, fields) in [
        (json!({}), vec!["caller_id", "issue_description"]),
        (json!({ "caller_id": " ", "issue_description": " \n" }), vec!["caller_id", "issue_description"]),
        (json!({ "caller_id": 7, "issue_description": ["x"] }), vec!["caller_id", "issue_description"]),
        (json!({ "caller_id": "c", "issue_description": null }), vec!["issue_description"]),
        (json!({ "caller_id": "c", "issue_description": "x".repeat(10_001) }), vec!["issue_description"]),
        (json!({ "caller_id": "x".repeat(257), "issue_description": "x" }), vec!["caller_id"]),
        (
            json!({ "caller_id": "c", "issue_description": "x", "ticket_id": "7", "status": "open",
                "created_at": "2026-02-09T12:20:25Z", "updated_at": null, "comments": [] }),
            vec!["ticket_id", "status", "created_at", "updated_at", "comments"],
        ),
    ] {
        assert_eq!(agent.post("/tickets", &body).await.bad_fields(), fields, "{body}");
    }
    agent.post("/tickets", &json!([])).await.problem(400);
    agent.post_as("/tickets", "application/json", "{\"caller_id\":").await.problem(400);
    agent.post_as("/tickets", "text/plain", "hello").await.problem(415);
    assert_eq!(server.client().stored().await, [""; 0], "nothing happened");
    let longest = json!({ "caller_id": "c", "issue_description": "é".repeat(10_000), "unknown": { "kept": false } });
    let ticket = agent.post("/tickets", &longest).await.expect(201).json();
    assert_eq!(ticket.get("unknown"), None);
}

// S004-35: create, read, comment and list, and nothing else.
#[tokio::test]
async fn the_agents_scope_allows_the_four_calls_and_nothing_else() {
    let (server, agent) = desk().await;
    let ticket = open(&agent, "c").await;
    let described = server.client().get("/openapi.json").await.expect(200).json();
    let mut allowed = Vec::new();
    for (path, methods) in described["paths"].as_object().unwrap() {
        let concrete = path.replace("{ticket_id}", &id_of(&ticket)).replace(['{', '}'], "");
        for method in methods.as_object().unwrap().keys() {
            let method: Method = method.to_uppercase().parse().unwrap();
            let answer = Answer::to(agent.request(method.clone(), &concrete)).await;
            if answer.status != 403 {
                allowed.push(format!("{method} {path}"));
            }
        }
    }
    allowed.retain(|call| !["GET /healthz", "GET /readyz"].contains(&call.as_str()));
    allowed.sort();
    assert_eq!(
        allowed,
        ["GET /tickets", "GET /tickets/{ticket_id}", "POST /tickets", "POST /tickets/{ticket_id}/comments"]
    );
    // S004-48
    server.stranger().get(&format!("/tickets/{}", id_of(&ticket))).await.problem(401);
    let ingest = server.client_for(&["ingest"]).await;
    ingest.get(&format!("/tickets/{}", id_of(&ticket))).await.problem(403);
    server.client_for(&["read"]).await.get("/tickets?caller=c").await.expect(200);
}

// SX-09, S004-05: the key makes the ticket, a client's id does not.
#[tokio::test]
async fn a_key_opens_one_ticket_and_adds_one_comment() {
    let (server, agent) = desk().await;
    let headers = [("content-type", "application/json"), ("idempotency-key", "call-7")];
    let first = agent.post_with("/tickets", &headers, problem("c").to_string()).await.expect(201);
    let again = agent.post_with("/tickets", &headers, problem("c").to_string()).await.expect(201);
    assert_eq!((first.json(), first.header("location")), (again.json(), again.header("location")));
    agent.post_with("/tickets", &headers, problem("d").to_string()).await.problem(422);
    let path = format!("/tickets/{}/comments", id_of(&first.json()));
    for _ in 0..2 {
        let body = json!({ "comment_text": "Tried restarting" }).to_string();
        let answer = agent.post_with(&path, &headers, body).await.expect(201).json();
        assert_eq!(answer["comments"].as_array().unwrap().len(), 1);
    }
    let listed = agent.get("/tickets?caller=c").await.expect(200).json();
    assert_eq!(listed["tickets"].as_array().unwrap().len(), 1);
    assert_eq!(server.client().stored().await.len(), 2);
}

// S004-02
#[tokio::test]
async fn production_does_not_mix_with_a_trial() {
    let prod = |in_prod| {
        TestServer::start_with(move |config| {
            config.stage = tidings::config::Stage::Prod;
            config.tickets.in_prod = in_prod;
        })
    };
    let server = prod(false).await;
    let refused = server.client().post("/tickets", &problem("c")).await.problem(409);
    assert!(refused["detail"].as_str().unwrap().contains("tickets.in_prod"), "{refused}");
    let server = prod(true).await;
    open(&server.client(), "c").await;
}

// S004-01: a ticket survives a restart, and so does the hash of its caller.
#[tokio::test]
async fn tickets_survive_a_restart() {
    let server = TestServer::start().await;
    let ticket: Value = open(&server.client(), "+49 170 1234567").await;
    let server = server.restart().await;
    assert_eq!(look(&server.client(), &ticket).await, ticket);
    let listed = server.client().get("/tickets?caller=%2B491701234567").await.expect(200).json();
    assert_eq!(listed["tickets"], json!([ticket]));
}

crate::support::on_dynamodb! {
    a_ticket_is_opened_with_the_seeds_attributes,
    a_ticket_is_found_by_its_id_alone,
    bad_tickets_are_refused_with_every_mistake,
    a_key_opens_one_ticket_and_adds_one_comment,
    production_does_not_mix_with_a_trial,
}
