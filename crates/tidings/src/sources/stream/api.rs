//! The four calls of DynamoDB Streams, each a signed POST.

use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tidings_core::time::Timestamp;
use tidings_dynamodb::KeyChain;
use tokio::sync::Mutex;

use super::checkpoint::Position;
use super::shards::{Shard, Shards};
use crate::app::Services;
use crate::aws::{Credentials, Refusal, Service};
use crate::channel::answer::retry_after;
use crate::config::Secret;
use crate::config::sources::Source;
use crate::engine;
use crate::outbound::Outbound;
use crate::sources::{Failed, Trouble};

const MEDIA_TYPE: &str = "application/x-amz-json-1.0";
/// A page of records has at most 1 MB of them; as JSON it is more.
const ANSWER_BYTES: usize = 32 * 1024 * 1024;
/// Pages of a list: more than any stream has.
const PAGES: usize = 1000;
/// Keys are looked up anew so long before they run out, and at least so often.
const KEYS_BEFORE: Duration = Duration::from_secs(300);
const KEYS_EVERY: Duration = Duration::from_secs(900);
/// Errors that pass by themselves.
const PASSING: [&str; 8] = [
    "LimitExceededException",
    "ThrottlingException",
    "ProvisionedThroughputExceededException",
    "RequestLimitExceeded",
    "InternalServerError",
    "InternalFailure",
    "ServiceUnavailable",
    "TransactionInProgressException",
];
/// Errors of who we are, or of what we may.
const DENIED: [&str; 9] = [
    "AccessDeniedException",
    "UnrecognizedClientException",
    "ExpiredTokenException",
    "InvalidSignatureException",
    "IncompleteSignatureException",
    "MissingAuthenticationTokenException",
    "MissingAuthenticationToken",
    "InvalidClientTokenId",
    "OptInRequired",
];

/// Why there is no answer.
#[derive(Debug)]
pub enum Error {
    /// The iterator is older than a quarter of an hour.
    Expired,
    /// What was asked for is older than a day, and gone.
    Trimmed,
    Failed(Failed),
}

impl From<Failed> for Error {
    fn from(failed: Failed) -> Self {
        Self::Failed(failed)
    }
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        match error {
            Error::Expired => Self::new(Trouble::Throttled, "iterators expire as soon as they are given out"),
            Error::Trimmed => Self::new(Trouble::Throttled, "records are removed faster than they can be asked for"),
            Error::Failed(failed) => failed,
        }
    }
}

/// A stream as it is described.
#[derive(Debug, Clone)]
pub struct Description {
    pub arn: String,
    /// `ENABLING`, `ENABLED`, `DISABLING` or `DISABLED`.
    pub status: String,
    /// `NEW_AND_OLD_IMAGES`, hopefully.
    pub view: String,
    pub table: String,
    pub shards: Shards,
}

/// Records, and where those after them are; absent: the shard is read to its end.
#[derive(Debug)]
pub struct Page {
    pub records: Vec<Value>,
    pub next: Option<String>,
}

pub struct Api {
    services: Services,
    outbound: Outbound,
    endpoint: Option<String>,
    region: Option<String>,
    signing: Mutex<Signing>,
}

