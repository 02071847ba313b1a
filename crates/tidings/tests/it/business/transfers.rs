//! EVT_003 the whole way: a transfer that nobody answers expires after 72 hours, and one that is answered never does.

use serde_json::{Value, json};

use super::{post, until};
use crate::support::{Client, TestServer};

const PRODUCT: &str = "7c9e6679-7425-40de-944b-e07fc1f90ae7";
const FROM: &str = "550e8400-e29b-41d4-a716-446655440000";
const TO: &str = "33567ee8-f182-4f8a-b03e-2f1515915471";

fn body() -> Value {
    json!({ "productId": PRODUCT, "fromUserId": FROM, "toUserId": TO })
}

async fn make(client: &Client) -> Value {
    post(client, "/transfers", "tr-1", &body()).await.expect(201).json()
}

fn path(transfer: &Value) -> String {
    format!("/transfers/{}", transfer["transferRequestId"].as_str().unwrap())
}

async fn scheduled(client: &Client) -> usize {
    let seen = client.get("/bus/transfer-expiration-queue/peek?state=scheduled").await.expect(200).json();
    seen["messages"].as_array().or(seen["items"].as_array()).unwrap().len()
}

/// The clock goes on, and the bus takes note of it.
async fn pass(server: &TestServer, hours: u64) {
    server.advance(hours);
    server.services.bus.settle_time().await.unwrap();
}

// S003-29, S003-36, S003-40
#[tokio::test(flavor = "multi_thread")]
async fn a_transfer_expires_after_72_hours() {
    let server = TestServer::start().await;
    let client = server.client();
    let transfer = make(&client).await;
    assert_eq!(
        (&transfer["status"], &transfer["expiresAt"]),
        (&json!("pending"), &json!("2026-03-04T12:00:00.000000Z"))
    );
    assert_eq!(scheduled(&client).await, 1);
    pass(&server, 71).await;
    assert_eq!(client.get(&path(&transfer)).await.expect(200).json(), transfer);
    pass(&server, 1).await;
    let expired = until(&server, &path(&transfer), |transfer| transfer["status"] == "expired").await;
    assert_eq!(expired["updatedAt"], "2026-03-04T12:00:00.000000Z");
    let events = client.get("/events?type=transfer.expired").await.expect(200).json();
    assert_eq!(events["items"].as_array().unwrap().len(), 1);
    assert_eq!(events["items"][0]["correlationId"], "tr-1");
    for answer in ["accept", "reject", "cancel"] {
        client.post(&format!("{}/{answer}", path(&transfer)), &json!({})).await.problem(409);
    }
}

// S003-30: accept, reject and cancel withdraw the message.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_withdraws_the_expiry_for_good() {
    let server = TestServer::start().await;
    let client = server.client();
    let mut transfers = Vec::new();
    for (answer, status) in [("accept", "accepted"), ("reject", "rejected"), ("cancel", "cancelled")] {
        let transfer = make(&client).await;
        let answered = client.post(&format!("{}/{answer}", path(&transfer)), &json!({})).await.expect(200).json();
        assert_eq!(answered["status"], status);
        // The same again changes nothing; another answer is too late.
        client.post(&format!("{}/{answer}", path(&transfer)), &json!({})).await.expect(200);
        let other = if answer == "accept" { "reject" } else { "accept" };
        client.post(&format!("{}/{other}", path(&transfer)), &json!({})).await.problem(409);
        transfers.push(answered);
    }
    assert_eq!(scheduled(&client).await, 0);
    pass(&server, 100).await;
    // One that is delivered all the same changes nothing: the handler looks at the state again.
    for transfer in &transfers {
        let event = json!({ "eventType": "OwnershipTransferExpired", "data": { "transferRequestId": transfer["transferRequestId"] } });
        client.send(&event).await;
    }
    until(&server, "/bus/transfer-expiration-queue", |seen| {
        seen["counts"]["active"] == 0 && seen["counts"]["locked"] == 0
    })
    .await;
    for transfer in &transfers {
        assert_eq!(&client.get(&path(transfer)).await.expect(200).json(), transfer);
    }
}

// S003-40: restart and clock jumps in between change nothing.
#[tokio::test(flavor = "multi_thread")]
async fn the_expiry_survives_a_restart_and_a_jumping_clock() {
    let server = TestServer::start().await;
    let transfer = make(&server.client()).await;
    server.clock.jump_to("2026-02-01T00:00:00Z".parse().unwrap());
    server.services.bus.settle_time().await.unwrap();
    let server = server.restart().await;
    server.clock.jump_to("2026-03-04T11:59:59Z".parse().unwrap());
    server.services.bus.settle_time().await.unwrap();
    assert_eq!(server.client().get(&path(&transfer)).await.expect(200).json()["status"], "pending");
    server.clock.jump_to("2026-03-04T12:00:00Z".parse().unwrap());
    server.services.bus.settle_time().await.unwrap();
    until(&server, &path(&transfer), |transfer| transfer["status"] == "expired").await;
}

