//! The limits of process change alerts.

/// Bytes of one event as it came (S000-41).
pub const RAW_BYTES: usize = 400 * 1024;
/// Bytes of it that stand in the alert's own item; the rest of a longer one stands beside it.
pub const RAW_INLINE_BYTES: usize = 300 * 1024;
/// Bytes of an event that is stored whole as an ordinary event, too.
pub const EVENT_BYTES: usize = 380 * 1024;
/// Characters of `Details`; the raw event has all of it.
pub const DETAILS_CHARS: usize = 10_000;
/// Characters of names that the event brings: the actor's, the process's, a field's.
pub const ATTRIBUTE_CHARS: usize = 512;
/// Characters of the raw event that a mail shows.
pub const MAILED_RAW_CHARS: usize = 8_000;
/// Authorised accounts (S000-57), and the characters of each.
pub const ACCOUNTS: usize = 100;
pub const ACCOUNT_CHARS: usize = 512;
/// Rows of one page of the history (S000-66, S000-69).
pub const DEFAULT_ROWS: usize = 100;
pub const ROWS: usize = 1000;
/// Days of one question to the history (S000-71).
pub const RANGE_DAYS: i64 = 90;
/// Days of one export; years more than anything is kept.
pub const EXPORT_DAYS: i64 = 3660;
