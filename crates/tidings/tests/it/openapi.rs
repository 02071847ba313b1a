//! `GET /openapi.json`: lists exactly what there is.

use std::collections::BTreeSet;

use reqwest::Method;
use serde_json::Value;

use crate::support::{Answer, TestServer};

/// Written by hand, so that a route that vanishes, or comes unnoticed, is noticed.
const EXPECTED: [&str; 143] = [
    "DELETE /api/schedules/{name}",
    "DELETE /authorized-accounts",
    "DELETE /bus/{entity}",
    "DELETE /bus/{entity}/$deadletterqueue/messages/head",
    "DELETE /bus/{entity}/$deadletterqueue/messages/{message}/{lockToken}",
    "DELETE /bus/{entity}/messages/head",
    "DELETE /bus/{entity}/messages/{message}/{lockToken}",
    "DELETE /bus/{entity}/scheduled",
    "DELETE /bus/{entity}/scheduled/{sequenceNumber}",
    "DELETE /bus/{entity}/subscriptions/{subscription}",
    "DELETE /bus/{entity}/subscriptions/{subscription}/$deadletterqueue/messages/head",
    "DELETE /bus/{entity}/subscriptions/{subscription}/$deadletterqueue/messages/{message}/{lockToken}",
    "DELETE /bus/{entity}/subscriptions/{subscription}/messages/head",
    "DELETE /bus/{entity}/subscriptions/{subscription}/messages/{message}/{lockToken}",
    "DELETE /bus/{entity}/subscriptions/{subscription}/scheduled",
    "DELETE /bus/{entity}/subscriptions/{subscription}/scheduled/{sequenceNumber}",
    "DELETE /channels/webhook/disabled/{id}",
    "DELETE /dead-letters/{id}",
    "DELETE /notification-map/{product}/{supportGroup}",
    "DELETE /rules/{name}",
    "DELETE /tokens/{id}",
    "GET /admin/backup",
    "GET /alerts",
    "GET /alerts/export",
    "GET /alerts/{PartitionKey}/{SortKey}",
    "GET /api/message-types",
    "GET /api/messages",
    "GET /api/messages/{message_id}",
    "GET /api/metrics",
    "GET /api/schedules",
    "GET /api/schedules/{name}",
    "GET /audit-log",
    "GET /audit-log/export",
    "GET /audit-log/verify",
    "GET /authorized-accounts",
    "GET /authorized-accounts/usage",
    "GET /bus",
    "GET /bus/{entity}",
    "GET /bus/{entity}/$deadletterqueue/peek",
    "GET /bus/{entity}/history",
    "GET /bus/{entity}/peek",
    "GET /bus/{entity}/subscriptions",
    "GET /bus/{entity}/subscriptions/{subscription}",
    "GET /bus/{entity}/subscriptions/{subscription}/$deadletterqueue/peek",
    "GET /bus/{entity}/subscriptions/{subscription}/history",
    "GET /bus/{entity}/subscriptions/{subscription}/peek",
    "GET /channels/webhook/disabled",
    "GET /dead-letters",
    "GET /dead-letters/jobs/{id}",
    "GET /dead-letters/{id}",
    "GET /event-types",
    "GET /events",
    "GET /events/stream",
    "GET /events/{eventId}",
    "GET /healthz",
    "GET /incidents",
    "GET /incidents/{id}",
    "GET /invoices/{invoiceId}",
    "GET /metrics",
    "GET /nodes",
    "GET /notification-map",
    "GET /notification-map/{product}/{supportGroup}",
    "GET /notifications",
    "GET /notifications/count",
    "GET /notifications/stream",
    "GET /openapi.json",
    "GET /readyz",
    "GET /rules",
    "GET /rules/{name}",
    "GET /service-requests/{serviceRequestId}",
    "GET /sources",
    "GET /tickets",
    "GET /tickets/{ticket_id}",
    "GET /tokens",
    "GET /trace/{correlationId}",
    "GET /transfers/{transferRequestId}",
    "OPTIONS /ingest/azure-devops",
    "PATCH /service-requests/{serviceRequestId}",
    "PATCH /tickets/{ticket_id}",
    "POST /admin/reload",
    "POST /admin/tickets/import",
    "POST /alerts/{PartitionKey}/{SortKey}/resend",
    "POST /api/messages",
    "POST /api/messages/batch",
    "POST /api/messages/batch-get",
    "POST /api/messages/cancel",
    "POST /api/messages/{message_id}/cancel",
    "POST /api/messages/{message_id}/retry",
    "POST /bus/{entity}/$deadletterqueue/messages/head",
    "POST /bus/{entity}/$deadletterqueue/messages/{message}/{lockToken}",
    "POST /bus/{entity}/$deadletterqueue/purge",
    "POST /bus/{entity}/$deadletterqueue/receive",
    "POST /bus/{entity}/$deadletterqueue/resubmit",
    "POST /bus/{entity}/$deadletterqueue/settle",
    "POST /bus/{entity}/messages",
    "POST /bus/{entity}/messages/head",
    "POST /bus/{entity}/messages/{message}/{lockToken}",
    "POST /bus/{entity}/purge",
    "POST /bus/{entity}/receive",
    "POST /bus/{entity}/settle",
    "POST /bus/{entity}/subscriptions/{subscription}/$deadletterqueue/messages/head",
    "POST /bus/{entity}/subscriptions/{subscription}/$deadletterqueue/messages/{message}/{lockToken}",
    "POST /bus/{entity}/subscriptions/{subscription}/$deadletterqueue/purge",
    "POST /bus/{entity}/subscriptions/{subscription}/$deadletterqueue/receive",
    "POST /bus/{entity}/subscriptions/{subscription}/$deadletterqueue/resubmit",
    "POST /bus/{entity}/subscriptions/{subscription}/$deadletterqueue/settle",
    "POST /bus/{entity}/subscriptions/{subscription}/messages/head",
    "POST /bus/{entity}/subscriptions/{subscription}/messages/{message}/{lockToken}",
    "POST /bus/{entity}/subscriptions/{subscription}/purge",
    "POST /bus/{entity}/subscriptions/{subscription}/receive",
    "POST /bus/{entity}/subscriptions/{subscription}/settle",
    "POST /channels/{name}/test",
    "POST /dead-letters/purge",
    "POST /dead-letters/resubmit",
    "POST /dead-letters/{id}/resubmit",
    "POST /events",
    "POST /incidents/{id}/acknowledge",
    "POST /ingest/azure-devops",
    "POST /ingest/dynamodb-stream",
    "POST /invoices",
    "POST /notification-map/import",
    "POST /notifications",
    "POST /rules/test",
    "POST /service-requests",
    "POST /services/collector",
    "POST /services/collector/event",
    "POST /tickets",
    "POST /tickets/{ticket_id}/comments",
    "POST /tokens",
    "POST /transfers",
    "POST /transfers/{transferRequestId}/accept",
    "POST /transfers/{transferRequestId}/cancel",
    "POST /transfers/{transferRequestId}/reject",
    "PUT /api/schedules/{name}",
    "PUT /authorized-accounts",
    "PUT /bus/{entity}",
    "PUT /bus/{entity}/$deadletterqueue/messages/{message}/{lockToken}",
    "PUT /bus/{entity}/messages/{message}/{lockToken}",
    "PUT /bus/{entity}/subscriptions/{subscription}",
    "PUT /bus/{entity}/subscriptions/{subscription}/$deadletterqueue/messages/{message}/{lockToken}",
    "PUT /bus/{entity}/subscriptions/{subscription}/messages/{message}/{lockToken}",
    "PUT /notification-map/{product}/{supportGroup}",
    "PUT /rules/{name}",
];

