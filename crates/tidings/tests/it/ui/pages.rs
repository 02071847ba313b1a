//! Every page: there, small, and for those only who may see it.

use serde_json::json;
use tidings::config::json::JsonObject;
use tidings::config::schedules::Schedule;
use tidings::messages::deliver::Deliverer;

use super::Visitor;
use crate::support::TestServer;

const PAGES: [&str; 19] = [
    "/ui/incidents",
    "/ui/inbox",
    "/ui/inbox?user=ana&status=all",
    "/ui/bus",
    "/ui/alerts",
    "/ui/tickets",
    "/ui/tickets/new",
    "/ui/",
    "/ui/live",
    "/ui/events",
    "/ui/messages",
    "/ui/dead-letters",
    "/ui/rules",
    "/ui/rules/new",
    "/ui/schedules",
    "/ui/schedules/new",
    "/ui/tokens",
    "/ui/audit",
    "/ui/find?q=nothing",
];
/// No page is larger.
const MOST_BYTES: usize = 200_000;

#[tokio::test]
async fn every_page_answers_empty_and_full() {
    let server = TestServer::start().await;
    let visitor = Visitor::admin(&server).await;
    for path in PAGES {
        let page = visitor.get(path).await.expect(200);
        assert_eq!(page.header("content-type"), "text/html; charset=utf-8", "{path}");
        assert!(page.text().contains("<h1>"), "{path}");
    }
    let client = server.client();
    let rule = json!({ "pattern": { "eventType": [{ "exists": true }] }, "title": "{{ eventType }}",
        "targets": [{ "channel": "inbox", "users": ["ana"] }, { "channel": "ntfy", "topic": "t" }] });
    client.put("/rules/everything", &rule).await.expect(201);
    for n in 0..120 {
        client
            .send(&json!({ "eventType": format!("kind.{n}"), "source": "s", "data": { "text": "x".repeat(1000) } }))
            .await;
    }
    for path in PAGES {
        let page = visitor.get(path).await.expect(200);
        assert!(page.body.len() < MOST_BYTES, "{path}: {}", page.body.len());
    }
    for span in ["1h", "24h", "7d"] {
        let page = visitor.get(&format!("/ui/?span={span}")).await.expect(200);
        assert!(page.text().contains("<svg") && page.body.len() < MOST_BYTES, "{span}: {}", page.body.len());
    }
}

#[tokio::test]
async fn an_event_a_message_and_a_trace_lead_to_each_other() {
    let server = TestServer::start().await;
    let (client, visitor) = (server.client(), Visitor::admin(&server).await);
    let rule = json!({ "pattern": { "eventType": ["order.paid"] }, "title": "Order {{ data.order }}",
        "targets": [{ "channel": "inbox", "users": ["ana"] }, { "channel": "ntfy", "topic": "orders" }] });
    client.put("/rules/orders", &rule).await.expect(201);
    let sent = json!({ "eventId": "e-1", "eventType": "order.paid", "source": "shop", "correlationId": "c-1", "data": { "order": 17 } });
    client.send(&sent).await;
    let event = visitor.get("/ui/events/e-1").await.expect(200).text();
    assert!(event.contains("/ui/trace/c-1") && event.contains("/ui/rules/orders") && event.contains("ana"), "{event}");
    let message = event.split("/ui/messages/").nth(1).unwrap().split('"').next().unwrap().to_owned();
    let page = visitor.get(&format!("/ui/messages/{message}")).await.expect(200).text();
    assert!(page.contains("/ui/trace/c-1") && page.contains("/ui/events/e-1") && page.contains("Order 17"), "{page}");
    let trace = visitor.get("/ui/trace/c-1").await.expect(200).text();
    for part in ["/ui/events/e-1", "/ui/rules/orders", "ana", &format!("/ui/messages/{message}"), "1 on the way"] {
        assert!(trace.contains(part), "{part}: {trace}");
    }
    for (wanted, place) in [
        ("e-1", "/ui/events/e-1"),
        ("c-1", "/ui/trace/c-1"),
        ("orders", "/ui/rules/orders"),
        (&message, &format!("/ui/messages/{message}")),
    ] {
        assert_eq!(visitor.get(&format!("/ui/find?q={wanted}")).await.expect(303).header("location"), place);
    }
    let (long, longer) = ("x".repeat(1025), "x".repeat(5000));
    for page in ["incidents", "tickets", "events", "messages", "rules", "schedules"] {
        for id in [&long, &longer] {
            visitor.get(&format!("/ui/{page}/{id}")).await.expect(404);
        }
    }
    visitor.get(&format!("/ui/alerts?correlationId={}", "%F0%9F%98%80".repeat(256))).await.expect(400);
    for path in ["/ui/events/none", "/ui/messages/none", "/ui/rules/none", "/ui/schedules/none"] {
        visitor.get(path).await.expect(404);
    }
    assert!(visitor.get("/ui/trace/none").await.expect(200).text().contains("Nothing is known"));
}

