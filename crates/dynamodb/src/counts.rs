//! What was asked of DynamoDB, to be held against what an operation may cost.

use std::sync::atomic::{AtomicU64, Ordering};

use aws_sdk_dynamodb::types::ConsumedCapacity;

/// Requests and what they cost, since the store was opened. Every attempt counts, the repeated ones too.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Counts {
    pub gets: u64,
    pub queries: u64,
    pub transactions: u64,
    /// Writes and checks in all transactions together.
    pub writes: u64,
    /// Attempts after the first of their call.
    pub retries: u64,
    /// Answers that said "too much at once", a transaction in the way of another included.
    pub throttled: u64,
    /// Attempts without an answer, or with one that does not tell whether anything was written.
    pub unknown: u64,
    /// What DynamoDB says it charged. DynamoDB Local says too little for a transaction: it rounds the sum of its
    /// writes, where the service rounds each.
    pub read_units: f64,
    pub write_units: f64,
}

/// One number of [`Counts`], with its units in thousandths.
#[derive(Debug, Clone, Copy)]
pub enum Counter {
    Gets,
    Queries,
    Transactions,
    Writes,
    Retries,
    Throttled,
    Unknown,
    ReadUnits,
    WriteUnits,
}

#[derive(Debug, Default)]
pub struct Counters([AtomicU64; 9]);

impl Counters {
    pub fn add(&self, counter: Counter, by: u64) {
        if let Some(number) = self.0.get(counter as usize) {
            number.fetch_add(by, Ordering::Relaxed);
        }
    }

    /// Adds the units that DynamoDB says it charged.
    pub fn charge<'c>(&self, counter: Counter, charged: impl IntoIterator<Item = &'c ConsumedCapacity>) {
        let units: f64 = charged.into_iter().filter_map(ConsumedCapacity::capacity_units).sum();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "units are small, not negative, and halves at the finest"
        )]
        self.add(counter, (units * 1000.0).round() as u64);
    }

    pub fn read(&self) -> Counts {
        let number = |counter: Counter| self.0.get(counter as usize).map_or(0, |n| n.load(Ordering::Relaxed));
        #[expect(clippy::cast_precision_loss, reason = "a sum to look at")]
        let units = |counter: Counter| number(counter) as f64 / 1000.0;
        Counts {
            gets: number(Counter::Gets),
            queries: number(Counter::Queries),
            transactions: number(Counter::Transactions),
            writes: number(Counter::Writes),
            retries: number(Counter::Retries),
            throttled: number(Counter::Throttled),
            unknown: number(Counter::Unknown),
            read_units: units(Counter::ReadUnits),
            write_units: units(Counter::WriteUnits),
        }
    }
}
