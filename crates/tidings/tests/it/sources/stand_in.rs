//! A stand-in that speaks DynamoDB Streams' documented JSON, for what DynamoDB Local cannot show.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};

use serde_json::{Value, json};
use tidings::config::sources::Source;

use crate::channels::http_server::{Asked, Reply, Server};

pub const TABLE: &str = "product_score";

#[derive(Default)]
pub struct Shard {
    pub id: String,
    pub parent: Option<String>,
    pub records: Vec<Value>,
    pub closed: bool,
    /// So many of its records have been removed.
    pub trimmed: usize,
}

pub struct Stream {
    pub label: String,
    pub status: &'static str,
    pub view: &'static str,
    pub shards: Vec<Shard>,
}

#[derive(Default)]
pub struct State {
    pub streams: Vec<Stream>,
    /// Shards in a page of a description.
    pub page: usize,
    /// Raised, no iterator that was given out is good any more.
    generation: u64,
    /// Answers to give instead of the real ones, once each: to which call, with what in its body.
    instead: VecDeque<(&'static str, String, Reply)>,
    number: u64,
}

pub struct Dynamo {
    server: Server,
    state: Arc<Mutex<State>>,
}

pub fn arn(label: &str) -> String {
    format!("arn:aws:dynamodb:eu-west-1:123456789012:table/{TABLE}/stream/{label}")
}

pub fn refusal(status: u16, kind: &str) -> Reply {
    let body = json!({ "__type": format!("com.amazonaws.dynamodb.v20120810#{kind}"), "message": "no" });
    Reply::Answer { status, headers: Vec::new(), body: body.to_string() }
}

fn answer(body: &Value) -> Reply {
    let headers = vec![("content-type", "application/x-amz-json-1.0".to_owned())];
    Reply::Answer { status: 200, headers, body: body.to_string() }
}

impl State {
    pub fn shard(&mut self, id: &str) -> &mut Shard {
        let mut shards = self.streams.iter_mut().flat_map(|stream| stream.shards.iter_mut());
        shards.find(|shard| shard.id == id).unwrap()
    }

    fn reply(&mut self, asked: &Asked) -> Reply {
        let operation = asked.headers["x-amz-target"].strip_prefix("DynamoDBStreams_20120810.").unwrap().to_owned();
        let text = String::from_utf8(asked.body.clone()).unwrap();
        let planned = self.instead.iter().position(|(of, with, _)| *of == operation && text.contains(with));
        if let Some(planned) = planned {
            return self.instead.remove(planned).unwrap().2;
        }
        let body: Value = serde_json::from_str(&text).unwrap();
        match operation.as_str() {
            "ListStreams" => self.list(&body),
            "DescribeStream" => self.describe(&body),
            "GetShardIterator" => self.iterator(&body),
            "GetRecords" => self.records(&body),
            other => panic!("{other} is not called"),
        }
    }

    fn list(&self, body: &Value) -> Reply {
        let mine = body["TableName"] == TABLE;
        let streams =
            self.streams.iter().filter(|_| mine).map(
                |stream| json!({ "StreamArn": arn(&stream.label), "TableName": TABLE, "StreamLabel": stream.label }),
            );
        // Newest first, to see that they are put in order.
        answer(&json!({ "Streams": streams.rev().collect::<Vec<_>>() }))
    }

    fn describe(&self, body: &Value) -> Reply {
        let Some(stream) = self.streams.iter().find(|stream| body["StreamArn"] == arn(&stream.label)) else {
            return refusal(400, "ResourceNotFoundException");
        };
        let after = body["ExclusiveStartShardId"].as_str();
        let from = after.map_or(0, |after| stream.shards.iter().position(|shard| shard.id == after).unwrap() + 1);
        let page = if self.page == 0 { 100 } else { self.page };
        let shown: Vec<_> = stream.shards.iter().skip(from).take(page).collect();
        let last = shown.last().filter(|_| from + shown.len() < stream.shards.len()).map(|shard| &shard.id);
        let shards: Vec<_> = shown
            .iter()
            .map(|shard| {
                let mut range = json!({ "StartingSequenceNumber": "100000000000000000001" });
                if shard.closed {
                    range["EndingSequenceNumber"] = json!("900000000000000000001");
                }
                let mut described = json!({ "ShardId": shard.id, "SequenceNumberRange": range });
                if let Some(parent) = &shard.parent {
                    described["ParentShardId"] = json!(parent);
                }
                described
            })
            .collect();
        let mut description = json!({
            "StreamArn": arn(&stream.label), "StreamLabel": stream.label, "StreamStatus": stream.status,
            "StreamViewType": stream.view, "TableName": TABLE, "Shards": shards,
        });
        if let Some(last) = last {
            description["LastEvaluatedShardId"] = json!(last);
        }
        answer(&json!({ "StreamDescription": description }))
    }

