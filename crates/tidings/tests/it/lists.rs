//! `GET /events`: filters, order, paging; and `GET /events/{id}`.

use serde_json::{Value, json};

use crate::support::{Client, TestServer, encode};

/// Five events over three days: id, type, source, correlation id, time.
const EVENTS: [(&str, &str, &str, &str, &str); 5] = [
    ("e1", "ticket.created", "desk", "c1", "2026-02-27T00:00:00Z"),
    ("e2", "ticket.closed", "desk", "c1", "2026-02-27T23:59:59.999999Z"),
    ("e3", "ticket.created", "shop", "c2", "2026-02-28T00:00:00Z"),
    ("e4", "order.made", "shop", "c2", "2026-02-28T12:00:00.5Z"),
    ("e5", "tickets", "desk", "c3", "2026-03-01T11:00:00Z"),
];

async fn with_events() -> TestServer {
    let server = TestServer::start().await;
    let batch: Vec<_> = EVENTS
        .iter()
        .map(|(id, event_type, source, correlation, at)| {
            json!({ "eventId": id, "eventType": event_type, "source": source, "correlationId": correlation,
                "eventTimestamp": at })
        })
        .collect();
    server.client().post("/events", &json!(batch)).await.expect(202);
    server
}

async fn check(client: &Client, query: &str, expected: &[&str]) {
    assert_eq!(client.ids(&format!("/events?{query}")).await, expected, "{query}");
    // The same in the smallest pages.
    let pages = client.pages(&format!("/events?limit=1&{query}")).await;
    assert_eq!(pages.concat(), expected, "{query}, one by one");
}

// SX-10
#[tokio::test]
async fn events_come_newest_first() {
    let server = with_events().await;
    check(&server.client(), "", &["e5", "e4", "e3", "e2", "e1"]).await;
}

#[tokio::test]
async fn an_empty_list_is_a_list() {
    let server = TestServer::start().await;
    let empty = json!({ "items": [], "cursor": null });
    assert_eq!(server.client().get("/events").await.expect(200).json(), empty);
    for filter in ["type=a", "type=a*", "source=a", "correlationId=a", "from=2026-01-01", "to=2026-01-01"] {
        assert_eq!(server.client().get(&format!("/events?{filter}")).await.expect(200).json(), empty);
    }
}

// SX-03: searchable by correlation id, and by the rest.
#[tokio::test]
async fn each_filter_selects() {
    let server = with_events().await;
    let client = server.client();
    check(&client, "type=ticket.created", &["e3", "e1"]).await;
    check(&client, "type=ticket.", &[]).await;
    check(&client, "type=ticket.*", &["e3", "e2", "e1"]).await;
    check(&client, "type=ticket*", &["e5", "e3", "e2", "e1"]).await;
    check(&client, "type=*", &["e5", "e4", "e3", "e2", "e1"]).await;
    check(&client, "source=shop", &["e4", "e3"]).await;
    check(&client, "correlationId=c1", &["e2", "e1"]).await;
    check(&client, "type=TICKET.CREATED", &[]).await;
    check(&client, "source=", &["e5", "e4", "e3", "e2", "e1"]).await;
}

#[tokio::test]
async fn filters_combine() {
    let server = with_events().await;
    let client = server.client();
    check(&client, "type=ticket.created&source=desk", &["e1"]).await;
    check(&client, "type=ticket.*&source=desk", &["e2", "e1"]).await;
    check(&client, "correlationId=c2&type=order.made", &["e4"]).await;
    check(&client, "correlationId=c2&source=desk", &[]).await;
    check(&client, "source=desk&from=2026-02-28", &["e5"]).await;
    check(&client, "type=ticket.created&to=2026-02-27", &["e1"]).await;
    check(&client, "type=t*&from=2026-02-27&to=2026-02-28&source=shop&correlationId=c2", &["e3"]).await;
}

// Both ends are inclusive; a date is its whole day.
#[tokio::test]
async fn from_and_to_are_inclusive() {
    let server = with_events().await;
    let client = server.client();
    check(&client, "from=2026-02-28", &["e5", "e4", "e3"]).await;
    check(&client, "to=2026-02-27", &["e2", "e1"]).await;
    check(&client, "from=2026-02-27&to=2026-02-27", &["e2", "e1"]).await;
    check(&client, "from=2026-02-28T12:00:00.5Z", &["e5", "e4"]).await;
    check(&client, "from=2026-02-28T12:00:00.500001Z", &["e5"]).await;
    check(&client, "to=2026-02-28T00:00:00Z", &["e3", "e2", "e1"]).await;
    check(&client, "to=2026-02-27T23:59:59.999998Z", &["e1"]).await;
    check(&client, "from=2026-02-28T12:00:00.5Z&to=2026-02-28T12:00:00.5Z", &["e4"]).await;
    let with_offset = encode("2026-02-28T02:00:00+02:00");
    check(&client, &format!("from={with_offset}&to={with_offset}"), &["e3"]).await;
    check(&client, "from=2030-01-01", &[]).await;
    check(&client, "to=1999-01-01", &[]).await;
}

fn at(day: usize, n: usize) -> Value {
    json!({ "eventId": format!("d{day}-{n}"), "eventType": if n.is_multiple_of(2) { "even" } else { "odd" }, "source": "s",
        "correlationId": "c", "eventTimestamp": format!("2026-02-{day:02}T{n:02}:00:00Z") })
}

