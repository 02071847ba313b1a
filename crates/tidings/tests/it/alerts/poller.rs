//! The poller, against a stand-in that speaks the audit log's documented shape.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tidings::alerts::poller::Poller;
use tidings::config::Secret;
use tidings::config::sources::{Kind, Source, Start};
use tidings::sources::Asker;

use super::{alerts, audit_event, audit_event_with, server, server_with};
use crate::channels::http_server::{Reply, Server};
use crate::support::TestServer;

/// What the stand-in holds, newest first, and the answers it gives instead, once each.
#[derive(Default)]
struct Log {
    entries: Vec<Value>,
    instead: Vec<Reply>,
    wrapped: bool,
}

struct AuditService {
    server: Server,
    log: Arc<Mutex<Log>>,
}

fn query(path: &str) -> BTreeMap<String, String> {
    let query = path.split_once('?').map_or("", |(_, query)| query);
    form_urlencoded::parse(query.as_bytes()).into_owned().collect()
}

/// Pages of two entries; the token is the id of the last one of the page before.
fn page(log: &mut Log, path: &str) -> Reply {
    if !log.instead.is_empty() {
        return log.instead.remove(0);
    }
    let asked = query(path);
    let from = asked.get("continuationToken").map_or(0, |token| {
        log.entries.iter().position(|entry| entry["id"] == token.as_str()).map_or(log.entries.len(), |n| n + 1)
    });
    let page: Vec<_> = log.entries.iter().skip(from).take(2).cloned().collect();
    let has_more = from + page.len() < log.entries.len();
    let token = page.last().map(|entry| entry["id"].clone());
    let body = json!({ "decoratedAuditLogEntries": page, "continuationToken": token, "hasMore": has_more });
    let body = if log.wrapped { json!({ "value": body }) } else { body };
    Reply::Answer {
        status: 200,
        headers: vec![("content-type", "application/json".to_owned())],
        body: body.to_string(),
    }
}

impl AuditService {
    async fn start(entries: Vec<Value>) -> Self {
        let log = Arc::new(Mutex::new(Log { entries, ..Log::default() }));
        let held = Arc::clone(&log);
        let server = Server::start(move |asked| page(&mut held.lock().unwrap(), &asked.path)).await;
        Self { server, log }
    }

    fn source(&self) -> Source {
        Source {
            name: "devops-audit".to_owned(),
            kind: Some(Kind::AzureDevOps),
            organization: Some("contoso".to_owned()),
            token: Some(Secret::new("pat-secret")),
            endpoint: Some(self.server.url("")),
            ..Source::default()
        }
    }

    fn poller(&self, server: &TestServer) -> Poller {
        Poller::new(&server.services, self.source()).unwrap()
    }

    fn instead(&self, reply: Reply) {
        self.log.lock().unwrap().instead.push(reply);
    }

    fn last_query(&self) -> BTreeMap<String, String> {
        query(&self.server.asked().last().unwrap().path)
    }
}

fn entries(ids: &[&str]) -> Vec<Value> {
    ids.iter().map(|id| audit_event(id)).collect()
}

// S000-76 (c)
#[tokio::test]
async fn the_log_is_read_page_by_page_and_once() {
    let mut log = entries(&["e", "d", "c", "b", "a"]);
    log.insert(1, audit_event_with("log", json!({ "actionId": "AuditLog.AccessLog", "area": "AuditLog" })));
    let service = AuditService::start(log).await;
    let server = server().await;
    let client = server.client();
    let poller = service.poller(&server);
    let polled = poller.activate().await.unwrap();
    assert_eq!((polled.pages, polled.entries, polled.accepted, polled.unfinished), (3, 6, 5, false));
    assert_eq!(alerts(&client, "").await.len(), 5);
    let asked = service.server.asked();
    assert!(asked[0].path.starts_with("/contoso/_apis/audit/auditlog?"), "{}", asked[0].path);
    assert_eq!(asked[0].headers["authorization"], "Basic OnBhdC1zZWNyZXQ=");
    let first = query(&asked[0].path);
    assert_eq!(first["api-version"], "7.1-preview.1");
    assert_eq!(first["startTime"], "2025-12-01T11:50:00.000000Z", "as far back as the log goes");
    assert_eq!(first["endTime"], "2026-03-01T12:00:00.000000Z");
    assert_eq!(query(&asked[1].path)["continuationToken"], "log");
    // The next window begins a little before the end of this one; what is known is known.
    server.clock.advance(Duration::from_secs(60));
    service.log.lock().unwrap().entries.insert(0, audit_event("f"));
    assert_eq!(poller.activate().await.unwrap().accepted, 1);
    assert_eq!(service.last_query()["startTime"], "2026-03-01T11:50:00.000000Z");
    assert_eq!(alerts(&client, "").await.len(), 6);
}

