//! Places that are asked for events: the stream of a DynamoDB table, from a change of an item to the inbox.

mod errors;
mod local;
mod nodes;
mod records;
mod shards;
mod stand_in;

use std::time::Duration;

use serde_json::{Value, json};
use tidings::config::sources::{Kind, Source};
use tidings::sources::stream::{Reader, table};
use tidings::sources::{Failed, Turn};
use tidings_store::Query;

use crate::support::{Client, TestServer};
use stand_in::{Dynamo, TABLE};

/// A server whose map has `ana` and `ben` for the product `checkout`, and a stand-in for DynamoDB.
struct Rig {
    server: TestServer,
    client: Client,
    dynamo: Dynamo,
}

impl Rig {
    async fn start() -> Self {
        let dynamo = Dynamo::start().await;
        let source = dynamo.source();
        // Not started with the server: the tests take the turns.
        let server = TestServer::start_with(|config| config.sources = vec![Source { enabled: false, ..source }]).await;
        Self::over(server, dynamo).await
    }

    async fn over(server: TestServer, dynamo: Dynamo) -> Self {
        let client = server.client();
        client.put("/notification-map/checkout/web", &json!({ "users": ["ana", "ben"] })).await.expect(201);
        Self { server, client, dynamo }
    }

    fn reader(&self) -> Reader {
        Reader::new(&self.server.services, &self.dynamo.source()).unwrap()
    }

    /// One turn, a moment after the one before.
    async fn turn(&self, reader: &mut Reader) -> Result<Turn, Failed> {
        self.server.clock.advance(Duration::from_millis(1));
        reader.activate().await
    }

    /// Takes turns until there is nothing to read at once.
    async fn read(&self, reader: &mut Reader) {
        for _ in 0..50 {
            let turn = self.turn(reader).await.unwrap();
            assert_eq!(turn.trouble, None);
            if turn.sooner.is_none() {
                return;
            }
        }
        panic!("there is no end");
    }

    /// The scores that a user was told, oldest first.
    async fn told(&self, user: &str) -> Vec<i64> {
        let page = self.client.get(&format!("/notifications?user={user}&limit=100")).await.expect(200).json();
        let mut scores: Vec<_> =
            page["items"].as_array().unwrap().iter().map(|entry| entry["new_score"].as_i64().unwrap()).collect();
        scores.reverse();
        scores
    }

    /// The events that tell of a gap, as their data.
    async fn gaps(&self) -> Vec<Value> {
        let page = self.client.get("/events?type=dynamodb.gap").await.expect(200).json();
        page["items"].as_array().unwrap().iter().map(|event| event["data"].clone()).collect()
    }

    /// What is noted of shards: id and position.
    async fn noted(&self) -> Vec<(String, String)> {
        let page = self.server.services.store.query(table(), &Query::new("scores").limit(1000)).await.unwrap();
        let shard =
            |item: &tidings_store::Item| Some((item.str("shard_id")?.to_owned(), item.str("position")?.to_owned()));
        page.items.iter().filter_map(shard).collect()
    }

    async fn metric(&self, name: &str) -> Option<String> {
        let text = self.client.get("/metrics").await.expect(200).text();
        text.lines().find_map(|line| line.strip_prefix(name)).map(|rest| rest.trim().to_owned())
    }

    async fn shown(&self) -> Value {
        self.client.get("/sources").await.expect(200).json()["items"][0].clone()
    }
}

fn source(endpoint: String) -> Source {
    Source {
        name: "scores".to_owned(),
        kind: Some(Kind::DynamoDbStream),
        table: Some(TABLE.to_owned()),
        region: Some("eu-west-1".to_owned()),
        endpoint: Some(endpoint),
        ..Source::default()
    }
}