/// Who we are, once that is known.
#[derive(Default)]
struct Signing {
    chain: Option<KeyChain>,
    service: Option<(Service, Timestamp)>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", default)]
#[derive(Default)]
struct Listed {
    streams: Vec<ListedStream>,
    last_evaluated_stream_arn: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ListedStream {
    stream_arn: String,
    #[serde(default)]
    stream_label: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Described {
    stream_description: StreamDescription,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "PascalCase", default)]
struct StreamDescription {
    stream_status: String,
    stream_view_type: String,
    table_name: String,
    shards: Vec<DescribedShard>,
    last_evaluated_shard_id: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct DescribedShard {
    shard_id: String,
    parent_shard_id: Option<String>,
    #[serde(default)]
    sequence_number_range: Range,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "PascalCase", default)]
struct Range {
    starting_sequence_number: Option<String>,
    ending_sequence_number: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Iterator {
    shard_iterator: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Records {
    #[serde(default)]
    records: Vec<Box<RawValue>>,
    next_shard_iterator: Option<String>,
}

impl Api {
    /// # Errors
    ///
    /// What is wrong with the source, as a sentence.
    pub fn new(services: &Services, source: &Source) -> Result<Self, String> {
        let outbound = Outbound::trusted().map_err(|error| error.to_string())?;
        let arns = source.stream_arn.as_deref().and_then(|arn| arn.split(':').nth(3));
        let region = source.region.clone().or_else(|| arns.map(ToOwned::to_owned));
        let endpoint = source.endpoint.clone();
        Ok(Self { services: services.clone(), outbound, endpoint, region, signing: Mutex::default() })
    }

    /// The streams that a table has or had within a day, oldest first.
    pub async fn streams(&self, table: &str) -> Result<Vec<String>, Failed> {
        let mut streams: Vec<ListedStream> = Vec::new();
        let mut after: Option<String> = None;
        for _ in 0..PAGES {
            let mut body = json!({ "TableName": table, "Limit": 100 });
            set(&mut body, "ExclusiveStartStreamArn", after.as_deref());
            let page: Listed = self.call("DynamoDBStreams_20120810.ListStreams", &body).await?;
            streams.extend(page.streams);
            match page.last_evaluated_stream_arn {
                Some(last) if after.as_ref() != Some(&last) => after = Some(last),
                _ => break,
            }
        }
        // Labels are times.
        streams.sort_by(|a, b| a.stream_label.cmp(&b.stream_label));
        Ok(streams.into_iter().map(|stream| stream.stream_arn).collect())
    }

    /// A stream with all its shards.
    pub async fn describe(&self, arn: &str) -> Result<Description, Failed> {
        let mut shards = Shards::new();
        let mut after: Option<String> = None;
        for _ in 0..PAGES {
            let mut body = json!({ "StreamArn": arn });
            set(&mut body, "ExclusiveStartShardId", after.as_deref());
            let page: Described = self.call("DynamoDBStreams_20120810.DescribeStream", &body).await?;
            let page = page.stream_description;
            shards.extend(page.shards.into_iter().map(|shard| (shard.shard_id.clone(), Shard::from(shard))));
            match page.last_evaluated_shard_id {
                Some(last) if after.as_ref() != Some(&last) => after = Some(last),
                Some(last) => {
                    let why = format!("the stream's description gives {last:?} for the page after itself");
                    return Err(Failed::new(Trouble::Unreadable, why));
                }
                None => {
                    let (status, view, table) = (page.stream_status, page.stream_view_type, page.table_name);
                    return Ok(Description { arn: arn.to_owned(), status, view, table, shards });
                }
            }
        }
        Err(Failed::new(Trouble::Unreadable, "the stream's description has no end"))
    }

    /// Where to begin to read; `latest` leaves out all that is there already.
    pub async fn iterator(&self, arn: &str, shard: &str, position: &Position, latest: bool) -> Result<String, Error> {
        let (kind, sequence) = match position {
            Position::After(sequence) => ("AFTER_SEQUENCE_NUMBER", Some(sequence.as_str())),
            _ if latest => ("LATEST", None),
            _ => ("TRIM_HORIZON", None),
        };
        let mut body = json!({ "StreamArn": arn, "ShardId": shard, "ShardIteratorType": kind });
        set(&mut body, "SequenceNumber", sequence);
        let answer: Iterator = self.call("DynamoDBStreams_20120810.GetShardIterator", &body).await?;
        Ok(answer.shard_iterator)
    }

    pub async fn records(&self, iterator: &str, limit: usize) -> Result<Page, Error> {
        let body = json!({ "ShardIterator": iterator, "Limit": limit });
        let answer: Records = self.call("DynamoDBStreams_20120810.GetRecords", &body).await?;
        // One that cannot be read is still one: it becomes a dead letter, as text.
        let record = |raw: Box<RawValue>| serde_json::from_str(raw.get()).unwrap_or_else(|_| raw.get().into());
        Ok(Page { records: answer.records.into_iter().map(record).collect(), next: answer.next_shard_iterator })
    }

    async fn call<T: DeserializeOwned>(&self, target: &'static str, body: &Value) -> Result<T, Error> {
        let now = self.services.clock.now();
        let service = self.service(now).await?;
        let request = service.post(MEDIA_TYPE, Some(target), body.to_string(), now);
        let response = self.outbound.send_up_to(request, ANSWER_BYTES).await;
        let response = response.map_err(|error| Failed::new(Trouble::Unreachable, error.to_string()))?;
        let operation = target.rsplit('.').next().unwrap_or_default();
        if response.status != 200 {
            let refusal: Refusal = serde_json::from_slice(&response.body).unwrap_or_default();
            let after = retry_after(&response.headers, now);
            return Err(self.refused(operation, response.status, &refusal, after, &service).await);
        }
        if response.body.len() >= ANSWER_BYTES {
            let why = format!("DynamoDB's answer to {operation} has more than {ANSWER_BYTES} bytes");
            return Err(Failed::new(Trouble::Unreadable, why).into());
        }
        serde_json::from_slice(&response.body).map_err(|error| {
            let why = format!("DynamoDB's answer to {operation} cannot be read: {error}");
            Failed::new(Trouble::Unreadable, why).into()
        })
    }

    async fn refused(
        &self,
        operation: &str,
        status: u16,
        refusal: &Refusal,
        after: Option<Duration>,
        service: &Service,
    ) -> Error {
        let kind = refusal.kind.rsplit('#').next().unwrap_or_default();
        match kind {
            "ExpiredIteratorException" => return Error::Expired,
            "TrimmedDataAccessException" => return Error::Trimmed,
            _ => {}
        }
        let trouble = match status {
            _ if PASSING.contains(&kind) => Trouble::Throttled,
            _ if DENIED.contains(&kind) => Trouble::Denied,
            _ if kind == "ResourceNotFoundException" => Trouble::Missing,
            401 | 403 => Trouble::Denied,
            404 => Trouble::Missing,
            408 | 429 | 500.. => Trouble::Throttled,
            _ => Trouble::Unreadable,
        };
        if trouble == Trouble::Denied {
            // Perhaps there are others by now.
            *self.signing.lock().await = Signing::default();
        }
        let said = crate::channel::quote(&format!("{kind} {}", refusal.message), &service.credentials.secrets());
        let why = format!("DynamoDB answered {status} to {operation}: {said}");
        Failed { after, ..Failed::new(trouble, why) }.into()
    }

    /// Where calls go, signed with keys that are good for a while.
    async fn service(&self, now: Timestamp) -> Result<Service, Failed> {
        let mut signing = self.signing.lock().await;
        if let Some((service, until)) = &signing.service
            && now < *until
        {
            return Ok(service.clone());
        }
        if signing.chain.is_none() {
            signing.chain = Some(engine::keys(self.region.as_deref(), self.endpoint.as_deref()).await);
        }
        let chain = signing.chain.as_ref().ok_or_else(|| Failed::new(Trouble::Denied, "nobody is known"))?;
        let why = "no AWS region is known; set the source's `region`, or AWS_REGION";
        let region = chain.region().ok_or_else(|| Failed::new(Trouble::Missing, why))?;
        let keys = chain.keys().await.map_err(|why| Failed::new(Trouble::Denied, why))?;
        let until = now.saturating_add(KEYS_EVERY).unwrap_or(Timestamp::MAX);
        let until = match keys.expires.map(|at| at.saturating_sub(KEYS_BEFORE)) {
            Some(at) => {
                until.min(Timestamp::from_second(i64::try_from(at.as_secs()).unwrap_or(i64::MAX)).unwrap_or(until))
            }
            None => until,
        };
        let credentials = Credentials {
            access_key_id: keys.access,
            secret_access_key: Secret::new(keys.secret),
            session_token: keys.token.map(Secret::new),
        };
        let url = format!("{}/", self.address(&region).trim_end_matches('/'));
        let service = Service::new(&self.outbound, &url, ("dynamodb", region), credentials)
            .map_err(|error| Failed::new(Trouble::Unreachable, error.to_string()))?;
        signing.service = Some((service.clone(), until));
        Ok(service)
    }

    fn address(&self, region: &str) -> String {
        let domain = if region.starts_with("cn-") { "amazonaws.com.cn" } else { "amazonaws.com" };
        self.endpoint.clone().unwrap_or_else(|| format!("https://streams.dynamodb.{region}.{domain}"))
    }
}

impl From<DescribedShard> for Shard {
    fn from(shard: DescribedShard) -> Self {
        let Range { starting_sequence_number: first, ending_sequence_number: last } = shard.sequence_number_range;
        Self { id: shard.shard_id, parent: shard.parent_shard_id, first, closed: last.is_some() }
    }
}

fn set(body: &mut Value, name: &str, value: Option<&str>) {
    if let (Value::Object(fields), Some(value)) = (body, value) {
        fields.insert(name.to_owned(), value.into());
    }
}
