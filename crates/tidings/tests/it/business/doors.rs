//! The four events at the door: judged the same however they come.

use serde_json::json;

use crate::support::TestServer;

const ID: &str = "33567ee8-f182-4f8a-b03e-2f1515915471";

// S003-07, S003-19, S003-45, S003-71
#[tokio::test]
async fn bad_payloads_are_refused_with_every_field() {
    let server = TestServer::start().await;
    let client = server.client();
    for (event_type, data, fields) in [
        ("InvoiceUploadedForProcessing", json!({}), vec!["data.invoiceId", "data.userProductId", "data.fileUrl"]),
        (
            "InvoiceUploadedForProcessing",
            json!({ "invoiceId": ID, "userProductId": "7", "fileUrl": "http://a.example/" }),
            vec!["data.userProductId", "data.fileUrl"],
        ),
        (
            "ServiceRequestStatusChanged",
            json!({ "oldStatus": 1 }),
            vec!["data.serviceRequestId", "data.userId", "data.newStatus", "data.oldStatus"],
        ),
        ("servicerequest.status.changed", json!({ "serviceRequestId": ID, "newStatus": "x" }), vec!["data.userId"]),
        ("OwnershipTransferExpired", json!({ "transferRequestId": "x" }), vec!["data.transferRequestId"]),
        (
            "CriticalActionOccurred",
            json!({ "userId": "me" }),
            vec!["data.actionType", "data.targetEntity", "data.targetEntityId", "data.userId"],
        ),
    ] {
        let event = json!({ "eventType": event_type, "data": data });
        assert_eq!(client.post("/events", &event).await.bad_fields(), fields, "{event}");
    }
    assert_eq!(client.stored().await, [""; 0]);
}

// S003-62, S003-63, S003-65
#[tokio::test]
async fn another_version_passes_and_what_is_unknown_is_kept() {
    let server = TestServer::start().await;
    let client = server.client();
    let later = json!({ "eventId": "v2", "eventType": "CriticalActionOccurred", "eventVersion": "2.0", "data": { "what": "else" } });
    client.send(&later).await;
    let more = json!({ "eventId": "v1", "eventType": "CriticalActionOccurred", "eventVersion": "1.4.2",
        "data": { "actionType": "login", "targetEntity": "user", "targetEntityId": "7", "device": { "os": "x" } } });
    client.send(&more).await;
    let stored = client.get("/events/v1").await.expect(200).json();
    assert_eq!(stored["data"], more["data"]);
    // In a batch the good ones pass.
    let batch = json!([later, { "eventType": "OwnershipTransferExpired" }, { "eventType": "other" }]);
    let answer = client.post("/events", &batch).await.expect(202).json();
    assert_eq!((&answer["duplicates"], &answer["rejected"], &answer["accepted"]), (&json!(1), &json!(1), &json!(1)));
    assert_eq!(answer["events"][1]["errors"][0]["field"], "data.transferRequestId");
}