#[tokio::test]
async fn the_time_can_be_configured_and_bad_transfers_are_refused() {
    let server = TestServer::start_with(|config| config.transfers.expire_seconds = 60).await;
    let client = server.client();
    let transfer = make(&client).await;
    assert_eq!(transfer["expiresAt"], "2026-03-01T12:01:00.000000Z");
    for (body, fields) in [
        (json!({}), vec!["productId", "fromUserId", "toUserId"]),
        (json!({ "productId": "p", "fromUserId": FROM, "toUserId": FROM }), vec!["productId", "toUserId"]),
        (json!({ "productId": PRODUCT, "fromUserId": FROM, "toUserId": TO, "status": "accepted" }), vec!["status"]),
        (json!({ "productId": PRODUCT, "fromUserId": FROM, "toUserId": FROM.to_uppercase() }), vec!["toUserId"]),
    ] {
        assert_eq!(client.post("/transfers", &body).await.bad_fields(), fields, "{body}");
    }
    client.get(&format!("/transfers/{PRODUCT}")).await.problem(404);
    client.post(&format!("/transfers/{PRODUCT}/accept"), &json!({})).await.problem(404);
    assert_eq!(client.post("/transfers/7/accept", &json!({})).await.bad_fields(), ["transferRequestId"]);
    // Too late is too late, whether or not somebody has said so.
    server.clock.advance(std::time::Duration::from_secs(60));
    client.post(&format!("{}/accept", path(&transfer)), &json!({})).await.problem(409);
    // SX-09
    let headers = [("content-type", "application/json"), ("idempotency-key", "k")];
    let first = client.post_with("/transfers", &headers, body().to_string()).await.expect(201).json();
    assert_eq!(client.post_with("/transfers", &headers, body().to_string()).await.expect(201).json(), first);
}

// S003-30, S003-36: who says that a transfer has expired is not believed before it has, and it expires all the same then.
#[tokio::test(flavor = "multi_thread")]
async fn nobody_can_end_a_transfer_before_its_time() {
    let server = TestServer::start().await;
    let sender = server.client_for(&["ingest"]).await;
    let client = server.client();
    let transfer = make(&sender).await;
    let own = client.get("/bus/transfer-expiration-queue/peek?state=scheduled").await.expect(200).json();
    let id = transfer["transferRequestId"].as_str().unwrap();
    let event = json!({ "eventType": "OwnershipTransferExpired", "data": { "transferRequestId": id } });
    let named = |event_id: String| {
        let mut event = event.clone();
        event["eventId"] = event_id.into();
        event
    };
    for event in [event.clone(), named(format!("transfer-expiry-{id}")), named(id.to_owned())] {
        sender.send(&event).await;
    }
    let headers = [("content-type", "application/json")];
    sender.post_with("/bus/transfer-expiration-queue/messages", &headers, event.to_string()).await.expect(201);
    until(&server, "/bus/transfer-expiration-queue", |seen| {
        seen["counts"]["active"] == 0 && seen["counts"]["locked"] == 0
    })
    .await;
    assert_eq!(client.get(&path(&transfer)).await.expect(200).json(), transfer);
    let after = client.get("/bus/transfer-expiration-queue/peek?state=scheduled").await.expect(200).json();
    assert_eq!(after["items"], own["items"], "one message waits, and it is the transfer's own");
    assert_eq!(client.get("/dead-letters").await.expect(200).json()["items"], json!([]));
    pass(&server, 72).await;
    until(&server, &path(&transfer), |transfer| transfer["status"] == "expired").await;
}

// S003-40: the clock goes back between the delivery and the look at it.
#[tokio::test(flavor = "multi_thread")]
async fn an_expiry_that_comes_too_early_comes_again() {
    let server = TestServer::start().await;
    let client = server.client();
    let transfer = make(&client).await;
    // As if it had been delivered already.
    let key = transfer["transferRequestId"].as_str().unwrap();
    client.delete(&format!("/bus/transfer-expiration-queue/scheduled?key={key}")).await;
    assert_eq!(scheduled(&client).await, 0);
    client.send(&json!({ "eventType": "OwnershipTransferExpired", "data": { "transferRequestId": key } })).await;
    until(&server, "/bus/transfer-expiration-queue", |seen| seen["counts"]["scheduled"] == 1).await;
    assert_eq!(client.get(&path(&transfer)).await.expect(200).json()["status"], "pending");
    pass(&server, 72).await;
    until(&server, &path(&transfer), |transfer| transfer["status"] == "expired").await;
}
