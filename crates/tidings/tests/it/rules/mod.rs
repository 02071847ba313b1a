//! Rules from the outside: writing them, trying them, and what becomes of the events they match.

mod api;
mod builtin;
mod dry_run;
mod exclude;
mod fanout;
mod offline;
mod reactions;
mod replacement;
mod served;
mod windows;

use std::sync::Arc;

use serde_json::{Value, json};
use tidings::inbox::{Count, Entry, counter, map, record as inbox};
use tidings::messages::{Message, record as messages};
use tidings_store::memory::Memory;
use tidings_store::{Query, Store, Write};

use crate::support::{TestServer, server};

/// A server and the store under it.
struct Rig {
    server: TestServer,
    store: Arc<dyn Store>,
}

impl Rig {
    async fn start() -> Self {
        let clock = server::clock();
        let store: Arc<dyn Store> = Arc::new(Memory::new(clock.clone()));
        Self { server: TestServer::over(Arc::clone(&store), clock).await, store }
    }

    /// Writes a rule for events of type `a`, with what `more` says besides.
    async fn rule(&self, name: &str, more: Value) {
        let mut rule = json!({ "pattern": { "eventType": ["a"] } });
        rule.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let answer = self.server.client().put(&format!("/rules/{name}"), &rule).await;
        assert!(answer.status == 201 || answer.status == 200, "{}", answer.text());
    }

    async fn send(&self, event: Value) -> Value {
        self.server.client().send(&event).await
    }

    async fn outcome(&self, event_id: &str) -> Value {
        self.server.client().get(&format!("/events/{event_id}")).await.expect(200).json()["outcome"].clone()
    }

    async fn map(&self, product: &str, group: &str, users: &[&str]) {
        let users: Vec<String> = users.iter().map(ToString::to_string).collect();
        self.store.transact(vec![Write::put(inbox::table(), map::item(product, group, &users))]).await.unwrap();
    }

    async fn inbox(&self, user: &str) -> Vec<Entry> {
        entries(&*self.store, user).await
    }

    async fn unread(&self, user: &str) -> i64 {
        unread(&*self.store, user).await
    }

    async fn messages(&self, rule: &str) -> Vec<Message> {
        let query = Query::new("created").index("status-created_date-index").limit(1000);
        let page = self.server.services.store.query(&messages::table("dev"), &query).await.unwrap();
        let all = page.items.iter().map(|item| Message::from_item(item).unwrap());
        all.filter(|message| message.rule.as_deref() == Some(rule)).collect()
    }
}

/// The names of the rules in a list that the API made.
fn own_names(list: &Value) -> Vec<String> {
    let items = list["items"].as_array().unwrap();
    let own = items.iter().filter(|rule| rule["origin"] == "api");
    own.map(|rule| rule["name"].as_str().unwrap().to_owned()).collect()
}

pub async fn entries(store: &dyn Store, user: &str) -> Vec<Entry> {
    let query = Query::new(user).prefix("all#").limit(1000);
    let page = store.query(inbox::table(), &query).await.unwrap();
    page.items.iter().map(|item| Entry::from_item(item).unwrap()).collect()
}

pub async fn unread(store: &dyn Store, user: &str) -> i64 {
    let counter = store.get(inbox::table(), &counter::key(user)).await.unwrap();
    i64::try_from(Count::of(counter.as_ref(), server::START.parse().unwrap()).unread).unwrap()
}
