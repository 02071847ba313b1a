//! The store on Amazon DynamoDB, or on anything that speaks its protocol.
//!
//! [`Dynamo`] is the [`Store`]; [`tables`] creates the tables, says how they differ from what they should be,
//! and writes them as a CloudFormation template. The AWS SDK is used here and nowhere else.
//!
//! # When an answer does not come
//!
//! A request may be carried out and its answer lost: a timeout, a dropped connection, a 5xx. Every transaction
//! therefore goes out as `TransactWriteItems` with a client request token, drawn once per transaction, and every
//! further attempt is the same request with the same token (the same `now` in its conditions included). If an
//! earlier attempt was carried out, DynamoDB answers the repetition with success and changes nothing; if none
//! was, it decides afresh; if one is still at it, it says so and we come back. So nothing is done twice, and
//! our own first attempt is never mistaken for somebody else's conflicting write. Tokens live for ten minutes,
//! the retry budget for seconds.
//!
//! That holds for single writes, too, although `PutItem` costs half the write units. A plain put or delete looks
//! harmless to repeat and is not: between an unseen first and a second, another node may have read the item,
//! acted on it and removed it, and the repetition brings it back.
//!
//! Once an attempt has ended without a clear answer, the end of the budget gives [`Error::Unreachable`],
//! because whether anything was written is not known; [`Error::Throttled`] is kept for the case that every attempt was
//! turned away. What is assumed: a request whose connection we closed is not carried out any more once a later
//! one with its token was answered.
//!
//! # Reads
//!
//! `get` and queries of a table or a local index are strongly consistent. A global index follows its table
//! within a moment, as DynamoDB has it no other way: nothing may be decided by what is missing there.
//! There are no scans and no batches.

mod convert;
mod counts;
mod each;
mod expression;
mod failure;
mod health;
mod keys;
mod options;
mod read;
mod retry;
pub mod tables;
mod transact;

pub use counts::Counts;
pub use keys::{KeyChain, Keys};
pub use options::{Identity, Options};
pub use retry::Policy;

use std::collections::BTreeSet;
use std::sync::Arc;

use async_trait::async_trait;
use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError;
use aws_sdk_dynamodb::types::{ReturnConsumedCapacity, TransactWriteItem};
use tidings_core::ids::IdSource;
use tidings_core::time::Clock;
use tidings_store::{Error, Health, Item, Key, Page, Query, Store, Table, Write};

use crate::counts::{Counter, Counters};
use crate::failure::{Failure, classify};
use crate::health::Trouble;
use crate::retry::Retry;
use crate::transact::{Answer, Plan, cancelled};

/// Rounds in which a transaction may find that expired items of its updates come and go.
const ROUNDS: usize = 8;

/// The store on DynamoDB.
pub struct Dynamo {
    client: Client,
    prefix: String,
    names: BTreeSet<String>,
    clock: Arc<dyn Clock>,
    retry: Retry,
    trouble: Trouble,
}

impl Dynamo {
    /// Makes the client. Nothing is asked of DynamoDB yet: a table that is missing shows when it is used, or by
    /// [`tables::check`].
    pub async fn open(
        options: &Options,
        tables: &[Table],
        clock: Arc<dyn Clock>,
        ids: Arc<dyn IdSource>,
    ) -> Result<Self, Error> {
        let counters = Arc::new(Counters::default());
        let client = options.client().await?;
        let place = match (&options.endpoint, client.config().region()) {
            (Some(endpoint), _) => format!("DynamoDB at {endpoint}, as store.endpoint says"),
            (None, Some(region)) => format!("DynamoDB in {region}"),
            (None, None) => "DynamoDB".to_owned(),
        };
        Ok(Self {
            client,
            prefix: options.table_prefix.clone(),
            names: tables.iter().map(|table| table.name().to_owned()).collect(),
            clock,
            retry: Retry { place, policy: options.retry, ids, counters },
            trouble: Trouble::default(),
        })
    }

    /// What was asked of DynamoDB since the store was opened.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.retry.counters.read()
    }

    fn now(&self) -> i64 {
        self.clock.now().as_second()
    }

    /// The table's name with DynamoDB.
    fn name(&self, table: &Table) -> String {
        format!("{}{}", self.prefix, table.name())
    }

    /// Like the other engine, this one knows the tables it was opened with and no others.
    fn known(&self, table: &Table) -> Result<(), Error> {
        if self.names.contains(table.name()) {
            return Ok(());
        }
        Err(Error::Invalid(format!("the store was opened without table {}", table.name())))
    }

    async fn send(&self, items: Vec<TransactWriteItem>, token: &str) -> Result<Answer, Failure> {
        let counters = &self.retry.counters;
        counters.add(Counter::Transactions, 1);
        counters.add(Counter::Writes, u64::try_from(items.len()).unwrap_or(0));
        let request = self.client.transact_write_items().set_transact_items(Some(items));
        let request = request.client_request_token(token).return_consumed_capacity(ReturnConsumedCapacity::Total);
        match request.send().await {
            Ok(output) => {
                counters.charge(Counter::WriteUnits, output.consumed_capacity());
                Ok(Answer::Done)
            }
            Err(error) => match error.as_service_error() {
                Some(TransactWriteItemsError::TransactionCanceledException(answer)) => {
                    cancelled(answer.cancellation_reasons())
                }
                _ => Err(classify("TransactWriteItems", error)),
            },
        }
    }

    async fn carry_out(&self, writes: Vec<Write>) -> Result<(), Error> {
        for write in &writes {
            self.known(write.table())?;
        }
        let mut plan = Plan::new(writes, self.now())?;
        for _ in 0..ROUNDS {
            let token = self.retry.ids.uuid(self.clock.now()).to_string();
            // Copies keep the order of their maps, so that every attempt is the same to the byte: a token that
            // comes back with another request is refused.
            let items = plan.items(&self.prefix)?;
            match self.retry.run(|| Box::pin(self.send(items.clone(), &token))).await? {
                Answer::Done => return Ok(()),
                Answer::Refused(reasons) => plan.learn(reasons)?,
            }
        }
        Err(Error::Throttled("an expired item that is to be updated kept changing".to_owned()))
    }
}

#[async_trait]
impl Store for Dynamo {
    async fn get(&self, table: &Table, key: &Key) -> Result<Option<Item>, Error> {
        self.known(table)?;
        table.check_key(key)?;
        let item = self.trouble.heard(self.retry.run(|| Box::pin(self.get_once(table, key))).await)?;
        Ok(item.filter(|item| !table.is_expired(item, self.now())))
    }

    async fn query(&self, table: &Table, query: &Query) -> Result<Page, Error> {
        self.known(table)?;
        let index = query.check(table)?;
        self.trouble.heard(self.page(table, index, query).await)
    }

    async fn transact(&self, writes: Vec<Write>) -> Result<(), Error> {
        self.trouble.wrote(self.carry_out(writes).await)
    }

    async fn transact_each(&self, transactions: Vec<Vec<Write>>) -> Vec<Result<(), Error>> {
        each::transact_each(self, transactions).await
    }

    fn health(&self) -> Health {
        self.trouble.health()
    }
}