// A restart goes on with the page after the last one that was stored.
#[tokio::test]
async fn a_window_that_was_broken_off_is_carried_on() {
    let service = AuditService::start(entries(&["e", "d", "c", "b", "a"])).await;
    let server = server().await;
    service.log.lock().unwrap().instead =
        vec![page(&mut Log { entries: entries(&["e", "d", "c"]), ..Log::default() }, "/"), Reply::status(503)];
    let failed = service.poller(&server).activate().await.unwrap_err();
    assert_eq!(failed.to_string(), "Azure DevOps answered 503");
    let server = server.restart().await;
    server.clock.advance(Duration::from_secs(3600));
    let polled = service.poller(&server).activate().await.unwrap();
    assert_eq!((polled.pages, polled.accepted), (2, 3));
    let asked = service.last_query();
    assert_eq!(asked["endTime"], "2026-03-01T12:00:00.000000Z", "the same window");
    // And then the time since.
    service.poller(&server).activate().await.unwrap();
    let asked = service.last_query();
    assert_eq!(
        (&*asked["startTime"], &*asked["endTime"]),
        ("2026-03-01T11:50:00.000000Z", "2026-03-01T13:00:00.000000Z")
    );
    assert_eq!(alerts(&server.client(), "").await.len(), 5);
}

// Later and later, up to a quarter of an hour; or when the other side says. Then all is as before.
#[tokio::test]
async fn failures_are_followed_by_longer_waits() {
    let service = AuditService::start(entries(&["a"])).await;
    let server = server().await;
    let mut poller = Asker::new(&server.services, &service.source(), service.poller(&server));
    let mut waits = Vec::new();
    for reply in [
        Reply::status(500),
        Reply::Drop,
        Reply::status(401),
        Reply::status(203),
        Reply::Answer { status: 200, headers: vec![], body: "<html>".to_owned() },
        Reply::Answer { status: 429, headers: vec![("retry-after", "5000".to_owned())], body: String::new() },
        Reply::status(500),
    ] {
        service.instead(reply);
        waits.push(poller.turn().await.as_secs());
    }
    // Of each, something between half and all.
    let wholes = [20, 40, 80, 160, 320, 5000, 900];
    let fit = waits.iter().zip(wholes).all(|(wait, whole)| (whole / 2..=whole).contains(wait));
    assert!(fit && waits[5] == 5000, "{waits:?}");
    assert_eq!(poller.turn().await.as_secs(), 10);
    assert_eq!(alerts(&server.client(), "").await.len(), 1);
    service.instead(Reply::status(500));
    assert!((10..=20).contains(&poller.turn().await.as_secs()));
}

#[tokio::test]
async fn the_documented_samples_own_shape_is_read_and_bad_entries_left_behind() {
    let mut log = entries(&["b", "a"]);
    log.insert(1, json!({ "id": "odd", "actionId": "Process.X" }));
    let service = AuditService::start(log).await;
    service.log.lock().unwrap().wrapped = true;
    let server = server().await;
    let polled = service.poller(&server).activate().await.unwrap();
    assert_eq!((polled.entries, polled.accepted), (3, 2));
}

// A server that gives the same token for ever does not keep us busy for ever.
#[tokio::test]
async fn a_token_that_leads_nowhere_ends_the_turn() {
    let service = AuditService::start(Vec::new()).await;
    let body = json!({ "decoratedAuditLogEntries": [], "continuationToken": "t", "hasMore": true }).to_string();
    for _ in 0..3 {
        service.instead(Reply::Answer { status: 200, headers: vec![], body: body.clone() });
    }
    let server = server().await;
    let failed = service.poller(&server).activate().await.unwrap_err().to_string();
    assert!(failed.contains("the page after itself"), "{failed}");
    assert_eq!(service.server.asked().len(), 2);
}

// S000-78: tokens do not last; one that is refused is not asked with for ever, and nothing of its window is left out.
#[tokio::test]
async fn a_token_that_is_refused_is_forgotten() {
    for (status, kind) in [(400, "refused"), (404, "missing"), (410, "refused")] {
        let service = AuditService::start(entries(&["e", "d", "c", "b", "a"])).await;
        let server = server_with(|config| config.sources = vec![Source { enabled: false, ..service.source() }]).await;
        let first = page(&mut Log { entries: entries(&["e", "d", "c"]), ..Log::default() }, "/");
        let body = "<p>The continuation\ttoken\r\nhas expired, pat-secret</p>".to_owned();
        service.log.lock().unwrap().instead = vec![first, Reply::Answer { status, headers: vec![], body }];
        let mut poller = Asker::new(&server.services, &service.source(), service.poller(&server));
        assert!((10..=20).contains(&poller.turn().await.as_secs()), "it waits as after any failure");
        assert_eq!(service.last_query()["continuationToken"], "d");
        let error = server.client().get("/sources").await.expect(200).json()["items"][0]["error"].clone();
        let message = format!("Azure DevOps answered {status}: <p>The continuation token has expired, ***</p>");
        assert_eq!((&error["kind"], &error["message"]), (&json!(kind), &json!(message)));
        // Also after a restart, in which only the checkpoint is left.
        drop(poller);
        let server = server.restart().await;
        server.clock.advance(Duration::from_secs(3600));
        let polled = service.poller(&server).activate().await.unwrap();
        assert_eq!((polled.pages, polled.accepted), (3, 3), "the two of the first page are known");
        assert_eq!(service.last_query()["endTime"], "2026-03-01T12:00:00.000000Z", "the same window");
        assert_eq!(alerts(&server.client(), "").await.len(), 5);
    }
}

