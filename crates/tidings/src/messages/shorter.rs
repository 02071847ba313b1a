//! A message that outgrows its item: what came of an attempt is always written down, if need be in a shorter form.
//!
//! The doors keep room for it (`payload`), so this is for many long answers of strangers, for lists of recipients, and for
//! messages that somebody else or an earlier version put into the table.

use serde_json::Value as Json;
use tidings_core::message::Attempt;
use tidings_store::{Error, Item, Value, limits};

use super::record::Message;
use super::transition::PASSING;

/// Characters that are left of a stranger's answer.
const QUOTED_CHARS: usize = 100;
/// Attempts that are kept, of which the first ones are the first ones.
const FIRST_ATTEMPTS: usize = 2;
const LAST_ATTEMPTS: usize = 8;
/// Characters of the reason in the shortest form.
const REASON_CHARS: usize = 12;
/// A secret takes more when it is encrypted.
const SECRET_BYTES: usize = 256;

/// The forms in the order in which they are tried. What a later one leaves out was of more use.
const FORMS: [fn(&mut Message); 4] = [quote_less, keep_few_attempts, leave_out_who_has_it, keep_the_end_alone];

/// The attributes of a message that a change can touch, as they fit into its item beside what stays there. The message
/// becomes what they say. Of the item, so many bytes may not be at hand.
///
/// # Errors
///
/// If it has not ended and does not fit: nothing more can be tried with it.
pub fn moving(message: &mut Message, item: &Item, aside: usize) -> Result<Item, Error> {
    let mut new = message.moving()?;
    if surely_fits(&new, item.size() + aside) {
        return Ok(new);
    }
    let mut bytes = bytes_with(item, &new) + aside;
    if bytes <= limits::ITEM_BYTES {
        return Ok(new);
    }
    tracing::warn!(
        message_id = message.message_id,
        bytes,
        "a message outgrows its item and is written in a shorter form"
    );
    let whole = if aside > 0 { Some(message.to_item()?) } else { None };
    let item = whole.as_ref().unwrap_or(item);
    for shorten in FORMS {
        shorten(message);
        new = message.moving()?.with("target", Value::from_record(&message.target)?);
        bytes = bytes_with(item, &new);
        if bytes <= limits::ITEM_BYTES {
            return Ok(new);
        }
    }
    // Whatever fitted when it was made fits in the shortest form, too.
    if message.delivery.status.is_final() {
        Ok(new)
    } else {
        Err(Error::Invalid(format!("a message has {bytes} bytes")))
    }
}

/// Whether there is room for new attributes beside what is stored, even if they took the place of none of it. For most there
/// is.
pub fn surely_fits(new: &Item, stored: usize) -> bool {
    stored + new.size() + SECRET_BYTES <= limits::ITEM_BYTES
}

fn bytes_with(item: &Item, new: &Item) -> usize {
    let stays = |name: &str| new.get(name).is_none() && !PASSING.contains(&name);
    let old = item.0.iter().filter(|(name, _)| stays(name));
    let old: usize = old.map(|(name, value)| name.len() + value.size()).sum();
    let secret = if item.get("target_secret").is_some() { SECRET_BYTES } else { 0 };
    old + new.size() + secret
}

fn quote_less(message: &mut Message) {
    for known in message.recipients.values_mut() {
        cut(&mut known.detail, QUOTED_CHARS);
    }
    let earlier = message.delivery.attempts.iter_mut().rev().skip(1);
    earlier.filter_map(|attempt| attempt.error.as_mut()).for_each(|error| cut(error, QUOTED_CHARS));
}

fn keep_few_attempts(message: &mut Message) {
    for known in message.recipients.values_mut() {
        known.detail.clear();
    }
    let attempts = &mut message.delivery.attempts;
    attempts.iter_mut().filter_map(|attempt| attempt.error.as_mut()).for_each(|error| cut(error, QUOTED_CHARS));
    let last = attempts.len().saturating_sub(LAST_ATTEMPTS);
    let mut place = 0;
    attempts.retain(|_: &Attempt| {
        place += 1;
        place <= FIRST_ATTEMPTS || place > last
    });
}

/// Who has got it is not among those whom it goes to any more. Who was refused may be asked once more.
fn leave_out_who_has_it(message: &mut Message) {
    let recipients = std::mem::take(&mut message.recipients);
    let Some(Json::Array(to)) = message.target.get_mut("to") else { return };
    let has_it = |to: &Json| to.as_str().and_then(|to| recipients.get(to)).is_some_and(|known| known.delivered);
    if !to.iter().all(has_it) {
        to.retain(|to| !has_it(to));
    }
}

/// Only how it ended, which takes no more than that it waited.
fn keep_the_end_alone(message: &mut Message) {
    if !message.delivery.status.is_final() {
        return;
    }
    message.delivery.attempts.clear();
    message.delivery.notification_id = None;
    (message.processing_started_at, message.processing_completed_at, message.queued_at) = (None, None, None);
    if let Some(reason) = &mut message.delivery.error_message {
        cut(reason, REASON_CHARS);
    }
}

fn cut(text: &mut String, most: usize) {
    if let Some((end, _)) = text.char_indices().nth(most) {
        text.truncate(end);
    }
}