#[tokio::test]
async fn lists_are_filtered_and_paged_by_the_address() {
    let server = TestServer::start().await;
    let (client, visitor) = (server.client(), Visitor::admin(&server).await);
    for n in 0..60 {
        client.send(&json!({ "eventId": format!("a-{n:02}"), "eventType": "a" })).await;
        server.clock.advance(std::time::Duration::from_secs(1));
    }
    client.send(&json!({ "eventId": "b-1", "eventType": "b" })).await;
    let page = visitor.get("/ui/events?type=b").await.expect(200).text();
    assert!(page.contains("b-1") && !page.contains("a-59") && page.contains("value=\"b\""));
    let first = visitor.get("/ui/events?type=a").await.expect(200).text();
    let next = first.split("rel=\"next\"").next().unwrap().rsplit("href=\"").next().unwrap();
    let next = next.split('"').next().unwrap().replace("&amp;", "&");
    assert!(next.starts_with("/ui/events?type=a&cursor="), "{next}");
    let second = visitor.get(&next).await.expect(200).text();
    assert!(second.contains("a-00") && !second.contains("a-59") && second.contains("Newest"));
    let bad = visitor.get("/ui/events?from=never&cursor=x").await.expect(400).text();
    assert!(bad.contains("<code>from</code>"), "{bad}");
    visitor.get("/ui/events?unknown=1").await.expect(400);
    visitor.get("/ui/messages?status=odd").await.expect(400);
}

// SX-20: a page needs the scope that its call needs.
#[tokio::test]
async fn scopes_decide_what_is_seen() {
    let server = TestServer::start().await;
    let reader = Visitor::with_scopes(&server, &["read"]).await;
    for path in PAGES {
        let wanted = match path {
            "/ui/tokens" | "/ui/rules/new" | "/ui/schedules/new" | "/ui/tickets/new" => 403,
            _ => 200,
        };
        reader.get(path).await.expect(wanted);
    }
    let page = reader.get("/ui/rules").await.expect(200).text();
    assert!(!page.contains("New rule") && !page.contains("/ui/tokens"), "{page}");
    for scope in ["ingest", "consume"] {
        let program = Visitor::with_scopes(&server, &[scope]).await;
        assert!(program.get("/ui/").await.expect(200).text().contains("opens no page"));
        for path in PAGES.iter().filter(|path| **path != "/ui/") {
            program.get(path).await.expect(403);
        }
    }
}

// S001-104: a user's token opens their own inbox, and nothing else.
#[tokio::test]
async fn a_user_sees_only_their_own_inbox() {
    let server = TestServer::start().await;
    let rule = json!({ "pattern": { "eventType": ["a"] }, "title": "Hello {{ data.who }}", "text": "javascript:alert(1)",
        "targets": [{ "channel": "inbox", "users": ["ana", "ben"] }] });
    server.client().put("/rules/r", &rule).await.expect(201);
    server.client().send(&json!({ "eventType": "a", "data": { "who": "<b>you</b>" } })).await;
    let ana = Visitor::with_scopes(&server, &["user:ana"]).await;
    assert_eq!(ana.get("/ui/").await.expect(303).header("location"), "/ui/inbox");
    let page = ana.get("/ui/inbox").await.expect(200).text();
    assert!(page.contains("Hello &lt;b&gt;you&lt;/b&gt;") && !page.contains("href=\"javascript:"), "{page}");
    for path in PAGES.iter().filter(|path| !path.starts_with("/ui/inbox") && **path != "/ui/") {
        ana.get(path).await.expect(403);
    }
    ana.get("/ui/inbox?user=ben").await.expect(403);
    ana.get("/ui/inbox/stream?user=ben").await.expect(403);
    let id = page.split("name=\"id\" value=\"").nth(1).unwrap().split('"').next().unwrap().to_owned();
    let token = page.split("name=\"form\" value=\"").nth(1).unwrap().split('"').next().unwrap().to_owned();
    let fields = |user: &'static str| {
        [("form", token.clone()), ("user", user.to_owned()), ("id", id.clone()), ("to", "read".to_owned())]
    };
    for (user, status) in [("ben", 403), ("ana", 303)] {
        let fields = fields(user);
        let fields: Vec<(&str, &str)> = fields.iter().map(|(name, value)| (*name, value.as_str())).collect();
        ana.submit("/ui/inbox/mark", &fields).await.expect(status);
    }
    assert!(ana.get("/ui/inbox").await.expect(200).text().contains("Nothing unread"));
    assert_eq!(server.client().get("/notifications/count?user=ben").await.expect(200).json()["unread"], 1);
}

