//! The limits of what may come in, in one place. Those an operator may change are in the configuration.

/// Characters of an event's id and type, and of names in general.
pub const NAME_CHARS: usize = 256;
/// Characters of an event's source: with four bytes each it still fits a sort key, prefix included.
pub const SOURCE_CHARS: usize = 250;
/// Characters of a correlation id.
pub const CORRELATION_CHARS: usize = 128;
/// Characters of an event's subject.
pub const SUBJECT_CHARS: usize = 1024;
/// Levels of objects and lists in JSON.
pub const JSON_DEPTH: usize = 64;
/// Fields of an envelope beyond the known ones, which are kept.
pub const EXTENSIONS: usize = 50;
