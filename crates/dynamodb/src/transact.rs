//! A transaction as DynamoDB takes it, and what its refusal means.
//!
//! The hard part is an update that meets an expired item. To the store that item is absent, so the update
//! starts from nothing; to DynamoDB it is there, and its attributes would live on. So an update is sent on the
//! condition that its item has not expired; where one has, the next round puts a new item in its place, on the
//! condition that what is there is (still) absent or expired. Whoever comes in between makes that condition
//! fail, and the round after decides anew.

use aws_sdk_dynamodb::error::BuildError;
use aws_sdk_dynamodb::types::{
    CancellationReason, ConditionCheck, Delete, Put, ReturnValuesOnConditionCheckFailure, TransactWriteItem, Update,
};
use tidings_store::error::FailedCondition;
use tidings_store::write::check_transaction;
use tidings_store::{Condition, Error, Item, Key, Table, Write};

use crate::convert::{Attributes, from_item, to_item, to_key};
use crate::expression::{self, Names, Placeholders};
use crate::failure::{Failure, failed};

/// A transaction that has been checked, and what is known of the items it meets.
pub struct Plan {
    steps: Vec<Step>,
    /// The second that decides about expiry, the same for every attempt: DynamoDB refuses a token that comes
    /// back with another request.
    now: i64,
}

struct Step {
    write: Write,
    key: Key,
    /// For an update: the item it met has expired, so this one takes its place.
    fresh: Option<Item>,
}

/// How DynamoDB answered.
pub enum Answer {
    Done,
    /// Conditions failed; one reason per write, in order.
    Refused(Vec<CancellationReason>),
}

impl Plan {
    /// Checks what can be checked without looking at any item.
    pub fn new(writes: Vec<Write>, now: i64) -> Result<Self, Error> {
        let keys = check_transaction(&writes)?;
        let mut steps = Vec::with_capacity(writes.len());
        for (write, key) in writes.into_iter().zip(keys) {
            if matches!(write, Write::Update { .. }) {
                // What it cannot do to an empty item, it cannot do to any.
                write.apply(None)?;
            }
            steps.push(Step { write, key, fresh: None });
        }
        Ok(Self { steps, now })
    }

    /// The request's parts.
    pub fn items(&self, prefix: &str) -> Result<Vec<TransactWriteItem>, Error> {
        self.steps.iter().map(|step| step.item(prefix, self.now)).collect()
    }

    /// Draws the conclusion from a refusal: an error, or a changed plan to send as a new transaction.
    pub fn learn(&mut self, reasons: Vec<CancellationReason>) -> Result<(), Error> {
        let mut failed = Vec::new();
        for (number, (step, reason)) in self.steps.iter_mut().zip(reasons).enumerate() {
            if reason.code() != Some(CONDITION_FAILED) {
                continue;
            }
            let table = step.write.table();
            let found = reason.item.map(from_item).transpose()?.filter(|item| !table.is_expired(item, self.now));
            let is_update = matches!(step.write, Write::Update { .. });
            if is_update && step.write.condition().holds(found.as_ref()) && table.ttl_attribute().is_some() {
                step.fresh = if found.is_none() { step.write.apply(None)? } else { None };
            } else {
                failed.push(FailedCondition { write: number, found });
            }
        }
        if failed.is_empty() { Ok(()) } else { Err(Error::Conflict { failed }) }
    }
}

const CONDITION_FAILED: &str = "ConditionalCheckFailed";

/// What a cancelled transaction's reasons mean together.
pub fn cancelled(reasons: &[CancellationReason]) -> Result<Answer, Failure> {
    let codes = || reasons.iter().filter_map(CancellationReason::code).filter(|code| *code != "None");
    let text = || {
        let reasons = reasons.iter().filter(|reason| reason.code() != Some("None"));
        let texts = reasons.map(|reason| match reason.message() {
            Some(message) => format!("{}: {message}", reason.code().unwrap_or_default()),
            None => reason.code().unwrap_or_default().to_owned(),
        });
        format!("the transaction was cancelled: {}", texts.collect::<Vec<_>>().join("; "))
    };
    // In the way of another, or too much at once. Even where a condition failed as well: which others would
    // have is not known, and a conflict names them all.
    let busy = ["TransactionConflict", "ThrottlingError", "ProvisionedThroughputExceeded", "RequestLimitExceeded"];
    if codes().any(|code| busy.contains(&code)) {
        return Err(Failure::Busy(text()));
    }
    if codes().any(|code| code == CONDITION_FAILED) {
        return Ok(Answer::Refused(reasons.to_vec()));
    }
    if codes().any(|code| code == "ValidationError" || code == "ItemCollectionSizeLimitExceeded") {
        return Err(Failure::Final(Error::Invalid(text())));
    }
    Err(Failure::Final(failed(text())))
}

