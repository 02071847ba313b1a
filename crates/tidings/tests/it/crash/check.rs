//! What the server has, against what it acknowledged.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

use super::http::Connection;
use super::load::{Ledger, event};

/// What the rounds of a test came to.
#[derive(Debug, Default)]
pub struct Figures {
    pub cycles: u64,
    pub acknowledged: usize,
    pub lost: usize,
    pub doubled: usize,
    pub recovery: Duration,
}

impl Figures {
    pub fn print(&self, test: &str) {
        let Self { cycles, acknowledged, lost, doubled, recovery } = self;
        println!(
            "{test}: {cycles} cycles, {acknowledged} acknowledged, {lost} lost, {doubled} doubled, recovery at most {} ms",
            recovery.as_millis()
        );
    }
}

/// All events of a server and how often each is there.
pub struct Found {
    pub events: BTreeMap<String, Value>,
    pub doubled: Vec<String>,
}

impl Found {
    /// Pages over everything.
    pub fn list(connection: &mut Connection) -> Self {
        let (mut events, mut doubled) = (BTreeMap::new(), Vec::new());
        let mut cursor = String::new();
        loop {
            let page = connection.get(&format!("/events?limit=1000{cursor}")).expect("a page of events");
            assert_eq!(page.status, 200, "{page:?}");
            for item in page.body["items"].as_array().expect("items") {
                let id = item["eventId"].as_str().expect("an id").to_owned();
                if events.insert(id.clone(), item.clone()).is_some() {
                    doubled.push(id);
                }
            }
            match page.body["cursor"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => return Self { events, doubled },
            }
        }
    }
}

/// Compares; counts what is lost and doubled, and fails at anything that was never sent or is not as it was sent.
pub fn compare(ledger: &Ledger, connection: &mut Connection, figures: &mut Figures) -> BTreeMap<String, Value> {
    let Found { events, doubled } = Found::list(connection);
    for (id, found) in &events {
        assert!(ledger.sent.contains(id), "{id} was never sent");
        let sent = event(id);
        for field in ["eventType", "source", "data"] {
            assert_eq!(found[field], sent[field], "{field} of {id}");
        }
    }
    let mut lost: Vec<_> = ledger.acknowledged.iter().filter(|id| !events.contains_key(*id)).collect();
    // The other way to find an event: by its id.
    for id in ledger.acknowledged.iter().step_by(7).chain(ledger.acknowledged.iter().rev().take(20)) {
        let answer = connection.get(&format!("/events/{id}")).expect("an answer");
        if answer.status != 200 || answer.body["data"] != event(id)["data"] {
            lost.push(id);
        }
    }
    lost.sort();
    lost.dedup();
    if !lost.is_empty() {
        println!("lost: {lost:?}");
    }
    figures.cycles += 1;
    figures.acknowledged = ledger.acknowledged.len();
    figures.lost += lost.len();
    figures.doubled += doubled.len();
    events
}
