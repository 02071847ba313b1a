//! Nodes that start together on new tables: what is made once is made once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use futures_util::future::join_all;
use tempfile::TempDir;
use tidings::app::App;
use tidings_core::time::ManualClock;
use tidings_store::{Error, Health, Item, Key, Page, Query, Store, Table, Write};
use tokio::sync::Barrier;

use super::together::store;
use crate::support::server::{self, surroundings};

const NODES: usize = 4;

/// A store whose nodes have all seen that there is no token before any of them goes on.
struct AtOnce {
    inner: Arc<dyn Store>,
    all: Arc<Barrier>,
    seen: AtomicBool,
}

#[async_trait]
impl Store for AtOnce {
    async fn get(&self, table: &Table, key: &Key) -> Result<Option<Item>, Error> {
        self.inner.get(table, key).await
    }

    async fn query(&self, table: &Table, query: &Query) -> Result<Page, Error> {
        let page = self.inner.query(table, query).await;
        if table.name() == "tidings-tokens" && !self.seen.swap(true, Ordering::Relaxed) {
            self.all.wait().await;
        }
        page
    }

    async fn transact(&self, writes: Vec<Write>) -> Result<(), Error> {
        self.inner.transact(writes).await
    }

    async fn transact_each(&self, transactions: Vec<Vec<Write>>) -> Vec<Result<(), Error>> {
        self.inner.transact_each(transactions).await
    }

    fn health(&self) -> Health {
        self.inner.health()
    }
}

async fn open(store: Arc<dyn Store>, clock: &Arc<ManualClock>) -> (App, TempDir) {
    let data = tempfile::tempdir().unwrap();
    let app = App::open_among(server::config(data.path()), surroundings(clock), store).await.unwrap();
    (app, data)
}

/// The tokens that work of those in the files.
async fn working(nodes: &[(App, TempDir)]) -> usize {
    let mut count = 0;
    for (app, data) in nodes {
        if let Ok(text) = std::fs::read_to_string(data.path().join("admin.token")) {
            assert!(app.services.tokens.recognise(text.trim()).await.unwrap().is_some(), "a token that is no good");
            count += 1;
        }
    }
    count
}

#[tokio::test]
async fn nodes_that_start_together_make_one_administrators_token() {
    let clock = server::clock();
    let store = store(&clock).await;
    let all = Arc::new(Barrier::new(NODES));
    let starts = (0..NODES).map(|_| {
        let at_once = AtOnce { inner: Arc::clone(&store), all: Arc::clone(&all), seen: AtomicBool::default() };
        open(Arc::new(at_once), &clock)
    });
    let nodes = join_all(starts).await;
    let tokens = nodes[0].0.services.tokens.list().await.unwrap();
    assert_eq!(tokens.len(), 1, "{:?}", tokens.iter().map(|token| &token.name).collect::<Vec<_>>());
    assert_eq!(working(&nodes).await, 1);
    assert_eq!(nodes.iter().filter(|(app, _)| app.first_token.is_some()).count(), 1);
    // Where all are revoked, the next start makes another, so that nobody is shut out.
    let revoked = nodes[0].0.services.tokens.revocation(&tokens[0].id);
    store.transact(vec![revoked]).await.unwrap();
    let later = open(Arc::clone(&store), &clock).await;
    assert!(later.0.first_token.is_some());
    assert_eq!(working(&[later]).await, 1);
}

crate::support::on_dynamodb! {
    nodes_that_start_together_make_one_administrators_token,
}