// A mistyped address is told so on a page, to whoever is signed in and to whoever is not; the API keeps its own answer.
#[tokio::test]
async fn an_unknown_address_is_a_friendly_page() {
    let server = TestServer::start().await;
    for visitor in [Visitor::admin(&server).await, Visitor::stranger(&server)] {
        for path in ["/ui/nothing", "/ui/rules/", "/ui/bus/a/b/c", "/ui/login/x"] {
            let page = visitor.get(path).await.expect(404);
            assert_eq!(page.header("content-type"), "text/html; charset=utf-8", "{path}");
            let text = page.text();
            assert!(
                text.contains("there is no page at this address") && text.contains("href=\"/ui/\""),
                "{path}: {text}"
            );
            assert!(page.header("content-security-policy").contains("default-src 'none'"));
        }
        visitor.get("/nothing").await.problem(404);
    }
}

// Contract: no page over 200 KB, however large what it shows is.
#[tokio::test]
async fn what_is_large_makes_no_large_page() {
    let server = TestServer::start_with(|config| config.delivery.enabled = false).await;
    let (client, visitor) = (server.client(), Visitor::admin(&server).await);
    let long = "\"<&>\"".repeat(8_000);
    let rule = json!({ "pattern": { "eventType": ["huge"] }, "title": "{{ data.text }}", "text": "{{ data.text }}",
        "targets": [{ "channel": "inbox", "users": ["ana"] }, { "channel": "ntfy", "topic": "t" },
            { "channel": "queue", "entity": "none" }] });
    client.put("/rules/huge", &rule).await.expect(201);
    for n in 0..45 {
        let event = json!({ "eventId": format!("e-{n}"), "eventType": "huge", "correlationId": "c-huge", "data": { "text": long, "n": n } });
        client.send(&event).await;
    }
    // There is no such queue: what goes there ends as a dead letter.
    Deliverer::new(&server.services, "queue").drain().await.unwrap();
    let letters = client.get("/dead-letters?limit=1").await.expect(200).json();
    let letter = letters["items"][0]["id"].as_str().unwrap();
    let payload = json!({ "text": long, "extra": { "more": long } });
    let message = json!({ "message_type": "reminder", "payload": payload, "deliver_at": "2026-03-02T12:00:00Z" });
    let message = client.post("/api/messages", &message).await.expect(201).json();
    let message = message["message_id"].as_str().unwrap();
    visitor.act(&format!("/ui/messages/{message}/cancel"), &[]).await.expect(303);
    let schedule = json!({ "every": "1d", "message_type": "reminder", "payload": payload });
    client.put("/api/schedules/huge", &schedule).await.expect(201);
    let values: Vec<String> = (0..2500).map(|n| format!("<value \"{n}\">")).collect();
    let many = json!({ "pattern": { "eventType": values }, "targets": [{ "channel": "inbox", "users": ["ana"] }] });
    client.put("/rules/many", &many).await.expect(201);
    let ticket = json!({ "caller_id": "desk-1", "issue_description": "\"<&>\"".repeat(2_000) });
    let ticket = client.post("/tickets", &ticket).await.expect(201).json()["ticket_id"].as_str().unwrap().to_owned();
    for _ in 0..40 {
        let comment = json!({ "comment_text": "\"<&>\"".repeat(800) });
        client.post(&format!("/tickets/{ticket}/comments"), &comment).await.expect(201);
    }
    client.put("/bus/large", &json!({ "kind": "queue" })).await.expect(201);
    for _ in 0..25 {
        client.post("/bus/large/messages", &json!({ "text": long })).await.expect(201);
    }
    for path in [
        "/ui/",
        "/ui/live",
        "/ui/events",
        "/ui/events/e-1",
        "/ui/trace/c-huge",
        "/ui/inbox?user=ana&status=all",
        "/ui/messages",
        &format!("/ui/messages/{message}"),
        &format!("/ui/dead-letters/{letter}"),
        "/ui/dead-letters",
        "/ui/rules",
        "/ui/rules/many",
        "/ui/schedules/huge",
        "/ui/tickets",
        &format!("/ui/tickets/{ticket}"),
        "/ui/bus/peek?path=large",
        "/ui/audit",
    ] {
        let page = visitor.get(path).await.expect(200);
        assert!(page.body.len() < MOST_BYTES, "{path}: {}", page.body.len());
    }
}

