//! What a pattern and an event may cost. Every limit is checked before the work it bounds is done.

/// Longest pattern text. EventBridge allows 4 KiB; long value lists are worth more room here.
pub const MAX_PATTERN_BYTES: usize = 64 * 1024;

/// Deepest nesting of objects in a pattern.
pub const MAX_DEPTH: usize = 64;

/// Deepest nesting of objects and arrays in an event: whatever a JSON parser reads can be matched, for what is no event
/// here has no rule.
pub const MAX_EVENT_DEPTH: usize = 127;

/// Values in all lists of one pattern together, those inside `anything-but` included.
pub const MAX_VALUES: usize = 10_000;

/// Stars in all wildcards of one pattern together. Each star costs at most one pass over a field's text.
pub const MAX_STARS: usize = 512;

/// Ways to satisfy a pattern through its `$or` lists, as EventBridge counts them.
pub const MAX_COMBINATIONS: usize = 1_000;

/// Field tests over all combinations together, so that many wide combinations stay small as well.
pub const MAX_COMBINED_FIELDS: usize = 50_000;

/// Largest magnitude that `numeric` and `anything-but` accept in a pattern, as in EventBridge.
pub const MAX_NUMBER: f64 = 5.0e9;

/// Longest event text, so that positions in it fit four bytes.
pub const MAX_EVENT_BYTES: usize = 64 * 1024 * 1024;
