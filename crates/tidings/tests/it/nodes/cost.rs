//! What is asked of the store, counted: on DynamoDB every request has a price (see `docs/operations.md`).
//!
//! There is no scan to count: `Store` has none.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use serde_json::{Value, json};
use tidings_store::memory::Memory;
use tidings_store::{Error, Health, Item, Key, Page, Query, Store, Table, Write};

use crate::bus::receive;
use crate::support::{TestServer, server};

/// Requests and their units, by the table they are about; a transaction is that of its first table in the alphabet.
#[derive(Debug, Clone, Default, PartialEq)]
struct Asked {
    gets: BTreeMap<String, u64>,
    queries: BTreeMap<String, u64>,
    transactions: BTreeMap<Vec<String>, u64>,
    read_units: u64,
    write_units: u64,
}

impl Asked {
    fn gets_of(&self, table: &str) -> u64 {
        self.gets.get(table).copied().unwrap_or(0)
    }

    fn queries_of(&self, table: &str) -> u64 {
        self.queries.get(table).copied().unwrap_or(0)
    }

    fn reads_of(&self, table: &str) -> u64 {
        self.gets_of(table) + self.queries_of(table)
    }

    /// Transactions that are about one of these tables.
    fn transactions_of(&self, tables: &[&str]) -> u64 {
        let about = |names: &&Vec<String>| names.iter().any(|name| tables.contains(&name.as_str()));
        self.transactions.iter().filter(|(names, _)| about(names)).map(|(_, count)| count).sum()
    }
}

struct Meter {
    inner: Memory,
    asked: Mutex<Asked>,
}

impl Meter {
    fn take(&self) -> Asked {
        std::mem::take(&mut self.asked.lock().unwrap())
    }

    fn read(&self, table: &Table, is_query: bool, bytes: usize) {
        let mut asked = self.asked.lock().unwrap();
        let reads = if is_query { &mut asked.queries } else { &mut asked.gets };
        *reads.entry(table.name().to_owned()).or_default() += 1;
        // A strongly consistent read: one unit for every 4 KB begun.
        asked.read_units += bytes.div_ceil(4096).max(1) as u64;
    }

    /// A write in a transaction is two units for every KB begun, and one for each index that has the item.
    async fn units(&self, write: &Write) -> u64 {
        let kb = |item: &Item| item.size().div_ceil(1024).max(1) as u64;
        let before = self.inner.get(write.table(), &write.key().unwrap()).await.unwrap();
        let after = write.apply(before.clone()).unwrap();
        let larger = before.iter().chain(&after).map(kb).max().unwrap_or(1);
        let has = |item: &Item, index: &tidings_store::Index| item.get(&index.partition.0).is_some();
        let indexes = write
            .table()
            .indexes()
            .iter()
            .filter(|index| before != after && before.iter().chain(&after).any(|item| has(item, index)));
        2 * larger + indexes.count() as u64 * larger
    }
}

#[async_trait]
impl Store for Meter {
    async fn get(&self, table: &Table, key: &Key) -> Result<Option<Item>, Error> {
        let item = self.inner.get(table, key).await?;
        self.read(table, false, item.as_ref().map_or(0, Item::size));
        Ok(item)
    }

    async fn query(&self, table: &Table, query: &Query) -> Result<Page, Error> {
        let page = self.inner.query(table, query).await?;
        self.read(table, true, page.items.iter().map(Item::size).sum());
        Ok(page)
    }

    async fn transact(&self, writes: Vec<Write>) -> Result<(), Error> {
        let mut units = 0;
        for write in &writes {
            units += self.units(write).await;
        }
        {
            let mut tables: Vec<String> = writes.iter().map(|write| write.table().name().to_owned()).collect();
            tables.sort();
            tables.dedup();
            let mut asked = self.asked.lock().unwrap();
            *asked.transactions.entry(tables).or_default() += 1;
            asked.write_units += units;
        }
        self.inner.transact(writes).await
    }

    async fn transact_each(&self, transactions: Vec<Vec<Write>>) -> Vec<Result<(), Error>> {
        let mut outcomes = Vec::new();
        for writes in transactions {
            outcomes.push(self.transact(writes).await);
        }
        outcomes
    }

    fn health(&self) -> Health {
        self.inner.health()
    }
}

async fn metered() -> (Arc<Meter>, TestServer) {
    let clock = server::clock();
    let meter = Arc::new(Meter { inner: Memory::new(clock.clone()), asked: Mutex::default() });
    let server = TestServer::among(Arc::clone(&meter) as Arc<dyn Store>, clock, None).await;
    (meter, server)
}

const EVENTS: u64 = 50;