/// The expressions of one part.
struct Parts {
    condition: Option<String>,
    names: Option<Names>,
    values: Option<Attributes>,
}

impl Parts {
    fn new(condition: Option<String>, with: Placeholders) -> Self {
        let (names, values) = with.into_maps();
        Self { condition, names, values }
    }
}

const SHOW: ReturnValuesOnConditionCheckFailure = ReturnValuesOnConditionCheckFailure::AllOld;

impl Step {
    fn item(&self, prefix: &str, now: i64) -> Result<TransactWriteItem, Error> {
        let name = format!("{prefix}{}", self.write.table().name());
        let part = TransactWriteItem::builder();
        let mut with = Placeholders::default();
        let part = match &self.write {
            Write::Put { table, item, condition } => part.put(put(name, table, item, condition, now)?),
            Write::Packed { item, condition } => part.put(put(name, item.table(), &item.item()?, condition, now)?),
            Write::Update { table, changes, condition, .. } => match &self.fresh {
                Some(item) => part.put(put(name, table, item, &Condition::NotExists, now)?),
                None => {
                    let update = expression::update(changes, &mut with);
                    let condition = expression::update_condition(table, condition, now, &mut with);
                    let parts = Parts::new(condition, with);
                    let key = Some(to_key(table, &self.key));
                    let update = Update::builder().table_name(name).set_key(key).update_expression(update);
                    let update = update.set_condition_expression(parts.condition);
                    let update = update.set_expression_attribute_names(parts.names);
                    let update = update.set_expression_attribute_values(parts.values);
                    part.update(update.return_values_on_condition_check_failure(SHOW).build().map_err(unbuilt)?)
                }
            },
            Write::Delete { table, condition, .. } => {
                let condition = expression::condition(table, condition, now, &mut with);
                let parts = Parts::new(condition, with);
                let delete = Delete::builder().table_name(name).set_key(Some(to_key(table, &self.key)));
                let delete = delete.set_condition_expression(parts.condition);
                let delete = delete.set_expression_attribute_names(parts.names);
                let delete = delete.set_expression_attribute_values(parts.values);
                part.delete(delete.return_values_on_condition_check_failure(SHOW).build().map_err(unbuilt)?)
            }
            Write::Check { table, condition, .. } => {
                let condition = expression::check_condition(table, condition, now, &mut with);
                let parts = Parts::new(Some(condition), with);
                let check = ConditionCheck::builder().table_name(name).set_key(Some(to_key(table, &self.key)));
                let check = check.set_condition_expression(parts.condition);
                let check = check.set_expression_attribute_names(parts.names);
                let check = check.set_expression_attribute_values(parts.values);
                part.condition_check(check.return_values_on_condition_check_failure(SHOW).build().map_err(unbuilt)?)
            }
        };
        Ok(part.build())
    }
}

fn put(name: String, table: &Table, item: &Item, condition: &Condition, now: i64) -> Result<Put, Error> {
    let mut with = Placeholders::default();
    let condition = expression::condition(table, condition, now, &mut with);
    let parts = Parts::new(condition, with);
    Put::builder()
        .table_name(name)
        .set_item(Some(to_item(item)))
        .set_condition_expression(parts.condition)
        .set_expression_attribute_names(parts.names)
        .set_expression_attribute_values(parts.values)
        .return_values_on_condition_check_failure(SHOW)
        .build()
        .map_err(unbuilt)
}

#[expect(clippy::needless_pass_by_value, reason = "it is handed over so")]
fn unbuilt(error: BuildError) -> Error {
    failed(format!("a request cannot be built: {error}"))
}
