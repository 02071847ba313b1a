//! What a rule may cost, in one place. Everything is refused at the door, so that an event never pays for it.

/// Characters of a rule's name.
pub const NAME_CHARS: usize = 128;
/// Bytes of a rule as it is stored; an item has 400 KB.
pub const RULE_BYTES: usize = 380 * 1024;
pub const TARGETS: usize = 20;
/// Addresses of one e-mail target.
pub const ADDRESSES: usize = 50;
/// Support groups of one map target.
pub const GROUPS: usize = 100;
/// Rules that one exclude rule may name.
pub const EXCLUDED: usize = 100;
/// Characters of a recorded reason.
pub const REASON_CHARS: usize = 500;
/// Characters of a user's id.
pub const USER_CHARS: usize = 256;
/// Bytes of a template.
pub const TEMPLATE_BYTES: usize = 16 * 1024;
/// Steps of one rendering.
pub const TEMPLATE_FUEL: u64 = 10_000;
/// Bytes that a rendering may give; what is longer is cut.
pub const RENDERED_BYTES: usize = 64 * 1024;
/// Characters of a rendered title.
pub const TITLE_CHARS: usize = 500;
/// Addresses of one e-mail target, templates filled in.
pub const MAIL_ADDRESSES: usize = 1_000;
/// Bytes of an address with the name before it.
pub const ADDRESS_BYTES: usize = 512;
/// The longest window in which the same notice is not repeated: a week.
pub const DEDUPE_SECONDS: u64 = 7 * 86_400;
pub const URL_CHARS: usize = 2_048;
/// Stored events that a dry run may look at.
pub const DRY_RUN_EVENTS: u64 = 10_000;
/// Event ids that a dry run shows.
pub const DRY_RUN_SAMPLE: usize = 20;
/// Entries of each list of an outcome; totals count the rest.
pub const OUTCOME_ENTRIES: usize = 100;
