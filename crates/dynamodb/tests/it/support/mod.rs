//! What the tests share: the endpoint, stores on it, names nobody else uses, and an endpoint that fails on purpose.

pub mod proxy;

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use tidings_core::ids::IdSource;
use tidings_core::time::{ManualClock, Timestamp};
use tidings_dynamodb::tables::{self, Wanted};
use tidings_dynamodb::{Dynamo, Identity, Options, Policy};
use tidings_store::Table;

/// Where DynamoDB Local answers.
pub fn endpoint() -> String {
    let endpoint = std::env::var("TIDINGS_DYNAMODB_ENDPOINT");
    endpoint.expect("these tests need DynamoDB Local: run them with scripts/with-dynamodb-local")
}

pub struct Ids;

impl IdSource for Ids {
    fn random(&self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            // Every state has keys of its own, which the standard library draws at random.
            let random = RandomState::new().build_hasher().finish().to_le_bytes();
            chunk.iter_mut().zip(random).for_each(|(byte, random)| *byte = random);
        }
    }
}

/// A word that no other test and no other run uses.
pub fn unique() -> String {
    format!("{:016x}", RandomState::new().build_hasher().finish())
}

/// A clock that starts at the present: DynamoDB Local sweeps by the real one.
#[expect(clippy::disallowed_methods, reason = "the one place where these tests read the clock")]
pub fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::new(Timestamp::now()))
}

pub fn options(endpoint: String, prefix: &str) -> Options {
    Options {
        region: Some("eu-west-1".to_owned()),
        endpoint: Some(endpoint),
        table_prefix: prefix.to_owned(),
        identity: Identity::Keys { access: "local".to_owned(), secret: "local".to_owned() },
        retry: Policy { attempt_timeout: Duration::from_secs(20), ..Policy::default() },
    }
}

pub async fn open(options: &Options, tables: &[Table], clock: &Arc<ManualClock>) -> Dynamo {
    Dynamo::open(options, tables, clock.clone(), Arc::new(Ids)).await.expect("a store")
}

/// A store straight on DynamoDB Local that has the tables.
pub async fn with_tables(prefix: &str, of: &[Table], clock: &Arc<ManualClock>) -> Dynamo {
    let store = open(&options(endpoint(), prefix), of, clock).await;
    let wanted: Vec<_> = of.iter().cloned().map(Wanted::from).collect();
    tables::create(&store, &wanted).await.expect("the tables");
    store
}

/// The SDK itself, as another tool would use it.
pub fn foreign() -> aws_sdk_dynamodb::Client {
    use aws_sdk_dynamodb::config::{BehaviorVersion, Builder, Credentials, Region};
    let config = Builder::new()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("eu-west-1"))
        .endpoint_url(endpoint())
        .credentials_provider(Credentials::new("local", "local", None, None, "test"))
        .http_client(aws_smithy_http_client::Builder::new().build_http());
    aws_sdk_dynamodb::Client::from_conf(config.build())
}