#[tokio::test]
async fn an_event_is_one_transaction_and_a_page_of_an_inbox_one_query() {
    let (meter, server) = metered().await;
    let client = server.client();
    let rule = json!({ "pattern": { "eventType": ["order.placed"] }, "title": "Order {{ data.id }}",
        "targets": [{ "channel": "inbox", "users": ["u1"] }] });
    client.put("/rules/orders", &rule).await.expect(201);
    for (kind, inboxes) in [("order.seen", 0), ("order.placed", 1)] {
        client.send(&json!({ "eventId": format!("first-{kind}"), "eventType": kind, "data": {} })).await;
        meter.take();
        for n in 0..EVENTS {
            let event = json!({ "eventId": format!("{kind}-{n}"), "eventType": kind, "data": { "id": n } });
            client.send(&event).await;
        }
        let asked = meter.take();
        let inbox = tidings::inbox::record::table().name();
        let about = asked.transactions_of(&["tidings-events", "tidings-event-ids", inbox]);
        assert_eq!(about, EVENTS, "{asked:?}");
        assert_eq!(asked.transactions_of(&[inbox]), EVENTS * inboxes, "{asked:?}");
        println!(
            "{kind}: {:.1} write units and {:.1} read units for each event",
            asked.write_units as f64 / EVENTS as f64,
            asked.read_units as f64 / EVENTS as f64
        );
        assert!(asked.write_units <= EVENTS * 40, "{asked:?}");
    }
    // Every page is one query, whatever the filter; beside it the counter of unread entries is one get.
    let ids: Vec<Value> = client.get("/notifications?user=u1&limit=20").await.expect(200).json()["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| json!({ "user": "u1", "notification_identifier": item["notification_identifier"] }))
        .collect();
    client.post("/notifications", &Value::from(ids)).await.expect(200);
    let table = tidings::inbox::record::table().name();
    for (filter, least) in [("", 5), ("&status=unread", 3), ("&status=read", 2), ("&status=read&sort=read_at", 2)] {
        meter.take();
        let mut pages = 0;
        let mut cursor = String::new();
        loop {
            let path = format!("/notifications?user=u1&limit=10{filter}{cursor}");
            let page = client.get(&path).await.expect(200).json();
            pages += 1;
            let asked = meter.take();
            assert_eq!((asked.queries_of(table), asked.gets_of(table)), (1, 1), "{path}: {asked:?}");
            assert_eq!(asked.transactions_of(&[table]), 0, "{path}: {asked:?}");
            match page["LastEvaluatedKey"].as_str() {
                Some(next) => cursor = format!("&lastitemretrieved={next}"),
                None => break,
            }
        }
        assert!(pages >= least, "{filter}: {pages} pages");
    }
    // The same page again, with nothing changed: no query at all.
    client.get("/notifications?user=u1&limit=10").await.expect(200);
    let asked = meter.take();
    assert_eq!((asked.queries_of(table), asked.gets_of(table)), (0, 1), "{asked:?}");
}

#[tokio::test]
async fn a_message_of_a_queue_takes_far_less_than_three_requests() {
    const MESSAGES: usize = 400;
    let (meter, server) = metered().await;
    let client = server.client();
    client.put("/bus/q", &json!({ "lockSeconds": 60 })).await.expect(201);
    server.services.look_at_nodes().await.unwrap();
    meter.take();
    for batch in 0..MESSAGES / 100 {
        let body: Vec<Value> = (0..100).map(|n| json!({ "Body": format!("{batch}-{n}") })).collect();
        let media_type = "application/vnd.microsoft.servicebus.json";
        client.post_as("/bus/q/messages", media_type, Value::from(body).to_string()).await.expect(201);
    }
    let mut done = 0;
    while done < MESSAGES {
        let messages = receive(&client, "q", 100).await;
        let settle: Vec<Value> =
            messages.iter().map(|m| json!({ "lockToken": m["lockToken"], "action": "complete" })).collect();
        client.post("/bus/q/settle", &Value::from(settle)).await.expect(200);
        done += messages.len();
    }
    let asked = meter.take();
    let bus = ["tidings-bus", "tidings-bus-seen", "tidings-bus-history"];
    let requests = asked.transactions_of(&bus) + bus.iter().map(|table| asked.reads_of(table)).sum::<u64>();
    println!(
        "{:.3} requests, {:.1} write units and {:.2} read units for each message",
        requests as f64 / MESSAGES as f64,
        asked.write_units as f64 / MESSAGES as f64,
        asked.read_units as f64 / MESSAGES as f64
    );
    assert!(requests <= 3 * MESSAGES as u64, "{asked:?}");
}