    fn iterator(&mut self, body: &Value) -> Reply {
        let generation = self.generation;
        let id = body["ShardId"].as_str().unwrap().to_owned();
        let shard = self.shard(&id);
        let at = match body["ShardIteratorType"].as_str().unwrap() {
            "TRIM_HORIZON" => shard.trimmed,
            "LATEST" => shard.records.len(),
            "AFTER_SEQUENCE_NUMBER" => {
                let after = &body["SequenceNumber"];
                let place = shard.records.iter().position(|record| record["dynamodb"]["SequenceNumber"] == *after);
                match place.map(|place| place + 1) {
                    Some(place) if place >= shard.trimmed => place,
                    _ => return refusal(400, "TrimmedDataAccessException"),
                }
            }
            other => panic!("{other}"),
        };
        answer(&json!({ "ShardIterator": format!("{id}|{at}|{generation}") }))
    }

    fn records(&mut self, body: &Value) -> Reply {
        let token = body["ShardIterator"].as_str().unwrap().to_owned();
        let parts: Vec<_> = token.split('|').collect();
        let (id, at, generation): (_, usize, u64) = (parts[0], parts[1].parse().unwrap(), parts[2].parse().unwrap());
        let now = self.generation;
        if generation != now {
            return refusal(400, "ExpiredIteratorException");
        }
        let shard = self.shard(id);
        if at < shard.trimmed {
            return refusal(400, "TrimmedDataAccessException");
        }
        let most = usize::try_from(body["Limit"].as_u64().unwrap()).unwrap();
        assert!((1..=1000).contains(&most));
        let records: Vec<_> = shard.records.iter().skip(at).take(most).cloned().collect();
        let end = at + records.len();
        let mut page = json!({ "Records": records });
        if !(shard.closed && end == shard.records.len()) {
            page["NextShardIterator"] = json!(format!("{id}|{end}|{now}"));
        }
        answer(&page)
    }
}

impl Dynamo {
    /// A table with one stream of one open shard, `s1`.
    pub async fn start() -> Self {
        let state = Arc::new(Mutex::new(State::default()));
        let held = Arc::clone(&state);
        let server = Server::start(move |asked| held.lock().unwrap().reply(asked)).await;
        let dynamo = Self { server, state };
        dynamo.add_stream("2026-03-01T00:00:00.000");
        dynamo.add_shard("s1", None);
        dynamo
    }

    pub fn source(&self) -> Source {
        super::source(self.server.url(""))
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    pub fn add_stream(&self, label: &str) {
        let label = label.to_owned();
        self.state().streams.push(Stream { label, status: "ENABLED", view: "NEW_AND_OLD_IMAGES", shards: Vec::new() });
    }

    /// To the newest stream.
    pub fn add_shard(&self, id: &str, parent: Option<&str>) {
        let shard = Shard { id: id.to_owned(), parent: parent.map(ToOwned::to_owned), ..Shard::default() };
        self.state().streams.last_mut().unwrap().shards.push(shard);
    }

    /// Puts a change of a score into a shard, as it happened at the tests' noon.
    pub fn score(&self, shard: &str, old: i64, new: i64) -> String {
        let image = |score: i64| {
            json!({
                "cod_chav_patc": { "S": "score#checkout" }, "cod_chav_filg": { "S": "DEV#ALL#LATEST" },
                "entity": { "S": "score" }, "score": { "N": score.to_string() },
            })
        };
        self.add(
            shard,
            json!({ "eventName": "MODIFY", "dynamodb": {
            "ApproximateCreationDateTime": 1_772_366_400.0, "NewImage": image(new), "OldImage": image(old),
            "StreamViewType": "NEW_AND_OLD_IMAGES", "SizeBytes": 142,
        } }),
        )
    }

    /// Puts a record into a shard, with an id and a number of its own; gives the number.
    pub fn add(&self, shard: &str, mut record: Value) -> String {
        let mut state = self.state();
        state.number += 1;
        let number = format!("1000000000000000{:05}", state.number + 100);
        record["eventID"] = json!(format!("{:032x}", state.number));
        record["eventVersion"] = json!("1.1");
        record["eventSource"] = json!("aws:dynamodb");
        record["awsRegion"] = json!("eu-west-1");
        record["dynamodb"]["SequenceNumber"] = json!(number);
        state.shard(shard).records.push(record);
        number
    }

    pub fn close(&self, shard: &str) {
        self.state().shard(shard).closed = true;
    }

    pub fn remove(&self, shard: &str) {
        self.state().streams.iter_mut().for_each(|stream| stream.shards.retain(|held| held.id != shard));
    }

    /// A quarter of an hour has passed for iterators.
    pub fn expire_iterators(&self) {
        self.state().generation += 1;
    }

    /// The next such call whose body has `with` is answered so.
    pub fn instead(&self, operation: &'static str, with: &str, reply: Reply) {
        self.state().instead.push_back((operation, with.to_owned(), reply));
    }

    pub fn asked(&self) -> Vec<Asked> {
        self.server.asked()
    }

    /// The calls of an operation, as their bodies.
    pub fn calls(&self, operation: &str) -> Vec<Value> {
        let asked = self.server.asked();
        let mine = asked.iter().filter(|asked| asked.headers["x-amz-target"].ends_with(&format!(".{operation}")));
        mine.map(|asked| serde_json::from_slice(&asked.body).unwrap()).collect()
    }
}