// Whatever the address is: a page that says what is wrong, and never a failure of ours.
#[tokio::test]
async fn odd_addresses_get_pages_that_say_what_is_wrong() {
    let server = TestServer::start().await;
    let visitor = Visitor::admin(&server).await;
    for path in ["/ui/find", "/ui/find?q=", "/ui/find?q=%20"] {
        assert!(visitor.get(path).await.expect(200).text().contains("Nothing to look for"), "{path}");
    }
    for path in ["/ui/bus/peek", "/ui/bus/peek?path=", "/ui/bus/peek?path=%2F"] {
        let page = visitor.get(path).await.expect(400).text();
        assert!(page.contains("<code>path</code> is missing"), "{page}");
    }
    for (path, status) in [("/ui/events/%ff", 400), ("/ui/rules/%ff", 400), ("/ui/logout", 405), ("/ui/rules/try", 405)]
    {
        let page = visitor.get(path).await.expect(status);
        assert_eq!(page.header("content-type"), "text/html; charset=utf-8", "{path}");
        assert!(page.text().contains("<h1>"), "{path}");
    }
    // Anybody who may send events may send one that looks like a ticket's.
    let event = json!({ "eventType": "ticket.created", "source": "tidings/tickets", "data": { "ticket_id": "" } });
    server.client().send(&event).await;
    visitor.get("/ui/tickets").await.expect(200);
}

#[tokio::test]
async fn only_rules_that_have_a_page_are_linked() {
    let server = TestServer::start().await;
    let (client, visitor) = (server.client(), Visitor::admin(&server).await);
    let rule = json!({ "pattern": { "eventType": ["a"] },
        "targets": [{ "channel": "inbox", "users": ["ana"] }, { "channel": "ntfy", "topic": "t" }] });
    client.put("/rules/short-lived", &rule).await.expect(201);
    client.send(&json!({ "eventId": "e-1", "eventType": "a", "correlationId": "c-1" })).await;
    let pages = ["/ui/events/e-1", "/ui/trace/c-1"];
    for path in pages {
        assert!(visitor.get(path).await.expect(200).text().contains("/ui/rules/short-lived\""), "{path}");
    }
    client.delete("/rules/short-lived").await.expect(204);
    for path in pages {
        let page = visitor.get(path).await.expect(200).text();
        assert!(page.contains("short-lived") && !page.contains("/ui/rules/short-lived"), "{page}");
    }
}

#[tokio::test]
async fn a_dead_letter_of_the_bus_has_its_attempts_and_its_body_to_the_last_line_end() {
    let server = TestServer::start().await;
    let (client, visitor) = (server.client(), Visitor::admin(&server).await);
    client.put("/bus/q", &json!({})).await.expect(201);
    client.post_as("/bus/q/messages", "text/plain", "\n\nx").await.expect(201);
    let got = client.post("/bus/q/receive", &json!({ "max": 1 })).await.expect(200).json();
    let lock = &got["messages"][0]["lockToken"];
    let dead = json!([{ "action": "deadletter", "reason": "Broken", "lockToken": lock }]);
    client.post("/bus/q/settle", &dead).await.expect(200);
    let list = visitor.get("/ui/dead-letters").await.expect(200).text();
    assert!(list.contains("data-label=\"Attempts\">1</td>"), "{list}");
    let letter = list.split("/ui/dead-letters/").nth(1).unwrap().split('"').next().unwrap().to_owned();
    let desk = visitor.get(&format!("/ui/dead-letters/{letter}")).await.expect(200).text();
    // A browser drops the first line end of a text to be edited.
    assert!(desk.contains("spellcheck=\"false\">\n\n\nx</textarea>"), "{desk}");
}

