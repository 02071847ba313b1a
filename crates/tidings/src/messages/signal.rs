//! How those who make messages wake those who send them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use tidings_core::time::Timestamp;
use tokio::sync::Notify;

use super::record::{CHANNELS, Message};

/// A signal for each channel.
#[derive(Debug)]
pub struct Signals {
    channels: BTreeMap<&'static str, Signal>,
    /// Messages made and not yet counted.
    made: AtomicU64,
}

/// The earliest moment at which something new is due, until somebody takes note of it.
#[derive(Debug, Default)]
pub struct Signal {
    notify: Notify,
    earliest: Mutex<Option<Timestamp>>,
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
                signal.note(due);
            }
        }
    }

    /// Says that something may be due since `since` on any channel.
    pub fn wake(&self, since: Timestamp) {
        self.channels.values().for_each(|signal| signal.note(since));
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

impl Signal {
    fn note(&self, due: Timestamp) {
        let mut earliest = self.earliest.lock().unwrap_or_else(PoisonError::into_inner);
        *earliest = Some(earliest.map_or(due, |known| known.min(due)));
        drop(earliest);
        self.notify.notify_one();
    }

    /// The earliest moment noted since the last call.
    pub fn take(&self) -> Option<Timestamp> {
        self.earliest.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    pub async fn noted(&self) {
        self.notify.notified().await;
    }
}