// SX-10: stable while new items arrive: no repeats, no gaps.
#[tokio::test]
async fn pages_neither_repeat_nor_skip_while_events_arrive() {
    for filter in ["", "&type=even", "&type=e*", "&source=s", "&correlationId=c"] {
        let server = TestServer::start().await;
        let client = server.client();
        let events: Vec<_> = (1..=5).flat_map(|day| (0..10).map(move |n| at(day, n))).collect();
        client.post("/events", &json!(events)).await.expect(202);
        let expected = client.ids(&format!("/events?limit=1000{filter}")).await;
        assert!(expected.len() >= 25);
        let (mut seen, mut cursor, mut pages) = (Vec::new(), String::new(), 0);
        loop {
            let page = client.get(&format!("/events?limit=7{filter}{cursor}")).await.expect(200);
            seen.extend(page.ids());
            pages += 1;
            // One newer than all, as live traffic has it, between any two pages.
            client.send(&json!({ "eventType": "even", "source": "s", "correlationId": "c" })).await;
            match page.cursor() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => break,
            }
        }
        assert_eq!(seen, expected, "{filter}");
        assert!(pages > 3, "{pages} pages");
    }
}

// SX-10: events of one instant have an order, too.
#[tokio::test]
async fn events_of_the_same_instant_are_all_listed() {
    let server = TestServer::start().await;
    let batch: Vec<_> = (0..20).map(|n| json!({ "eventId": n.to_string(), "eventType": "a" })).collect();
    server.client().post("/events", &json!(batch)).await.expect(202);
    for filter in ["", "&type=a"] {
        let mut ids = server.client().pages(&format!("/events?limit=3{filter}")).await.concat();
        assert_eq!(ids.len(), 20);
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len(), 20);
    }
}

#[tokio::test]
async fn a_page_has_fifty_events_unless_told_otherwise() {
    let server = TestServer::start().await;
    let batch = vec![json!({ "eventType": "a" }); 60];
    server.client().post("/events", &json!(batch)).await.expect(202);
    assert_eq!(server.client().ids("/events").await.len(), 50);
    let lengths: Vec<_> = server.client().pages("/events?limit=25").await.iter().map(Vec::len).collect();
    assert_eq!(lengths, [25, 25, 10]);
}

#[tokio::test]
async fn one_event_is_found_by_id_and_by_source() {
    let server = TestServer::start().await;
    let client = server.client();
    for (source, at) in
        [(Some("a"), "2026-01-01T00:00:00Z"), (Some("b"), "2026-01-02T00:00:00Z"), (None, "2026-01-03T00:00:00Z")]
    {
        client.send(&json!({ "eventId": "e 1/ä", "eventType": "t", "source": source, "eventTimestamp": at })).await;
        server.clock.advance(std::time::Duration::from_secs(1));
    }
    let path = format!("/events/{}", encode("e 1/ä"));
    assert_eq!(client.get(&path).await.expect(200).json()["eventTimestamp"], "2026-01-03T00:00:00.000000Z");
    for source in ["a", "b"] {
        let found = client.get(&format!("{path}?source={source}")).await.expect(200).json();
        assert_eq!(found["source"], source);
    }
    client.get(&format!("{path}?source=c")).await.problem(404);
    client.get("/events/unknown").await.problem(404);
}

// SX-10: a filter that fits nothing answers soon, however many days it has to look through; its cursor leads on.
#[tokio::test]
async fn a_page_looks_at_a_bounded_number_of_events() {
    let server = TestServer::start().await;
    let client = server.client();
    let days = 10_050;
    let first: jiff::civil::Date = "1990-01-01".parse().unwrap();
    let events: Vec<_> = (0..days)
        .map(|n| {
            let day = first + jiff::Span::new().days(n);
            let event_type = if n == 0 { "rare" } else { "common" };
            json!({ "eventId": n.to_string(), "eventType": event_type, "eventTimestamp": format!("{day}T00:00:00Z") })
        })
        .collect();
    for batch in events.chunks(1000) {
        client.post("/events", &json!(batch)).await.expect(202);
    }
    assert_eq!(client.pages("/events?type=rar*").await, [vec![], vec!["0".to_owned()]]);
}

#[tokio::test]
async fn a_prefix_that_fits_little_is_found_across_many_days() {
    let server = TestServer::start().await;
    let client = server.client();
    let events: Vec<_> = (1..=28)
        .map(|day| {
            json!({ "eventId": day.to_string(), "eventType": if day == 1 { "rare" } else { "common" },
            "eventTimestamp": format!("2026-02-{day:02}T00:00:00Z") })
        })
        .collect();
    client.post("/events", &json!(events)).await.expect(202);
    check(&client, "type=rar*", &["1"]).await;
}

// SX-10: a page of large events is cut by its size, and its cursor leads on.
#[tokio::test]
async fn a_page_of_large_events_is_short() {
    let server = TestServer::start().await;
    let client = server.client();
    let events = 20;
    for n in 0..events {
        let event = json!({ "eventId": n.to_string(), "eventType": "large", "data": { "x": "y".repeat(250 * 1024) } });
        client.send(&event).await;
    }
    let pages = client.pages("/events?type=large&limit=1000").await;
    assert!(pages.len() > 1 && pages[0].len() < events, "{} pages", pages.len());
    assert_eq!(pages.concat().len(), events);
}