// Without a token there is nothing to forget; the window stays.
#[tokio::test]
async fn a_question_that_is_refused_is_asked_again() {
    let service = AuditService::start(entries(&["a"])).await;
    let server = server().await;
    service.instead(Reply::status(400));
    let failed = service.poller(&server).activate().await.unwrap_err();
    assert_eq!((failed.trouble.as_str(), &*failed.why), ("refused", "Azure DevOps answered 400"));
    assert_eq!(service.poller(&server).activate().await.unwrap().accepted, 1);
}

// An answer that does not say how to go on is none: the rest of its window would be left out.
#[tokio::test]
async fn an_answer_that_is_not_whole_moves_nothing_on() {
    let entry = audit_event("b");
    for (answer, why) in [
        (
            json!({ "decoratedAuditLogEntries": [entry], "hasMore": true }),
            "says `hasMore` and has no `continuationToken`",
        ),
        (
            json!({ "decoratedAuditLogEntries": [entry], "hasMore": true, "continuationToken": "" }),
            "says `hasMore` and has no `continuationToken`",
        ),
        (json!({ "decoratedAuditLogEntries": null, "hasMore": false }), "has no list `decoratedAuditLogEntries`"),
        (json!({ "hasMore": false }), "has no list `decoratedAuditLogEntries`"),
        (json!({ "value": { "hasMore": false } }), "has no list `decoratedAuditLogEntries`"),
    ] {
        let service = AuditService::start(entries(&["b", "a"])).await;
        let server = server().await;
        service.instead(Reply::Answer { status: 200, headers: vec![], body: answer.to_string() });
        let failed = service.poller(&server).activate().await.unwrap_err();
        let expected = format!("the audit log's answer {why}");
        assert_eq!((failed.trouble.as_str(), failed.why), ("unreadable", expected), "{answer}");
        server.clock.advance(Duration::from_secs(3600));
        service.poller(&server).activate().await.unwrap();
        assert_eq!(service.last_query()["startTime"], "2025-12-01T12:50:00.000000Z", "{answer}");
        assert_eq!(alerts(&server.client(), "").await.len(), 2);
    }
}

#[tokio::test]
async fn a_source_may_begin_now() {
    let service = AuditService::start(Vec::new()).await;
    let server = server().await;
    let source = Source { start: Start::Latest, ..service.source() };
    Poller::new(&server.services, source).unwrap().activate().await.unwrap();
    assert_eq!(service.last_query()["startTime"], "2026-03-01T11:50:00.000000Z");
}

// S000-76, SX-08: nobody sent it, so nobody else would know.
#[tokio::test]
async fn an_entry_that_cannot_be_read_is_a_dead_letter_once() {
    let bad = audit_event_with("b", json!({ "details": null }));
    let service = AuditService::start(vec![audit_event("a"), bad.clone()]).await;
    let server = server().await;
    let poller = service.poller(&server);
    for accepted in [1, 0, 0] {
        assert_eq!(poller.activate().await.unwrap().accepted, accepted);
        server.clock.advance(Duration::from_secs(60));
        // The log may write it in other words.
        service.log.lock().unwrap().entries[1]["userAgent"] = json!(format!("after {accepted}"));
    }
    let letters = server.client().get("/dead-letters").await.expect(200).json();
    let letters = letters["items"].as_array().unwrap();
    assert_eq!(letters.len(), 1, "{letters:?}");
    assert_eq!((&letters[0]["payload"]["entry"], &letters[0]["reason"]), (&bad, &json!("details is required")));
    let trace = server.client().get("/trace/corr-b").await.expect(200).json();
    assert_eq!(trace["items"][0]["details"]["eventType"], "azure-devops.rejected", "{trace}");
    // Thrown away, it does not come back with the next look at the same hours.
    server.client().delete(&format!("/dead-letters/{}", letters[0]["id"].as_str().unwrap())).await.expect(204);
    poller.activate().await.unwrap();
    assert_eq!(server.client().get("/dead-letters").await.expect(200).json()["items"], json!([]));
}
