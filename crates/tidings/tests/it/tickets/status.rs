//! Those who work on tickets.

use serde_json::json;

use super::{comment, desk, id_of, look, open};

// S004-09
#[tokio::test]
async fn a_ticket_moves_through_its_states() {
    let (server, agent) = desk().await;
    let operator = server.client_for(&["operate"]).await;
    let ticket = open(&agent, "c").await;
    let path = format!("/tickets/{}", id_of(&ticket));
    agent.patch(&path, &json!({ "status": "closed" })).await.problem(403);
    for (next, status) in [
        ("resolved", 409),
        ("open", 200),
        ("in_progress", 200),
        ("open", 409),
        ("resolved", 200),
        ("open", 200),
        ("in_progress", 200),
        ("resolved", 200),
        ("closed", 200),
        ("closed", 200),
        ("open", 409),
        ("in_progress", 409),
    ] {
        server.advance(1);
        let answer = operator.patch(&path, &json!({ "status": next })).await;
        assert_eq!(answer.status, status, "{next}: {}", answer.text());
        if status == 200 {
            assert_eq!((answer.json()["status"].as_str(), look(&agent, &ticket).await), (Some(next), answer.json()));
        } else {
            answer.problem(409);
        }
    }
    // The same status again is no event; every move is one, and in the audit log.
    let events = server.client().get("/events?type=ticket.status_changed").await.expect(200).json();
    let moves: Vec<_> =
        events["items"].as_array().unwrap().iter().map(|event| event["data"]["new_status"].as_str()).collect();
    assert_eq!(moves.len(), 6, "{moves:?}");
    let log = server.client().get("/audit-log?action=ticket.status").await.expect(200).json();
    assert_eq!(log["items"].as_array().unwrap().len(), 6);
    assert_eq!(log["items"][0]["entityId"], id_of(&ticket));
    assert_eq!(log["items"][0]["details"], json!({ "from": "resolved", "to": "closed" }));
    assert_eq!(server.client().get("/audit-log/verify").await.expect(200).json()["ok"], true);
    for (body, fields) in
        [(json!({}), ["status"]), (json!({ "status": "done" }), ["status"]), (json!({ "status": 1 }), ["status"])]
    {
        assert_eq!(operator.patch(&path, &body).await.bad_fields(), fields);
    }
    operator.patch("/tickets/33567ee8-f182-4f8a-b03e-2f1515915471", &json!({ "status": "open" })).await.problem(404);
    operator.patch("/tickets/7", &json!({ "status": "open" })).await.problem(400);
}

// S004-44
#[tokio::test]
async fn a_closed_ticket_is_kept_for_90_days() {
    let (server, agent) = desk().await;
    let (closed, kept) = (open(&agent, "c").await, open(&agent, "c").await);
    let path = format!("/tickets/{}", id_of(&closed));
    server.client().patch(&path, &json!({ "status": "closed" })).await.expect(200);
    server.advance(90 * 24 - 1);
    comment(&server.client(), &closed, "still here").await;
    server.advance(1);
    server.client().get(&path).await.problem(404);
    let listed = server.client().get("/tickets?caller=c").await.expect(200).json();
    assert_eq!(listed["tickets"], json!([kept]));
}

crate::support::on_dynamodb! {
    a_ticket_moves_through_its_states,
}
