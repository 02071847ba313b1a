//! `GET /alerts`: filters, months, pages, CSV.

use serde_json::{Value, json};
use tidings::alerts::record::ATTRIBUTES;

use super::{INGEST, alerts, audit_event, audit_event_with, send, server};
use crate::support::{Client, encode, engines};

/// One event of that time.
fn at(id: &str, time: &str) -> Value {
    audit_event_with(id, json!({ "timestamp": time }))
}

fn ids(alerts: &[Value]) -> Vec<&str> {
    alerts.iter().map(|alert| alert["CorrelationId"].as_str().unwrap().trim_start_matches("corr-")).collect()
}

async fn found(client: &Client, query: &str) -> Vec<String> {
    ids(&alerts(client, query).await).into_iter().map(ToOwned::to_owned).collect()
}

// S000-26 to S000-32, S000-61 to S000-63
#[tokio::test]
async fn months_are_merged_newest_first_and_days_are_whole() {
    let server = server().await;
    let client = server.client();
    let events = [
        ("jan-end", "2026-01-31T23:59:59Z"),
        ("mar", "2026-03-01T00:00:00Z"),
        ("dec", "2025-12-02T00:00:00Z"),
        ("feb", "2026-02-01T00:00:00Z"),
        ("jan", "2026-01-01T00:00:00+00:00"),
        ("feb-end", "2026-02-28T23:59:59.999Z"),
        ("earlier", "2025-12-01T23:59:59Z"),
    ];
    for (id, time) in events {
        send(&client, &at(id, time)).await;
    }
    let all = ["mar", "feb-end", "feb", "jan-end", "jan", "dec"];
    // Today is the 1st of March: 90 days with it begin on the 2nd of December.
    assert_eq!(found(&client, "").await, all);
    assert_eq!(found(&client, "?endDate=2026-02-28").await, [&all[1..], &["earlier"]].concat());
    assert_eq!(found(&client, "?startDate=2026-02-01&endDate=2026-02-28").await, ["feb-end", "feb"]);
    assert_eq!(found(&client, "?startDate=2026-01-31&endDate=2026-02-01").await, ["feb", "jan-end"]);
    assert_eq!(found(&client, "?startDate=2026-03-01").await, ["mar"]);
}

// S000-60, S000-64 to S000-66, S000-72: a question, and nothing is stored of it.
#[tokio::test]
async fn filters_narrow_it() {
    let server = server().await;
    let client = server.client();
    let events = json!([
        audit_event_with("a", json!({ "actorUserId": "aad|12345-67890", "timestamp": "2026-02-10T00:00:00Z" })),
        audit_event_with("b", json!({ "actorUserId": "aad|12345-67890", "actionId": "Process.Field.Update" })),
        audit_event_with("ab", json!({ "actionId": "Process.State.Create" })),
    ]);
    client.post(INGEST, &events).await.expect(202);
    let actor = encode("aad|12345-67890");
    assert_eq!(found(&client, &format!("?actorId={actor}")).await, ["b", "a"]);
    assert_eq!(found(&client, &format!("?actorId={actor}&action=Process.Field.Add")).await, ["a"]);
    assert_eq!(found(&client, &format!("?actorId={actor}&startDate=2026-02-11")).await, ["b"]);
    assert_eq!(found(&client, "?actorId=aad").await, Vec::<String>::new());
    assert_eq!(found(&client, "?action=Process.Field.*").await, ["b", "a"]);
    assert_eq!(found(&client, "?action=Process.Field.Add").await, ["a"]);
    assert_eq!(found(&client, "?action=Process.Field").await, Vec::<String>::new());
    // S000-27: exactly, though keys of other ids begin alike.
    assert_eq!(found(&client, "?correlationId=corr-a").await, ["a"]);
    assert_eq!(found(&client, "?correlationId=corr").await, Vec::<String>::new());
}

