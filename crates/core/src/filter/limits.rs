//! What a filter may cost. Every limit is checked before the work it bounds is done.

/// Longest SQL filter and longest SQL action, in characters, as in Service Bus.
pub const MAX_SQL_CHARS: usize = 1_024;

/// Deepest nesting of parentheses, `NOT` and signs in an SQL text.
pub const MAX_SQL_DEPTH: usize = 32;

/// Longest LIKE pattern that comes out of a message, in characters. A literal one is bounded by the filter's text.
pub const MAX_LIKE_CHARS: usize = 1_024;

/// Longest text that an expression may build, in bytes: `SET a = a + a`, repeated, doubles each time.
pub const MAX_TEXT_BYTES: usize = 64 * 1_024;

/// Longest key pattern, in bytes, as in AMQP.
pub const MAX_KEY_BYTES: usize = 255;

/// Properties that one correlation filter may ask for.
pub const MAX_CORRELATED: usize = 64;

/// Longest name of a property, in characters.
pub const MAX_NAME_CHARS: usize = 128;
