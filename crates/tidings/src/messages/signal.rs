//! How those who make messages wake those who send them, and hand them over without a detour through the store.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use serde_json::Value;
use tidings_core::time::Timestamp;
use tokio::sync::Notify;

use super::record::{CHANNELS, Message};
use super::transition::Stored;

/// Messages that are handed over directly; more are found in the store.
const HANDED: usize = 512;
/// Bytes of a message that is handed over directly, about.
const SMALL: usize = 8 * 1024;

/// A signal for each channel.
#[derive(Debug)]
pub struct Signals {
    channels: BTreeMap<&'static str, Signal>,
    /// Messages made and not yet counted.
    made: AtomicU64,
}

/// What is new, until somebody takes note of it.
#[derive(Debug, Default)]
pub struct Signal {
    notify: Notify,
    news: Mutex<News>,
}

/// What was made since the last look.
#[derive(Debug, Default)]
pub struct News {
    /// Due when they were made, and stored.
    pub messages: Vec<Handed>,
    /// The earliest moment at which something is due that is not among them.
    pub earliest: Option<Timestamp>,
}

/// A message that is handed over.
#[derive(Debug)]
pub struct Handed {
    pub stored: Box<Stored>,
    /// [`super::Holds::changes`] before it was stored, if somebody looked.
    pub seen: Option<u64>,
}

impl Default for Signals {
    fn default() -> Self {
        let channels = CHANNELS.into_iter().map(|channel| (channel, Signal::default())).collect();
        Self { channels, made: AtomicU64::new(0) }
    }
}

impl Signals {
    /// Says that these messages are stored. Call it after the commit: whoever sends looks for them at once, and relies
    /// on hearing of everything that lies before the moment it has reached.
    pub fn created<'a>(&self, messages: impl IntoIterator<Item = &'a Message>) {
        for message in messages {
            self.made.fetch_add(1, Ordering::Relaxed);
            if let (Some(signal), Some(due)) = (self.channels.get(message.channel.as_str()), message.due_at()) {
                let give = || Some(Handed { stored: Stored::just_made(message.clone()).ok()?, seen: None });
                signal.note(due, Some(message), give);
            }
        }
    }

    /// The same for one that nobody else needs; before it was stored, so many changes were `seen`.
    pub fn made(&self, made: Box<Stored>, seen: u64) {
        self.made.fetch_add(1, Ordering::Relaxed);
        let message = &made.message;
        if let (Some(signal), Some(due)) = (self.channels.get(message.channel.as_str()), message.due_at()) {
            // Looked at while it is still here, and only then handed over.
            let (created, small) = (message.created_date, is_small(message));
            signal.hand(due, created, small, || Some(Handed { stored: made, seen: Some(seen) }));
        }
    }

    /// Says that something may be due since `since` on any channel.
    pub fn wake(&self, since: Timestamp) {
        self.channels.values().for_each(|signal| signal.note(since, None, || None));
    }

    #[must_use]
    pub fn of(&self, channel: &str) -> Option<&Signal> {
        self.channels.get(channel)
    }

    /// How many messages were made since the last call.
    pub fn take_made(&self) -> u64 {
        self.made.swap(0, Ordering::Relaxed)
    }
}

/// Large ones wait in the store, so that what waits here takes little room.
fn is_small(message: &Message) -> bool {
    fn take(value: &Value, left: &mut usize) -> Option<()> {
        *left = left.checked_sub(16)?;
        match value {
            Value::String(text) => *left = left.checked_sub(text.len())?,
            Value::Array(values) => values.iter().try_for_each(|value| take(value, left))?,
            Value::Object(fields) => {
                for (name, value) in fields {
                    *left = left.checked_sub(name.len())?;
                    take(value, left)?;
                }
            }
            _ => {}
        }
        Some(())
    }
    let mut left = SMALL;
    message.payload.values().chain(message.target.values()).try_for_each(|value| take(value, &mut left)).is_some()
}

impl Signal {
    fn note(&self, due: Timestamp, message: Option<&Message>, give: impl FnOnce() -> Option<Handed>) {
        let created = message.map_or(Timestamp::MIN, |message| message.created_date);
        self.hand(due, created, message.is_some_and(is_small), give);
    }

    fn hand(&self, due: Timestamp, created: Timestamp, small: bool, give: impl FnOnce() -> Option<Handed>) {
        let mut news = self.news.lock().unwrap_or_else(PoisonError::into_inner);
        // Once some are left to the store, so are those that come after them: they keep their order.
        let fits = small && due <= created && news.earliest.is_none() && news.messages.len() < HANDED;
        match fits.then(give).flatten() {
            Some(made) => news.messages.push(made),
            None => news.earliest = Some(news.earliest.map_or(due, |known| known.min(due))),
        }
        drop(news);
        self.notify.notify_one();
    }

    /// What was noted since the last call.
    pub fn take(&self) -> News {
        std::mem::take(&mut *self.news.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub async fn noted(&self) {
        self.notify.notified().await;
    }
}
