//! DynamoDB's limits, which are ours on every engine.

/// Bytes of one item: attribute names and values together.
pub const ITEM_BYTES: usize = 400 * 1024;
/// Bytes of a partition key value.
pub const PARTITION_KEY_BYTES: usize = 2048;
/// Bytes of a sort key value.
pub const SORT_KEY_BYTES: usize = 1024;
/// Writes and checks in one transaction.
pub const TRANSACTION_WRITES: usize = 100;
/// Bytes of all items in one transaction together.
pub const TRANSACTION_BYTES: usize = 4 * 1024 * 1024;
/// Bytes of items that one page of a query reads at most.
pub const PAGE_BYTES: usize = 1024 * 1024;
/// Significant digits of a number.
pub const NUMBER_DIGITS: usize = 38;
/// Levels of lists and maps, of which the item itself is the first.
pub const NESTING: usize = 32;
/// Secondary indexes of one table.
pub const INDEXES: usize = 20;