// SX-13: what a browser would take for a way up, or for another page, has a page all the same.
#[tokio::test]
async fn odd_names_have_pages_that_are_linked() {
    let server = TestServer::start_with(|config| {
        config.schedules = ["new", ".", ".."]
            .map(|name| Schedule {
                name: name.to_owned(),
                every: Some("1h".to_owned()),
                message_type: "reminder".to_owned(),
                payload: JsonObject::from_value(json!({ "text": "x" })),
                ..Schedule::default()
            })
            .to_vec();
    })
    .await;
    let client = server.client();
    let visitor = Visitor::admin(&server).await;
    for id in [".", "..", "new"] {
        client
            .send(&json!({ "eventId": id, "eventType": "odd", "correlationId": id, "subject": format!("of {id}") }))
            .await;
        let address = |of: &str| format!("/ui/by-id/{of}?id={id}");
        let list = visitor.get("/ui/events").await.expect(200).text();
        for of in ["events", "trace"] {
            assert!(list.contains(&format!("href=\"{}\"", address(of))), "{of} {id}: {list}");
            assert!(visitor.get(&address(of)).await.expect(200).text().contains(&format!("of {id}")), "{of} {id}");
        }
        let list = visitor.get("/ui/schedules").await.expect(200).text();
        assert!(list.contains(&format!("href=\"{}\"", address("schedules"))), "{id}: {list}");
        let page = visitor.get(&address("schedules")).await.expect(200).text();
        assert!(page.contains("every 1h") && page.contains("in the configuration file"), "{page}");
        let found = visitor.get(&format!("/ui/find?q={id}")).await.expect(303);
        assert_eq!(found.header("location"), address("events"));
    }
    visitor.get("/ui/by-id/events?id=none").await.expect(404);
    visitor.get("/ui/by-id/events").await.expect(404);
    visitor.get("/ui/by-id/schedules").await.expect(404);
    visitor.get("/ui/by-id/trace").await.expect(400);
}

// SX-03: searchable in every list.
#[tokio::test]
async fn messages_are_searched_by_their_correlation_id() {
    let server = TestServer::start().await;
    let visitor = Visitor::admin(&server).await;
    let mut made = Vec::new();
    for id in ["c-1", "c-2"] {
        let message = json!({ "message_type": "reminder", "payload": { "text": "x" }, "correlation_id": id });
        let message = server.client().post("/api/messages", &message).await.expect(201).json();
        made.push(format!("/ui/messages/{}", message["message_id"].as_str().unwrap()));
    }
    let list = visitor.get("/ui/messages?correlationId=c-2&status=created").await.expect(200).text();
    assert!(!list.contains(&made[0]) && list.contains(&made[1]), "{list}");
    let none = visitor.get("/ui/messages?correlationId=c-2&status=failed").await.expect(200).text();
    assert!(!none.contains(&made[1]), "{none}");
    assert!(list.contains("value=\"c-2\""), "{list}");
}

// What went to the bus is no message of a channel, and has no page among those.
#[tokio::test]
async fn what_went_to_the_bus_is_linked_to_its_queue() {
    let server = TestServer::start().await;
    let client = server.client();
    client.put("/bus/jobs", &json!({ "kind": "queue" })).await.expect(201);
    let rule = json!({ "pattern": { "eventType": ["a"] }, "targets": [{ "channel": "queue", "entity": "jobs" }] });
    client.put("/rules/r", &rule).await.expect(201);
    client.send(&json!({ "eventId": "e1", "eventType": "a" })).await;
    let visitor = Visitor::admin(&server).await;
    let page = visitor.get("/ui/events/e1").await.expect(200).text();
    let (_, section) = page.split_once("To the bus").unwrap();
    let (_, link) = section.split_once("href=\"").unwrap();
    let (address, _) = link.split_once('"').unwrap();
    assert!(address.starts_with("/ui/bus/peek?path=jobs"), "{address}");
    visitor.get(&address.replace("&amp;", "&")).await.expect(200);
}