async fn document(server: &TestServer) -> Value {
    let answer = server.client().get("/openapi.json").await.expect(200);
    assert_eq!(answer.header("content-type"), "application/json");
    answer.json()
}

/// Method, path and description of every documented operation.
fn operations(document: &Value) -> Vec<(Method, String, Value)> {
    let paths = document["paths"].as_object().unwrap().iter();
    paths
        .flat_map(|(path, methods)| {
            let methods = methods.as_object().unwrap().iter();
            methods.map(|(method, operation)| (method.to_uppercase().parse().unwrap(), path.clone(), operation.clone()))
        })
        .collect()
}

#[tokio::test]
async fn the_description_lists_exactly_the_expected_routes() {
    let server = TestServer::start().await;
    let documented: BTreeSet<_> =
        operations(&document(&server).await).iter().map(|(method, path, _)| format!("{method} {path}")).collect();
    assert_eq!(documented, EXPECTED.into_iter().map(ToOwned::to_owned).collect());
}

#[tokio::test]
async fn every_documented_operation_exists() {
    let server = TestServer::start().await;
    for (method, path, _) in operations(&document(&server).await) {
        // Without a token: a route that exists asks for one, or answers; nothing is done.
        let path = path.replace(['{', '}'], "");
        let answer = Answer::to(server.stranger().request(method.clone(), &path)).await;
        assert!([200, 401].contains(&answer.status), "{method} {path}: {}", answer.status);
    }
}

#[tokio::test]
async fn every_operation_that_exists_is_documented() {
    let server = TestServer::start().await;
    let document = document(&server).await;
    let methods =
        [Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE, Method::OPTIONS, Method::TRACE];
    for (path, documented) in document["paths"].as_object().unwrap() {
        let concrete = path.replace(['{', '}'], "");
        for method in &methods {
            let known = documented.get(method.as_str().to_lowercase()).is_some();
            let answer = Answer::to(server.stranger().request(method.clone(), &concrete)).await;
            // `/events/{eventId}` and `/events/stream` overlap: the longer one answers for its own path.
            assert_eq!(answer.status != 405, known, "{method} {path}: {}", answer.status);
        }
    }
}

/// Every `$ref` anywhere in the document.
fn references<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
    match value {
        Value::Object(fields) => {
            found.extend(fields.get("$ref").and_then(Value::as_str));
            fields.values().for_each(|field| references(field, found));
        }
        Value::Array(items) => items.iter().for_each(|item| references(item, found)),
        _ => {}
    }
}

