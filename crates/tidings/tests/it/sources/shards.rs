//! Shards: their order, their end, and what is lost with them.

use std::time::Duration;

use serde_json::json;

use super::Rig;
use super::stand_in::{arn, refusal};

// Parents before children, over several pages of the description; new shards are found when one ends.
#[tokio::test]
async fn parents_are_read_to_their_end_before_their_children() {
    let rig = Rig::start().await;
    let dynamo = &rig.dynamo;
    dynamo.state().page = 2;
    // A grandchild, its parents and a stranger, as no order of names would have them.
    dynamo.add_shard("a-grandchild", Some("m-left"));
    dynamo.add_shard("m-left", Some("s1"));
    dynamo.add_shard("n-right", Some("s1"));
    dynamo.add_shard("z-orphan", Some("long gone"));
    dynamo.score("a-grandchild", 4, 5);
    for (shard, scores) in [("s1", 1..3), ("m-left", 3..4), ("n-right", 10..11), ("z-orphan", 20..21)] {
        scores.for_each(|score| drop(dynamo.score(shard, score, score + 1)));
    }
    dynamo.close("s1");
    dynamo.close("m-left");
    let mut reader = rig.reader();
    rig.read(&mut reader).await;
    let first = |shard: &str| {
        let asked = dynamo.calls("GetRecords");
        let mine = |call: &serde_json::Value| call["ShardIterator"].as_str().unwrap().starts_with(&format!("{shard}|"));
        (asked.iter().position(mine).unwrap(), asked.iter().rposition(mine).unwrap())
    };
    assert!(first("s1").1 < first("m-left").0 && first("s1").1 < first("n-right").0);
    assert!(first("m-left").1 < first("a-grandchild").0);
    let mut told = rig.told("ana").await;
    told.retain(|score| *score < 10);
    // The clock of the tests stands still within a turn, and inboxes go by it: the first two are of one instant.
    told[..2].sort_unstable();
    assert_eq!(told, [2, 3, 4, 5], "in the order of the shards");
    assert_eq!(rig.told("ana").await.len(), 6);
    let mut noted = rig.noted().await;
    noted.retain(|(_, position)| position == "finished");
    assert_eq!(noted.len(), 2, "{noted:?}");
    let shown = rig.shown().await["shards"].clone();
    assert_eq!(shown, json!({ "reading": 3, "waiting": 0, "finished": 2 }));
    // The last one ends; its child appears, and what is finished leaves the description.
    dynamo.close("n-right");
    dynamo.add_shard("b-child", Some("n-right"));
    dynamo.score("b-child", 11, 12);
    rig.read(&mut reader).await;
    assert!(rig.told("ana").await.contains(&12));
    dynamo.remove("s1");
    dynamo.remove("m-left");
    dynamo.remove("n-right");
    rig.server.clock.advance(Duration::from_secs(60));
    rig.read(&mut reader).await;
    assert_eq!(rig.noted().await.len(), 3, "nothing is kept of shards that are gone: {:?}", rig.noted().await);
    assert_eq!(rig.gaps().await.len(), 0);
}

