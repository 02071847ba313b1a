//! One id for everything that follows from a request.

use serde_json::json;

use crate::support::{Answer, TestServer};

const TRACEPARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

async fn send(server: &TestServer, headers: &[(&str, &str)], body: serde_json::Value) -> (Answer, String) {
    let headers: Vec<_> = headers.iter().copied().chain([("content-type", "application/json")]).collect();
    let answer = server.client().post_with("/events", &headers, body.to_string()).await.expect(202);
    let id = answer.json()["events"][0]["correlationId"].as_str().unwrap().to_owned();
    (answer, id)
}

// SX-03, S003-68, S003-69
#[tokio::test]
async fn the_header_gives_the_id_of_answer_and_event() {
    let server = TestServer::start().await;
    let (answer, id) = send(&server, &[("x-correlation-id", "order-17")], json!({ "eventType": "a" })).await;
    assert_eq!((answer.header("x-correlation-id"), id.as_str()), ("order-17", "order-17"));
    assert_eq!(server.client().ids("/events?correlationId=order-17").await.len(), 1);
}

// SX-03: the event's own id is the event's; the answer keeps the request's.
#[tokio::test]
async fn an_id_in_the_body_goes_before_the_header() {
    let server = TestServer::start().await;
    let event = json!({ "eventType": "a", "correlationId": "from the body" });
    let (answer, id) = send(&server, &[("x-correlation-id", "from-header")], event).await;
    assert_eq!((answer.header("x-correlation-id"), id.as_str()), ("from-header", "from the body"));
}

// SX-03
#[tokio::test]
async fn a_traceparent_gives_the_id_if_nothing_else_does() {
    let server = TestServer::start().await;
    let (_, id) = send(&server, &[("traceparent", TRACEPARENT)], json!({ "eventType": "a" })).await;
    assert_eq!(id, "4bf92f3577b34da6a3ce929d0e0e4736");
    let both = [("traceparent", TRACEPARENT), ("x-correlation-id", "mine")];
    assert_eq!(send(&server, &both, json!({ "eventType": "a" })).await.1, "mine");
}

// SX-03, S003-69: what a business call tells belongs to both, the id and the trace beside it.
#[tokio::test]
async fn the_events_of_business_calls_keep_the_trace() {
    let server = TestServer::start().await;
    let client = server.client();
    let user = |n: u8| format!("00000000-0000-4000-8000-00000000000{n}");
    let transfer = json!({ "productId": user(1), "fromUserId": user(2), "toUserId": user(3) });
    let ticket = json!({ "caller_id": "poc-user-001", "issue_description": "The printer is on fire" });
    for (path, body) in [("/transfers", transfer), ("/tickets", ticket)] {
        let headers =
            [("x-correlation-id", "order-17"), ("traceparent", TRACEPARENT), ("content-type", "application/json")];
        client.post_with(path, &headers, body.to_string()).await.expect(201);
    }
    let told = client.get("/events?correlationId=order-17").await.expect(200).json();
    let told = told["items"].as_array().unwrap();
    assert!(told.len() >= 2, "{told:?}");
    assert!(told.iter().all(|event| event["traceparent"] == TRACEPARENT), "{told:?}");
}

// SX-03: what a header can hold is taken as it is; anything else is refused, for another id would be found by nobody.
#[tokio::test]
async fn an_id_is_taken_to_the_letter_or_refused() {
    let server = TestServer::start().await;
    let longest = "x".repeat(128);
    for good in ["a b", "a,b", "a/b", "a=b+c", "|7c1.2.", "<script>", "\"q\" \\ %41", longest.as_str()] {
        let (answer, id) = send(&server, &[("x-correlation-id", good)], json!({ "eventType": "a" })).await;
        assert_eq!((answer.header("x-correlation-id"), id.as_str()), (good, good));
    }
    let long = "x".repeat(129);
    for bad in [long.as_str(), "a\tb", ""] {
        let headers = [("x-correlation-id", bad), ("content-type", "application/json")];
        let answer = server.client().post_with("/events", &headers, r#"{"eventType":"a"}"#).await;
        let problem = answer.problem(400);
        assert_eq!(answer.bad_fields(), ["X-Correlation-ID"], "{bad:?}");
        let made = answer.header("x-correlation-id");
        assert!(uuid::Uuid::parse_str(made).is_ok() && problem["correlationId"] == made, "{bad:?} gave {made}");
    }
    assert_eq!(server.client().stored().await.len(), 8);
    let (_, id) = send(&server, &[("traceparent", "00-zz-00-01")], json!({ "eventType": "a" })).await;
    assert!(uuid::Uuid::parse_str(&id).is_ok());
}

// SX-03: also on what is refused, by whomever.
#[tokio::test]
async fn every_refusal_has_the_id_too() {
    let server = TestServer::start().await;
    for (path, status) in [("/nothing", 404), ("/events", 401), ("/healthz?x=1", 400), ("/healthz", 200)] {
        let request = server.stranger().request(reqwest::Method::GET, path).header("x-correlation-id", "mine");
        let answer = Answer::to(request).await.expect(status);
        assert_eq!(answer.header("x-correlation-id"), "mine", "{path}");
    }
    let request = server.client().request(reqwest::Method::PATCH, "/events").header("x-correlation-id", "mine");
    let answer = Answer::to(request).await;
    assert_eq!(answer.problem(405)["correlationId"], "mine");
}