#[tokio::test]
async fn the_description_has_the_shape_of_openapi_3_1() {
    let server = TestServer::start().await;
    let document = document(&server).await;
    assert_eq!(document["openapi"], "3.1.0");
    for field in ["title", "version"] {
        assert!(!document["info"][field].as_str().unwrap().is_empty());
    }
    let mut found = Vec::new();
    references(&document, &mut found);
    assert!(found.len() > 20);
    for reference in found {
        let pointer = reference.strip_prefix('#').unwrap_or_else(|| panic!("{reference} leads outside"));
        assert!(document.pointer(pointer).is_some(), "{reference} leads nowhere");
    }
    let mut ids = BTreeSet::new();
    for (method, path, operation) in operations(&document) {
        let name = format!("{method} {path}");
        assert!(ids.insert(operation["operationId"].as_str().unwrap().to_owned()), "{name}: operationId twice");
        assert!(!operation["summary"].as_str().unwrap().is_empty(), "{name}");
        let responses = operation["responses"].as_object().unwrap();
        assert!(responses.contains_key("default"), "{name}");
        for (status, response) in responses {
            assert!(status == "default" || status.parse::<u16>().is_ok(), "{name}: {status}");
            assert!(response.get("$ref").is_some() || response["description"].is_string(), "{name}: {status}");
        }
        let parameters = operation["parameters"].as_array().unwrap();
        let mut names = BTreeSet::new();
        for parameter in parameters {
            let shared =
                parameter["$ref"].as_str().and_then(|reference| document.pointer(reference.strip_prefix('#')?));
            let parameter = shared.unwrap_or(parameter);
            let place = parameter["in"].as_str().unwrap();
            assert!(["path", "query", "header"].contains(&place), "{name}");
            assert!(parameter["schema"].is_object(), "{name}");
            assert!(names.insert((place, parameter["name"].as_str().unwrap())), "{name}: a parameter twice");
            assert_eq!(parameter["required"] == true, place == "path", "{name}");
        }
        let in_path: BTreeSet<_> = names.iter().filter(|(place, _)| *place == "path").map(|(_, name)| *name).collect();
        let templated: BTreeSet<_> =
            path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}')).collect();
        assert_eq!(in_path, templated, "{name}");
        // A POST may be a bare command; a PUT always brings what it puts, and a GET or DELETE brings nothing.
        let has_body = operation.get("requestBody").is_some();
        assert!(has_body || method != Method::PUT, "{name}");
        assert!(!has_body || [Method::POST, Method::PUT, Method::PATCH].contains(&method), "{name}");
        let schemes = operation["security"].as_array().unwrap();
        for scheme in schemes.iter().flat_map(|scheme| scheme.as_object().unwrap().keys()) {
            assert!(document["components"]["securitySchemes"].get(scheme).is_some(), "{name}: {scheme}");
        }
    }
}

// SX-03, contract 2 and 3: what every call takes, and every form of an event.
#[tokio::test]
async fn headers_and_all_forms_of_an_event_are_described() {
    let server = TestServer::start().await;
    server.client_for(&["consume"]).await.get("/openapi.json").await.expect(200);
    server.stranger().get("/openapi.json").await.problem(401);
    let document = document(&server).await;
    let send = &document["paths"]["/events"]["post"];
    let forms: Vec<_> = send["requestBody"]["content"].as_object().unwrap().keys().collect();
    assert_eq!(
        forms,
        [
            "application/cloudevents+json",
            "application/cloudevents-batch+json",
            "application/json",
            "application/x-ndjson"
        ]
    );
    let headers = |operation: &Value| -> Vec<String> {
        let parameters = operation["parameters"].as_array().unwrap();
        parameters
            .iter()
            .map(|parameter| match parameter["$ref"].as_str() {
                Some(reference) => document.pointer(&reference[1..]).unwrap(),
                None => parameter,
            })
            .filter(|parameter| parameter["in"] == "header")
            .map(|parameter| parameter["name"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(headers(send), ["Idempotency-Key", "X-Correlation-ID", "traceparent", "Content-Encoding"]);
    assert_eq!(headers(&document["paths"]["/events"]["get"]), ["X-Correlation-ID", "traceparent"]);
}

// The documented parameters are those that the server takes.
#[tokio::test]
async fn every_documented_query_parameter_is_known() {
    let server = TestServer::start().await;
    for (method, path, operation) in operations(&document(&server).await) {
        if path.ends_with("/stream") || path.starts_with("/admin") {
            continue;
        }
        for parameter in operation["parameters"].as_array().unwrap() {
            if parameter["in"] == "query" {
                let name = parameter["name"].as_str().unwrap();
                let concrete = path.replace(['{', '}'], "");
                let request = server.client().request(method.clone(), &format!("{concrete}?{name}=1"));
                let text = Answer::to(request).await.text();
                assert!(!text.contains("is no parameter"), "{path} {name}: {text}");
            }
        }
    }
}
