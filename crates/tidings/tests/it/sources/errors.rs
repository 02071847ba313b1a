//! When DynamoDB does not answer as it should.

use std::time::Duration;

use serde_json::json;
use tidings::sources::{Asker, Trouble};

use super::Rig;
use super::stand_in::refusal;
use crate::channels::http_server::Reply;

// Throttled on one shard: that one waits, the others go on.
#[tokio::test]
async fn a_busy_shard_waits_and_holds_up_no_other() {
    let rig = Rig::start().await;
    rig.dynamo.add_shard("s2", None);
    rig.dynamo.score("s1", 1, 2);
    rig.dynamo.score("s2", 3, 4);
    let mut reader = rig.reader();
    let mut waits = Vec::new();
    for reply in [refusal(400, "LimitExceededException"), refusal(500, "InternalServerError"), Reply::Drop] {
        rig.dynamo.instead("GetRecords", "s1|", reply);
        let turn = rig.turn(&mut reader).await.unwrap();
        waits.push(turn.sooner.unwrap());
        assert!(turn.trouble.is_some());
        assert_eq!(rig.told("ana").await, [4]);
        // Not before its time.
        let asked = |calls: Vec<serde_json::Value>| {
            calls.iter().filter(|call| call["ShardIterator"].as_str().unwrap().starts_with("s1|")).count()
        };
        let before = asked(rig.dynamo.calls("GetRecords"));
        reader.activate().await.unwrap();
        assert_eq!(asked(rig.dynamo.calls("GetRecords")), before);
        rig.server.clock.advance(waits.last().copied().unwrap());
    }
    for (wait, whole) in waits.iter().zip([1000, 2000, 4000]) {
        assert!((whole / 2..=whole).contains(&wait.as_millis()), "{waits:?}");
    }
    rig.read(&mut reader).await;
    assert_eq!(rig.told("ana").await, [4, 2]);
}

// What concerns the whole stream: said clearly, where one looks for it, and tried again.
#[tokio::test]
async fn a_stream_that_cannot_be_read_says_why() {
    let rig = Rig::start().await;
    let source = rig.dynamo.source();
    let mut asker = Asker::new(&rig.server.services, &source, rig.reader());
    let mut waits = Vec::new();
    for (operation, reply, kind, text) in [
        ("ListStreams", refusal(400, "AccessDeniedException"), "denied", "answered 400 to ListStreams: AccessDenied"),
        ("DescribeStream", refusal(400, "ResourceNotFoundException"), "missing", "to DescribeStream: ResourceNotFound"),
        ("ListStreams", Reply::status(503), "throttled", "answered 503 to ListStreams"),
        ("ListStreams", Reply::Drop, "unreachable", "http://127.0.0.1"),
        (
            "DescribeStream",
            Reply::Answer { status: 200, headers: vec![], body: "<html>".to_owned() },
            "unreadable",
            "answer to DescribeStream cannot be read",
        ),
        ("GetShardIterator", refusal(400, "UnrecognizedClientException"), "denied", "UnrecognizedClient"),
    ] {
        rig.dynamo.instead(operation, "", reply);
        waits.push(asker.turn().await);
        let error = rig.shown().await["error"].clone();
        assert_eq!(error["kind"], kind, "{error}");
        assert!(error["message"].as_str().unwrap().contains(text), "{error}");
        assert_eq!(error["failures"], waits.len(), "{error}");
        let counted = format!(r#"tidings_source_errors_total{{source="scores",kind="{kind}"}}"#);
        assert!(rig.metric(&counted).await.is_some(), "{counted}");
        assert_eq!(rig.metric(r#"tidings_source_up{source="scores"}"#).await.as_deref(), Some("0"));
    }
    assert!(waits.iter().all(|wait| (10..=60).contains(&wait.as_secs())), "{waits:?}");
    rig.dynamo.score("s1", 24, 30);
    rig.server.clock.advance(Duration::from_secs(60));
    assert_eq!(asker.turn().await, Duration::from_secs(10));
    assert_eq!((rig.told("ana").await, &rig.shown().await["error"]), (vec![30], &json!(null)));
}

#[tokio::test]
async fn streams_that_are_off_or_of_another_kind_are_named() {
    let rig = Rig::start().await;
    rig.dynamo.state().streams[0].view = "KEYS_ONLY";
    let failed = rig.reader().activate().await.unwrap_err();
    assert_eq!(failed.why, "the stream of table product_score has KEYS_ONLY; it must have NEW_AND_OLD_IMAGES");
    rig.dynamo.state().streams[0].view = "NEW_AND_OLD_IMAGES";
    // Off, but not read to its end.
    rig.dynamo.score("s1", 24, 30);
    rig.dynamo.close("s1");
    rig.dynamo.state().streams[0].status = "DISABLED";
    let mut reader = rig.reader();
    reader.activate().await.unwrap();
    assert_eq!(rig.told("ana").await, [30]);
    let failed = reader.activate().await.unwrap_err();
    assert_eq!(failed.trouble, Trouble::Missing);
    assert!(failed.why.starts_with("the stream of table product_score is switched off"), "{failed}");
    rig.dynamo.state().streams.clear();
    let failed = rig.reader().activate().await.unwrap_err();
    assert!(failed.why.starts_with("there is no table product_score here, or it has no stream"), "{failed}");
}

// A server that gives the same page for ever, or iterators that are never good, keeps us busy for a while only.
#[tokio::test]
async fn nonsense_has_an_end() {
    let rig = Rig::start().await;
    rig.dynamo.score("s1", 24, 30);
    for _ in 0..3 {
        rig.dynamo.instead("GetRecords", "", refusal(400, "ExpiredIteratorException"));
    }
    let mut reader = rig.reader();
    let turn = rig.turn(&mut reader).await.unwrap();
    assert_eq!(turn.trouble.unwrap().why, "iterators expire as soon as they are given out");
    rig.server.clock.advance(Duration::from_secs(60));
    let body =
        json!({ "StreamDescription": { "StreamStatus": "ENABLED", "Shards": [], "LastEvaluatedShardId": "s1" } });
    for _ in 0..2 {
        let body = body.to_string();
        rig.dynamo.instead("DescribeStream", "", Reply::Answer { status: 200, headers: vec![], body });
    }
    let failed = reader.activate().await.unwrap_err();
    assert!(failed.why.contains("for the page after itself"), "{failed}");
    rig.read(&mut reader).await;
    assert_eq!(rig.told("ana").await, [30]);
}
