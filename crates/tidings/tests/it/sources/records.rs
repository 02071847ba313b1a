//! From a record of the stream to the inbox, once.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::json;
use tidings::config::sources::{Source, Start};
use tidings::sources::stream::{Reader, table};
use tidings::sources::{Asker, Trouble};
use tidings_store::faults::{Fault, Faulty};
use tidings_store::memory::Memory;
use tidings_store::{Error, Health, Item, Key, Page, Query, Store, Table, Write};

use super::Rig;
use super::stand_in::{Dynamo, arn};
use crate::support::{TestServer, server};

// S001-10, S001-16, S001-41
#[tokio::test]
async fn a_changed_score_is_told_once_and_the_calls_are_signed() {
    let rig = Rig::start().await;
    rig.dynamo.score("s1", 24, 30);
    rig.dynamo.score("s1", 24, 24);
    let mut reader = rig.reader();
    rig.read(&mut reader).await;
    assert_eq!((rig.told("ana").await, rig.told("ben").await), (vec![30], vec![30]));
    rig.dynamo.score("s1", 30, 18);
    rig.read(&mut reader).await;
    assert_eq!(rig.told("ana").await, [30, 18]);
    // The same after a restart, and by one that has forgotten where it was.
    rig.read(&mut rig.reader()).await;
    assert_eq!(rig.told("ana").await, [30, 18]);
    let event = rig.client.get("/events?source=dynamodb/product_score").await.expect(200).json();
    assert_eq!(event["items"].as_array().unwrap().len(), 3, "{event}");
    for asked in rig.dynamo.asked() {
        let authorization = &asked.headers["authorization"];
        assert!(authorization.starts_with("AWS4-HMAC-SHA256 Credential="), "{authorization}");
        assert!(authorization.contains("/eu-west-1/dynamodb/aws4_request"), "{authorization}");
        assert_eq!((&*asked.headers["content-type"], &*asked.path), ("application/x-amz-json-1.0", "/"));
    }
    assert_eq!(rig.metric(r#"tidings_source_records_total{source="scores",result="accepted"}"#).await.unwrap(), "3");
    let shown = rig.shown().await;
    assert_eq!((&shown["of"], &shown["kind"]), (&json!("product_score"), &json!("dynamodb-stream")));
    assert_eq!((&shown["records"], &shown["shards"]["reading"]), (&json!(3), &json!(1)), "{shown}");
}

// S001-17: an insert has no old image. T11: a word that nobody knows. S001-39: what cannot be understood is a dead letter.
#[tokio::test]
async fn odd_records_block_nothing() {
    let rig = Rig::start().await;
    rig.dynamo.add("s1", json!({ "eventName": "UNKNOWN_TO_SDK_VERSION", "dynamodb": { "Keys": {} } }));
    let mut bad = json!({ "eventName": "MODIFY", "dynamodb": { "NewImage": { "entity": { "S": "score" } } } });
    rig.dynamo.add("s1", bad.take());
    rig.dynamo.add("s1", json!({ "eventName": "INSERT", "dynamodb": { "NewImage": { "other": { "S": "x" } } } }));
    rig.dynamo.state().shard("s1").records.push(json!("no record at all"));
    rig.dynamo
        .add("s1", json!({ "eventName": "REMOVE", "userIdentity": { "Type": "Service" }, "dynamodb": { "Keys": {} } }));
    rig.dynamo.score("s1", 24, 30);
    rig.read(&mut rig.reader()).await;
    assert_eq!(rig.told("ana").await, [30]);
    let letters = rig.client.get("/dead-letters?channel=dynamodb-stream").await.expect(200).json();
    let mut reasons: Vec<_> = letters["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|letter| letter["reason"].as_str().unwrap().split_once(": ").unwrap().1)
        .collect();
    reasons.sort_unstable();
    let expected =
        ["a record must be an object", "cod_chav_patc is missing", "eventName must be INSERT, MODIFY or REMOVE"];
    assert_eq!(reasons, expected);
    let count = async |result: &str| {
        let name = format!(r#"tidings_source_records_total{{source="scores",result="{result}"}}"#);
        rig.metric(&name).await.unwrap_or_default()
    };
    assert_eq!(
        (count("accepted").await, count("rejected").await, count("unknown").await),
        ("3".into(), "1".into(), "2".into())
    );
}

// Killed, or left by the store, between the records' commit and the note of it: read again, told once.
#[tokio::test]
async fn a_failure_between_commit_and_checkpoint_tells_nobody_twice() {
    let clock = server::clock();
    let store = Arc::new(Faulty::new(Arc::new(Memory::new(clock.clone()))));
    let rig = Rig::over(TestServer::over(store.clone(), clock).await, Dynamo::start().await).await;
    rig.read(&mut rig.reader()).await;
    rig.dynamo.score("s1", 24, 30);
    // The first transaction is the event's, the second the checkpoint's.
    store.fail_nth(2, Fault::Throttled);
    let turn = rig.turn(&mut rig.reader()).await.unwrap();
    assert_eq!(turn.trouble.unwrap().trouble, Trouble::Store);
    assert_eq!(rig.told("ana").await, [30]);
    assert_eq!(rig.noted().await, [], "nothing is noted");
    let mut reader = rig.reader();
    rig.read(&mut reader).await;
    assert_eq!(rig.told("ana").await, [30]);
    assert_eq!(rig.noted().await, [("s1".to_owned(), "after".to_owned())]);
    let duplicates = rig.metric(r#"tidings_source_records_total{source="scores",result="duplicate"}"#).await;
    assert_eq!(duplicates.as_deref(), Some("1"));
    // And before the commit: nothing is passed over.
    rig.dynamo.score("s1", 30, 31);
    rig.dynamo.score("s1", 31, 32);
    store.fail_nth(2, Fault::Throttled);
    let turn = rig.turn(&mut reader).await.unwrap();
    assert!(turn.sooner.is_some_and(|wait| wait <= Duration::from_secs(1)), "{turn:?}");
    assert_eq!(rig.told("ana").await, [30, 31]);
    rig.server.clock.advance(Duration::from_secs(1));
    rig.read(&mut reader).await;
    assert_eq!(rig.told("ana").await, [30, 31, 32]);
}

/// A store that takes no event of one id.
struct Refusing(Arc<dyn Store>, &'static str);

#[async_trait]
impl Store for Refusing {
    async fn get(&self, table: &Table, key: &Key) -> Result<Option<Item>, Error> {
        self.0.get(table, key).await
    }

    async fn query(&self, table: &Table, query: &Query) -> Result<Page, Error> {
        self.0.query(table, query).await
    }

    async fn transact(&self, writes: Vec<Write>) -> Result<(), Error> {
        let refused =
            |write: &Write| write.key().is_ok_and(|key| format!("{key:?}").contains(&format!("{:?}", self.1)));
        if writes.iter().any(refused) {
            return Err(Error::Invalid("it breaks a limit".to_owned()));
        }
        self.0.transact(writes).await
    }

    async fn transact_each(&self, transactions: Vec<Vec<Write>>) -> Vec<Result<(), Error>> {
        tidings_store::transact_one_by_one(self, transactions).await
    }

    fn health(&self) -> Health {
        self.0.health()
    }
}

// What the store will never take is a dead letter like what nobody understands: the shard goes on.
#[tokio::test]
async fn a_record_that_cannot_be_stored_blocks_nothing() {
    let clock = server::clock();
    let store = Refusing(Arc::new(Memory::new(clock.clone())), "00000000000000000000000000000001");
    let rig = Rig::over(TestServer::over(Arc::new(store), clock).await, Dynamo::start().await).await;
    rig.dynamo.score("s1", 24, 30);
    rig.dynamo.score("s1", 30, 31);
    rig.read(&mut rig.reader()).await;
    assert_eq!(rig.told("ana").await, [31]);
    let letters = rig.client.get("/dead-letters?channel=dynamodb-stream").await.expect(200).json();
    let reason = letters["items"][0]["reason"].as_str().unwrap();
    assert!(reason.ends_with("it breaks a limit"), "{letters}");
}

// Whoever was overtaken finds that its checkpoint has moved, and looks anew; nobody moves one back.
#[tokio::test]
async fn two_that_read_do_not_both_advance() {
    let rig = Rig::start().await;
    let (mut slow, mut fast) = (rig.reader(), rig.reader());
    rig.read(&mut slow).await;
    let first = rig.dynamo.score("s1", 24, 30);
    rig.read(&mut fast).await;
    let failed = rig.turn(&mut slow).await.unwrap_err();
    assert_eq!(failed.trouble, Trouble::Superseded);
    let second = rig.dynamo.score("s1", 30, 31);
    rig.read(&mut fast).await;
    rig.read(&mut slow).await;
    assert_eq!(rig.told("ana").await, [30, 31]);
    let stored = rig.server.services.store.query(table(), &Query::new("scores").limit(10)).await.unwrap();
    let noted: Vec<_> = stored.items.iter().filter_map(|item| item.str("sequence")).collect();
    assert!(noted == [second.as_str()] && first < second, "{noted:?}");
}

#[tokio::test]
async fn a_source_may_begin_now_and_stays_begun() {
    let rig = Rig::start().await;
    rig.dynamo.score("s1", 1, 2);
    rig.dynamo.close("s1");
    rig.dynamo.add_shard("s2", Some("s1"));
    rig.dynamo.score("s2", 2, 3);
    let source = Source { start: Start::Latest, ..rig.dynamo.source() };
    let latest = || Reader::new(&rig.server.services, &source).unwrap();
    // An hour after all that.
    rig.server.advance(1);
    rig.read(&mut latest()).await;
    assert_eq!(rig.told("ana").await, Vec::<i64>::new());
    assert_eq!(rig.dynamo.calls("GetShardIterator")[0]["ShardIteratorType"], "LATEST");
    // It stops before it has read a single record, and one comes meanwhile.
    let mut late = json!({ "eventName": "MODIFY" });
    late["dynamodb"] = rig.dynamo.state().shard("s2").records[0]["dynamodb"].clone();
    late["dynamodb"]["ApproximateCreationDateTime"] = json!(1_772_366_400 + 3600);
    late["dynamodb"]["NewImage"]["score"] = json!({ "N": "4" });
    rig.dynamo.add("s2", late);
    rig.read(&mut latest()).await;
    assert_eq!(rig.told("ana").await, [4]);
    let skipped = rig.metric(r#"tidings_source_records_total{source="scores",result="skipped"}"#).await;
    assert_eq!(skipped.as_deref(), Some("1"));
}

#[tokio::test]
async fn a_stream_can_be_named_itself_and_pages_are_many() {
    let rig = Rig::start().await;
    for n in 0..620 {
        rig.dynamo.score("s1", n, n + 1);
    }
    let stream_arn = Some(arn("2026-03-01T00:00:00.000"));
    let source = Source { table: None, region: None, stream_arn, ..rig.dynamo.source() };
    let reader = Reader::new(&rig.server.services, &source).unwrap();
    let mut asker = Asker::new(&rig.server.services, &source, reader);
    assert_eq!(asker.turn().await, Duration::from_secs(10));
    assert_eq!(rig.client.get("/notifications/count?user=ana").await.json()["unread"], 620);
    assert!(rig.dynamo.calls("ListStreams").is_empty());
    // Older records are behind: by an hour, and then by nothing, at the end.
    assert_eq!(rig.metric(r#"tidings_source_lag_seconds{source="scores"}"#).await.as_deref(), Some("0"));
    assert_eq!(rig.metric(r#"tidings_source_up{source="scores"}"#).await.as_deref(), Some("1"));
}