// S000-68 to S000-71, S000-75
#[tokio::test]
async fn bad_questions_are_refused() {
    let server = server().await;
    let client = server.client();
    for (query, fields) in [
        ("?limit=0", vec!["limit"]),
        ("?limit=1001", vec!["limit"]),
        ("?limit=-1", vec!["limit"]),
        ("?limit=abc", vec!["limit"]),
        ("?limit=", vec!["limit"]),
        ("?format=xml", vec!["format"]),
        ("?startDate=2026-03-02", vec!["startDate"]),
        ("?startDate=2026-01-31&endDate=2026-01-30", vec!["startDate"]),
        ("?startDate=2025-12-01", vec!["startDate"]),
        ("?startDate=2025-12-01&endDate=2026-03-01", vec!["startDate"]),
        ("?startDate=2026-02-30", vec!["startDate"]),
        ("?startDate=2026-3-1", vec!["startDate"]),
        ("?endDate=2026-01-01T00:00:00Z", vec!["endDate"]),
        ("?endDate=tomorrow&startDate=x&limit=0&format=x", vec!["startDate", "endDate", "limit", "format"]),
        ("?suppressed=maybe", vec!["suppressed"]),
        ("?nextToken=abc", vec!["nextToken"]),
        ("?actor=x&limit=1", vec!["actor"]),
    ] {
        assert_eq!(client.get(&format!("/alerts{query}")).await.bad_fields(), fields, "{query}");
    }
    for query in ["?limit=1", "?limit=1000", "?startDate=2025-12-02", "?startDate=2025-12-02&endDate=2026-03-01"] {
        client.get(&format!("/alerts{query}")).await.expect(200);
    }
    server.stranger().get("/alerts").await.problem(401);
    server.client_for(&["operate"]).await.get("/alerts").await.problem(403);
}

// S000-73: no row twice, none left out, while others arrive; and a token is for its question and its caller.
#[tokio::test]
async fn pages_neither_repeat_nor_skip() {
    let server = server().await;
    let client = server.client();
    let time =
        |n: u64| format!("2026-0{}-0{}T00:00:0{}Z", n % 3 + 1, n % 2 + 1, n % 4).replace("2026-03-02", "2026-03-01");
    let events: Vec<_> = (0..23).map(|n| at(&format!("e{n:02}"), &time(n))).collect();
    client.post(INGEST, &events.into()).await.expect(202);
    let whole = found(&client, "?limit=1000").await;
    assert_eq!(whole.len(), 23);
    for query in ["", &format!("&actorId={}", "3f2c1d9e-aaaa-4bbb-8ccc-dddddddddddd"), "&action=Process.*"] {
        let mut pages: Vec<String> = Vec::new();
        let mut token = String::new();
        loop {
            let page = client.get(&format!("/alerts?limit=4{query}{token}")).await.expect(200).json();
            pages.extend(ids(page["items"].as_array().unwrap()).into_iter().map(ToOwned::to_owned));
            let Some(next) = page["nextToken"].as_str() else { break };
            // Newer ones arrive, and midnight passes.
            send(&client, &at(&format!("new-{}-{}", query.len(), pages.len()), "2026-03-01T11:59:00Z")).await;
            server.clock.advance(std::time::Duration::from_secs(3600 * 2));
            token = format!("&nextToken={next}");
        }
        pages.retain(|id| !id.starts_with("new"));
        assert_eq!(pages, whole, "{query}");
        server.clock.jump_to(crate::support::server::START.parse().unwrap());
    }
    let page = client.get("/alerts?limit=4").await.json();
    let token = page["nextToken"].as_str().unwrap();
    let bad = client.get(&format!("/alerts?limit=4&action=Process.*&nextToken={token}")).await;
    assert_eq!(bad.bad_fields(), ["nextToken"]);
    let other = server.client_for(&["read"]).await;
    assert_eq!(other.get(&format!("/alerts?limit=4&nextToken={token}")).await.bad_fields(), ["nextToken"]);
    // Another size of page is the same question.
    client.get(&format!("/alerts?limit=3&nextToken={token}")).await.expect(200);
}