#[tokio::test]
async fn an_expired_iterator_is_replaced_from_the_checkpoint() {
    let rig = Rig::start().await;
    let mut reader = rig.reader();
    rig.read(&mut reader).await;
    let number = rig.dynamo.score("s1", 24, 30);
    rig.dynamo.expire_iterators();
    rig.read(&mut reader).await;
    assert_eq!(rig.told("ana").await, [30]);
    rig.dynamo.expire_iterators();
    rig.dynamo.score("s1", 30, 31);
    rig.read(&mut reader).await;
    assert_eq!(rig.told("ana").await, [30, 31]);
    let kinds: Vec<_> = rig.dynamo.calls("GetShardIterator");
    let kinds: Vec<_> = kinds.iter().map(|call| call["ShardIteratorType"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["TRIM_HORIZON", "TRIM_HORIZON", "AFTER_SEQUENCE_NUMBER"]);
    assert_eq!(rig.dynamo.calls("GetShardIterator")[2]["SequenceNumber"], number);
    assert_eq!(rig.gaps().await.len(), 0);
}

#[tokio::test]
async fn what_was_removed_before_it_was_read_is_a_gap() {
    let rig = Rig::start().await;
    let mut reader = rig.reader();
    let number = rig.dynamo.score("s1", 24, 30);
    rig.read(&mut reader).await;
    // Down for more than a day.
    for score in 30..33 {
        rig.dynamo.score("s1", score, score + 1);
    }
    rig.dynamo.state().shard("s1").trimmed = 3;
    rig.server.advance(25);
    let mut later = rig.reader();
    rig.read(&mut later).await;
    assert_eq!(rig.told("ana").await, [30, 33], "the oldest that is there, and all after it");
    let mut gaps = rig.gaps().await;
    let noticed = gaps[0].as_object_mut().unwrap().remove("noticed_at").unwrap();
    assert!(noticed.as_str().unwrap().starts_with("2026-03-02T13:00:00."), "{noticed}");
    let expected = json!({
        "source": "scores", "table": "product_score", "stream": arn("2026-03-01T00:00:00.000"), "shard": "s1",
        "after_sequence": number,
        "reason": "records were removed from the stream before they were read",
    });
    assert_eq!(gaps, [expected]);
    assert_eq!(rig.metric(r#"tidings_source_gaps_total{source="scores"}"#).await.as_deref(), Some("1"));
    assert_eq!(rig.shown().await["gaps"], 1);
    // The one that slept looks anew: the checkpoint has moved on.
    rig.read(&mut reader).await;
    assert_eq!(rig.gaps().await.len(), 1, "told once");
}

// DynamoDB Local calls an iterator of a quiet shard outdated when other tables are written to: nothing is lost by that.
#[tokio::test]
async fn an_iterator_that_is_outdated_is_no_gap() {
    let rig = Rig::start().await;
    let mut reader = rig.reader();
    rig.read(&mut reader).await;
    let trimmed = || refusal(400, "TrimmedDataAccessException");
    // Before anything was read, and twice in a row.
    rig.dynamo.score("s1", 24, 30);
    (0..2).for_each(|_| rig.dynamo.instead("GetRecords", "s1|0|", trimmed()));
    rig.read(&mut reader).await;
    assert_eq!(rig.told("ana").await, [30]);
    // After a record.
    rig.dynamo.score("s1", 30, 31);
    rig.dynamo.instead("GetRecords", "s1|1|", trimmed());
    rig.read(&mut reader).await;
    assert_eq!(rig.told("ana").await, [30, 31]);
    assert_eq!((rig.gaps().await.len(), rig.shown().await["gaps"].as_u64()), (0, Some(0)));
    // What is really gone is told, also to one that was reading all the time.
    let number = rig.dynamo.score("s1", 31, 32);
    rig.read(&mut reader).await;
    (33..36).for_each(|score| drop(rig.dynamo.score("s1", score - 1, score)));
    rig.dynamo.state().shard("s1").trimmed = 5;
    rig.read(&mut reader).await;
    assert_eq!(rig.told("ana").await, [30, 31, 32, 35]);
    let gaps = rig.gaps().await;
    assert_eq!((gaps.len(), &gaps[0]["after_sequence"]), (1, &json!(number)));
}

#[tokio::test]
async fn a_shard_that_vanishes_takes_its_rest_with_it() {
    let rig = Rig::start().await;
    let number = rig.dynamo.score("s1", 24, 30);
    rig.read(&mut rig.reader()).await;
    rig.dynamo.remove("s1");
    rig.dynamo.add_shard("s9", Some("s5"));
    rig.dynamo.score("s9", 40, 41);
    rig.server.advance(30);
    rig.read(&mut rig.reader()).await;
    assert_eq!(rig.told("ana").await, [30, 41]);
    let gaps = rig.gaps().await;
    assert_eq!((gaps.len(), &gaps[0]["shard"], &gaps[0]["after_sequence"]), (1, &json!("s1"), &json!(number)));
    assert_eq!(rig.noted().await, [("s9".to_owned(), "after".to_owned())]);
}

// A stream that is switched off can be read for a day: it comes first, then the one that took its place.
#[tokio::test]
async fn a_former_stream_is_read_before_the_new_one() {
    let rig = Rig::start().await;
    let mut reader = rig.reader();
    rig.dynamo.score("s1", 1, 2);
    rig.read(&mut reader).await;
    rig.dynamo.score("s1", 2, 3);
    rig.dynamo.close("s1");
    rig.dynamo.state().streams[0].status = "DISABLED";
    rig.dynamo.add_stream("2026-03-01T11:00:00.000");
    rig.dynamo.add_shard("t1", None);
    rig.dynamo.score("t1", 5, 6);
    rig.read(&mut reader).await;
    assert_eq!(rig.told("ana").await, [2, 3, 6]);
    // Gone after a day, without a gap.
    rig.dynamo.state().streams.remove(0);
    rig.server.clock.advance(Duration::from_secs(61));
    rig.read(&mut reader).await;
    assert_eq!((rig.gaps().await.len(), rig.noted().await.len()), (0, 1));
}
