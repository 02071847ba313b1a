//! Tickets from elsewhere.

use serde_json::{Value, json};

use super::{comment, desk, look, open, texts};

/// The seed's two samples.
fn samples() -> [Value; 2] {
    [
        json!({
            "ticket_id": "33567ee8-f182-4f8a-b03e-2f1515915471", "caller_id": "poc-user-001",
            "issue_description": "My laptop won't turn on after pressing the power button", "status": "open",
            "created_at": "2026-02-09T12:20:25.343883Z", "updated_at": "2026-02-09T12:20:25.343883Z", "comments": [],
        }),
        json!({
            "ticket_id": "1d8d2fe2-4543-4e6d-aad0-9deed9d57070", "caller_id": "poc-user-001",
            "issue_description": "Email not working in Outlook", "status": "open",
            "created_at": "2026-02-09T12:32:57.917604Z", "updated_at": "2026-02-09T12:35:00.123456Z",
            "comments": [
                { "comment_text": "Tried restarting Outlook but still not working", "added_at": "2026-02-09T12:35:00.123456Z" },
                { "comment_text": "Checked internet connection - it's working fine", "added_at": "2026-02-09T12:36:30.789012Z" },
            ],
        }),
    ]
}

// S004-31, S004-25
#[tokio::test]
async fn the_seeds_samples_round_trip() {
    let (server, agent) = desk().await;
    let client = server.client();
    let body = json!({ "tickets": samples() });
    let answer = client.post("/admin/tickets/import", &body).await.expect(200).json();
    assert_eq!(answer, json!({ "imported": 2, "existing": [] }));
    let [first, mut second] = samples();
    // The seed's own is older than its last comment.
    second["updated_at"] = "2026-02-09T12:36:30.789012Z".into();
    assert_eq!(look(&agent, &first).await, first);
    assert_eq!(look(&agent, &second).await, second);
    let listed = agent.get("/tickets?caller=poc-user-001").await.expect(200).json();
    assert_eq!(listed["tickets"], json!([second, first]));
    let commented = comment(&agent, &second, "more").await;
    assert_eq!(texts(&commented).len(), 3);
    // Again, it changes nothing.
    let again = client.post("/admin/tickets/import", &body).await.expect(200).json();
    assert_eq!((&again["imported"], again["existing"].as_array().unwrap().len()), (&json!(0), 2));
    assert_eq!(look(&agent, &second).await, commented);
    let log = client.get("/audit-log?action=ticket.import").await.expect(200).json();
    assert_eq!(log["items"].as_array().unwrap().len(), 1);
    agent.post("/admin/tickets/import", &body).await.problem(403);
}

// S004-32, S004-26
#[tokio::test]
async fn dynamodbs_typed_form_is_understood() {
    let (server, agent) = desk().await;
    let typed = json!({
        "ticket_id": { "S": "33567ee8-f182-4f8a-b03e-2f1515915471" }, "caller_id": { "S": "poc-user-001" },
        "issue_description": { "S": "My laptop won't turn on" }, "status": { "S": "open" },
        "created_at": { "S": "2026-02-09T12:20:25.343883Z" }, "updated_at": { "S": "2026-02-09T12:20:25.343883Z" },
        "comments": { "L": [{ "M": { "comment_text": { "S": "Tried restarting" }, "added_at": { "S": "2026-02-09T12:30:00Z" } } }] },
    });
    server.client().post("/admin/tickets/import", &json!({ "tickets": [typed] })).await.expect(200);
    let ticket = look(&agent, &samples()[0]).await;
    assert_eq!(texts(&ticket), ["Tried restarting"]);
    assert_eq!(ticket["updated_at"], "2026-02-09T12:30:00.000000Z");
}

#[tokio::test]
async fn a_bad_import_changes_nothing() {
    let (server, agent) = desk().await;
    let client = server.client();
    let [good, mut bad] = samples();
    bad["ticket_id"] = "7".into();
    bad["status"] = "done".into();
    bad["comments"][1]["added_at"] = "yesterday".into();
    let answer = client.post("/admin/tickets/import", &json!({ "tickets": [good, bad, 7] })).await;
    assert_eq!(
        answer.bad_fields(),
        ["tickets[1].ticket_id", "tickets[1].status", "tickets[1].comments[1].added_at", "tickets[2]"]
    );
    agent.get("/tickets/33567ee8-f182-4f8a-b03e-2f1515915471").await.problem(404);
    let many: Vec<Value> = (0..51)
        .map(|n| {
            let mut ticket = samples()[0].clone();
            ticket["ticket_id"] = uuid::Uuid::from_u128(n).to_string().into();
            ticket
        })
        .collect();
    assert_eq!(client.post("/admin/tickets/import", &json!({ "tickets": many })).await.bad_fields(), ["tickets"]);
    assert_eq!(client.post("/admin/tickets/import", &json!({ "tickets": [] })).await.bad_fields(), ["tickets"]);
    client.post("/admin/tickets/import", &json!({ "tickets": many[..50] })).await.expect(200);
    open(&agent, "poc-user-001").await;
    let listed = agent.get("/tickets?caller=poc-user-001&limit=100").await.expect(200).json();
    assert_eq!(listed["tickets"].as_array().unwrap().len(), 51);
}