// S000-28: many of one second, in pages smaller and larger than they are many; more than are put into order are still all
// there, once.
#[tokio::test]
async fn alerts_of_one_second_come_by_their_keys() {
    let server = server().await;
    let client = server.client();
    for (day, count) in [(1, 60), (2, 7)] {
        let same: Vec<_> = (0..count)
            .map(|n| at(&format!("s{day}-{:03}", (n * 37) % count), &format!("2026-02-0{day}T00:00:00Z")))
            .collect();
        client.post(INGEST, &same.into()).await.expect(202);
    }
    let mut expected: Vec<String> =
        (0..60).map(|n| format!("s1-{n:03}")).chain((0..7).map(|n| format!("s2-{n:03}"))).collect();
    expected.reverse();
    // Small pages are many requests: enough on one engine.
    let limits: &[usize] = if engines::is_dynamodb() { &[30, 66] } else { &[1, 7, 8, 30, 59, 60, 66, 67, 68] };
    for limit in limits.iter().copied() {
        let mut pages: Vec<String> = Vec::new();
        let mut token = String::new();
        loop {
            let page = client.get(&format!("/alerts?limit={limit}{token}")).await.expect(200).json();
            let items = page["items"].as_array().unwrap();
            assert!(items.len() <= limit && !items.is_empty(), "{limit}: {}", items.len());
            pages.extend(ids(items).into_iter().map(ToOwned::to_owned));
            let Some(next) = page["nextToken"].as_str() else { break };
            token = format!("&nextToken={next}");
        }
        assert_eq!(pages, expected, "{limit}");
    }
}

// S000-28: the tenth comes after the second.
#[tokio::test]
async fn alerts_of_one_correlation_id_and_second_come_by_their_numbers() {
    let server = server().await;
    let client = server.client();
    for n in 1..=14 {
        let event = json!({ "correlationId": "one", "details": format!("{n}") });
        send(&client, &audit_event_with(&format!("e{n}"), event)).await;
    }
    for limit in [1, 5, 14] {
        let (mut numbers, mut token) = (Vec::new(), String::new());
        loop {
            let page = client.get(&format!("/alerts?limit={limit}{token}")).await.expect(200).json();
            let items = page["items"].as_array().unwrap();
            numbers.extend(items.iter().map(|item| item["Details"].as_str().unwrap().parse::<u32>().unwrap()));
            let Some(next) = page["nextToken"].as_str() else { break };
            token = format!("&nextToken={next}");
        }
        assert_eq!(numbers, (1..=14).rev().collect::<Vec<_>>(), "{limit}");
    }
}

#[tokio::test]
async fn more_alerts_of_one_second_than_are_put_into_order_are_all_there() {
    let server = server().await;
    let client = server.client();
    let count = 1100;
    let events: Vec<_> = (0..count).map(|n| at(&format!("m{n:04}"), "2026-02-01T00:00:00Z")).collect();
    for batch in events.chunks(500) {
        client.post(INGEST, &batch.to_vec().into()).await.expect(202);
    }
    client.post(INGEST, &vec![at("later", "2026-02-02T00:00:00Z"), at("earlier", "2026-01-31T00:00:00Z")].into()).await;
    for limit in [300, 1000] {
        let mut pages: Vec<String> = Vec::new();
        let mut token = String::new();
        loop {
            let page = client.get(&format!("/alerts?limit={limit}{token}")).await.expect(200).json();
            pages.extend(ids(page["items"].as_array().unwrap()).into_iter().map(ToOwned::to_owned));
            let Some(next) = page["nextToken"].as_str() else { break };
            token = format!("&nextToken={next}");
        }
        assert_eq!((pages.len(), pages[0].as_str(), pages[count + 1].as_str()), (count + 2, "later", "earlier"));
        pages.sort();
        pages.dedup();
        assert_eq!(pages.len(), count + 2, "{limit}");
    }
}

#[tokio::test]
async fn the_last_page_has_no_token() {
    let server = server().await;
    let client = server.client();
    client.post(INGEST, &json!([audit_event("a"), audit_event("b")])).await.expect(202);
    for (limit, more) in [(1, true), (2, false), (3, false)] {
        let page = client.get(&format!("/alerts?limit={limit}")).await.json();
        assert_eq!(page["nextToken"].is_string(), more, "{limit}");
    }
}

