//! EVT_002 the whole way: a status changes, and exactly its user hears of it.

use serde_json::{Value, json};

use super::{lively, post, until};
use crate::rules::{entries, unread};
use crate::support::{Client, TestServer};

const USER: &str = "7c9e6679-7425-40de-944b-e07fc1f90ae7";
const OTHER: &str = "550e8400-e29b-41d4-a716-446655440000";

async fn make(client: &Client, user: &str) -> Value {
    let body = json!({ "userId": user, "description": "The heating is cold" });
    let made = post(client, "/service-requests", "sr-1", &body).await.expect(201);
    let request = made.json();
    assert_eq!(made.header("location"), format!("/service-requests/{}", request["serviceRequestId"].as_str().unwrap()));
    request
}

fn path(request: &Value) -> String {
    format!("/service-requests/{}", request["serviceRequestId"].as_str().unwrap())
}

/// The pushes on a user's topic.
async fn pushes(server: &TestServer, user: &str) -> Vec<Value> {
    let text =
        server.push(Some(server.admin_token())).get(&format!("/user-{user}/json?poll=1")).await.expect(200).text();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

// S003-16 to S003-27: API call, record and event, bus, handler, inbox and push, one correlation id.
#[tokio::test(flavor = "multi_thread")]
async fn a_changed_status_reaches_exactly_its_user() {
    let server = lively(|_| {}).await;
    let client = server.client();
    let request = make(&client, USER).await;
    assert_eq!((&request["status"], &request["userId"]), (&json!("open"), &json!(USER)));
    let changed = client.patch(&path(&request), &json!({ "status": "in_progress" })).await.expect(200);
    let correlation = changed.header("x-correlation-id").to_owned();
    assert_eq!(changed.json()["status"], "in_progress");
    let list =
        until(&server, "/api/messages?status=completed", |list| !list["items"].as_array().unwrap().is_empty()).await;
    let message = &list["items"][0];
    assert_eq!(
        (&message["correlation_id"], &message["target"]),
        (&json!(correlation), &json!({ "topic": format!("user-{USER}") }))
    );
    let pushed = pushes(&server, USER).await;
    assert_eq!(pushed.len(), 1);
    assert_eq!(pushed[0]["title"], "Your service request is in_progress");
    let store = &*server.services.store;
    let inbox = entries(store, USER).await;
    assert_eq!((inbox.len(), unread(store, USER).await), (1, 1));
    assert!(inbox[0].text.ends_with("changed from open to in_progress."), "{}", inbox[0].text);
    assert_eq!(inbox[0].correlation_id, correlation);
    for nobody in [OTHER, "admin"] {
        assert!(entries(store, nobody).await.is_empty() && pushes(&server, nobody).await.is_empty());
    }
    // What changes nothing tells nothing.
    client.patch(&path(&request), &json!({ "status": "in_progress" })).await.expect(200);
    let events = client.get("/events?type=ServiceRequestStatusChanged").await.expect(200).json();
    assert_eq!(events["items"].as_array().unwrap().len(), 1);
    assert_eq!(
        events["items"][0]["data"],
        json!({ "serviceRequestId": request["serviceRequestId"], "userId": USER, "oldStatus": "open", "newStatus": "in_progress" })
    );
    let trace = client.get(&format!("/trace/{correlation}")).await.expect(200).json();
    let kinds: Vec<_> = trace["items"].as_array().unwrap().iter().map(|step| step["kind"].as_str().unwrap()).collect();
    let place = |kind: &str| kinds.iter().position(|known| *known == kind).unwrap_or_else(|| panic!("{kind}: {trace}"));
    assert!(place("event") < place("notification") && place("notification") < place("message"), "{trace}");
    let identifier = inbox[0].identifier();
    let told = &trace["items"][place("notification")]["details"];
    assert_eq!(told["handler"], "SendServiceStatusNotification");
    assert_eq!(told["notifications"][0]["notification_identifier"], identifier);
    // The event itself knows what came of it, too.
    let event = events["items"][0]["eventId"].as_str().unwrap();
    let outcome = client.get(&format!("/events/{event}")).await.expect(200).json()["outcome"].clone();
    let entry = json!({ "user": USER, "notification_identifier": identifier, "rule": "SendServiceStatusNotification" });
    assert_eq!(outcome["notifications"], json!([entry]), "{outcome}");
    assert_eq!(
        (&outcome["messages"][0]["message_id"], &outcome["messages"][0]["status"]),
        (&message["message_id"], &json!("completed"))
    );
}

// The same by `POST /events`, and twice is once.
#[tokio::test(flavor = "multi_thread")]
async fn an_event_from_elsewhere_goes_the_same_way_once() {
    let server = lively(|_| {}).await;
    let client = server.client();
    let event = json!({ "eventId": "sr-event", "eventType": "ServiceRequestStatusChanged", "correlationId": "elsewhere",
        "data": { "serviceRequestId": OTHER, "userId": USER, "newStatus": "closed" } });
    client.send(&event).await;
    until(&server, "/api/messages?status=completed", |list| list["items"].as_array().unwrap().len() == 1).await;
    assert_eq!(client.post("/events", &event).await.expect(202).json()["duplicates"], 1);
    // On the bus itself, with the id that is done already, and then with another.
    let body = |id: &str| {
        json!({ "eventId": id, "eventType": "servicerequest.status.changed", "data": event["data"] }).to_string()
    };
    let properties = json!({ "Label": "servicerequest.status.changed" }).to_string();
    for id in ["sr-event", "sr-event-2", "sr-event-2"] {
        let headers = [("content-type", "application/json"), ("brokerproperties", properties.as_str())];
        client.post_with("/bus/domain-events-topic/messages", &headers, body(id)).await.expect(201);
    }
    until(&server, "/api/messages?status=completed", |list| list["items"].as_array().unwrap().len() >= 2).await;
    until(&server, "/bus/domain-events-topic/subscriptions/notifications-sub", |seen| {
        seen["counts"]["active"] == 0 && seen["counts"]["locked"] == 0
    })
    .await;
    let told = entries(&*server.services.store, USER).await;
    assert_eq!(told.len(), 2, "one for each id: {told:?}");
}

#[tokio::test]
async fn bad_requests_are_refused_with_every_field() {
    let server = TestServer::start().await;
    let client = server.client();
    for (body, fields) in [
        (json!({}), vec!["userId", "description"]),
        (json!({ "userId": "u1", "description": " " }), vec!["userId", "description"]),
        (json!({ "userId": USER, "description": 7, "status": "closed" }), vec!["description", "status"]),
        (json!({ "userId": USER, "description": "x".repeat(10_001) }), vec!["description"]),
    ] {
        assert_eq!(client.post("/service-requests", &body).await.bad_fields(), fields, "{body}");
    }
    let request = make(&client, USER).await;
    for body in [json!({}), json!({ "status": "" }), json!({ "status": 7 }), json!({ "status": "x".repeat(257) })] {
        assert_eq!(client.patch(&path(&request), &body).await.bad_fields(), ["status"], "{body}");
    }
    assert_eq!(client.get(&path(&request)).await.expect(200).json(), request);
    client.get(&format!("/service-requests/{OTHER}")).await.problem(404);
    client.patch(&format!("/service-requests/{OTHER}"), &json!({ "status": "x" })).await.problem(404);
    assert_eq!(client.get("/service-requests/7").await.bad_fields(), ["serviceRequestId"]);
    let both = client.patch("/service-requests/7", &json!({ "status": 7 })).await;
    assert_eq!(both.bad_fields(), ["serviceRequestId", "status"]);
    server.client_for(&["tickets"]).await.get(&path(&request)).await.problem(403);
    // SX-09
    let headers = [("content-type", "application/json"), ("idempotency-key", "k")];
    let body = json!({ "userId": USER, "description": "once" }).to_string();
    let first = client.post_with("/service-requests", &headers, body.clone()).await.expect(201).json();
    assert_eq!(client.post_with("/service-requests", &headers, body).await.expect(201).json(), first);
}

// S003-27: a user is the same in capitals, through every door.
#[tokio::test(flavor = "multi_thread")]
async fn the_case_of_a_uuid_does_not_count() {
    let server = lively(|_| {}).await;
    let client = server.client();
    let request = make(&client, &USER.to_uppercase()).await;
    assert_eq!(request["userId"], USER);
    client.patch(&path(&request), &json!({ "status": "closed" })).await.expect(200);
    let event = json!({ "eventType": "ServiceRequestStatusChanged",
        "data": { "serviceRequestId": OTHER.to_uppercase(), "userId": USER.to_uppercase(), "newStatus": "closed" } });
    client.send(&event).await;
    let headers = [("content-type", "application/json")];
    client.post_with("/bus/domain-events-topic/messages", &headers, event.to_string()).await.expect(201);
    until(&server, "/api/messages?status=completed", |list| list["items"].as_array().unwrap().len() == 3).await;
    let store = &*server.services.store;
    assert_eq!((entries(store, USER).await.len(), pushes(&server, USER).await.len()), (3, 3));
    assert!(entries(store, &USER.to_uppercase()).await.is_empty());
    let action =
        json!({ "actionType": "login", "targetEntity": "door", "targetEntityId": "7", "userId": USER.to_uppercase() });
    client.send(&json!({ "eventType": "CriticalActionOccurred", "data": action })).await;
    let log = until(&server, "/audit-log?entity=door", |log| !log["items"].as_array().unwrap().is_empty()).await;
    assert_eq!(log["items"][0]["user"], USER);
    for user in [USER.to_owned(), USER.to_uppercase()] {
        let found = client.get(&format!("/audit-log?user={user}")).await.expect(200).json();
        assert_eq!(found["items"], log["items"], "{user}");
    }
}