// S000-67, S000-73, S000-74
#[tokio::test]
async fn csv_has_the_seeds_columns_and_no_formulas() {
    let server = server().await;
    let client = server.client();
    let events = json!([
        at("a", "2026-03-01T10:00:00Z"),
        audit_event_with(
            "b",
            json!({ "actorDisplayName": "=HYPERLINK(1)", "details": "a \"b\", c\nd",
                                      "ipAddress": "@SUM(1)", "data": { "ProcessName": "-1+2" } })
        ),
    ]);
    client.post(INGEST, &events).await.expect(202);
    let answer = client.get("/alerts?format=csv").await.expect(200);
    assert_eq!(answer.header("content-type"), "text/csv; charset=utf-8; header=present");
    assert_eq!(answer.header("x-next-token"), "");
    let text = answer.text();
    assert_eq!(text.split("\r\n").next().unwrap(), ATTRIBUTES.join(","));
    let row = text.split("\r\n").nth(1).unwrap();
    for cell in [",'=HYPERLINK(1),", ",\"a \"\"b\"\", c\nd\",", ",'@SUM(1),", ",'-1+2,", ",false,,false,0,"] {
        assert!(row.contains(cell), "{cell} in {row}");
    }
    let accept = client.request(reqwest::Method::GET, "/alerts?limit=1").header("accept", "text/csv");
    let first = crate::support::Answer::to(accept).await.expect(200);
    assert!(first.text().starts_with("PartitionKey,SortKey,"));
    let next = format!("/alerts?limit=1&format=csv&nextToken={}", first.header("x-next-token"));
    assert!(client.get(&next).await.expect(200).text().contains("corr-a-"));
    // RFC 9110, 12.4.2: what has no quality is not wanted.
    for (accept, is_csv) in [
        ("text/csv;q=0, application/json", false),
        ("text/csv;q=0.5, application/json", false),
        ("application/json; q=0.1, text/csv ; q=0.2", true),
        ("text/csv, application/json", true),
        ("application/json, text/csv", false),
        ("text/csv;q=0", false),
        ("text/html, text/csv;q=0.3, */*;q=0.1", true),
    ] {
        let asked = client.request(reqwest::Method::GET, "/alerts?limit=1").header("accept", accept);
        let answer = crate::support::Answer::to(asked).await.expect(200);
        assert_eq!(answer.header("content-type").starts_with("text/csv"), is_csv, "{accept}");
    }
    // The parameter counts more than the header.
    let both = client.request(reqwest::Method::GET, "/alerts?format=json").header("accept", "text/csv");
    crate::support::Answer::to(both).await.expect(200).json();
}

// S000-59
#[tokio::test]
async fn suppressed_ones_are_shown_only_when_asked_for() {
    let server = server().await;
    let client = server.client();
    client.put("/authorized-accounts", &json!(["svc-cicd@organization.com"])).await.expect(200);
    let events = json!([audit_event("a"), audit_event_with("b", json!({ "actorUPN": "SVC-CICD@Organization.com" }))]);
    let answer = client.post(INGEST, &events).await.expect(202).json();
    assert_eq!((&answer["accepted"], &answer["suppressed"]), (&json!(1), &json!(1)));
    assert_eq!(found(&client, "").await, ["a"]);
    assert_eq!(found(&client, "?suppressed=false").await, ["a"]);
    let suppressed = alerts(&client, "?suppressed=true").await;
    assert_eq!(ids(&suppressed), ["b"]);
    assert_eq!(suppressed[0]["SuppressedBy"], "svc-cicd@organization.com");
    assert_eq!(suppressed[0]["AlertSent"], false);
}

crate::support::on_dynamodb! {
    months_are_merged_newest_first_and_days_are_whole,
    filters_narrow_it,
    alerts_of_one_second_come_by_their_keys,
    pages_neither_repeat_nor_skip,
}
