//! Live events: what was just accepted, for whoever is listening.

use std::sync::Arc;

use tokio::sync::broadcast;

/// Events a slow listener may be behind before it loses some and is told so.
const BEHIND: usize = 1024;

/// An event that was accepted, as listeners see it.
#[derive(Debug)]
pub struct LiveEvent {
    pub event_type: String,
    /// The envelope with its outcome, as JSON text.
    pub json: String,
}

/// Where accepted events are announced.
#[derive(Clone)]
pub struct Live {
    sender: broadcast::Sender<Arc<LiveEvent>>,
}

impl Default for Live {
    fn default() -> Self {
        Self { sender: broadcast::channel(BEHIND).0 }
    }
}

impl Live {
    /// Announces an event to whoever listens.
    pub fn announce(&self, event: LiveEvent) {
        let _ = self.sender.send(Arc::new(event));
    }

    /// How many listen: with none, an announcement need not be put together.
    #[must_use]
    pub fn listeners(&self) -> usize {
        self.sender.receiver_count()
    }

    #[must_use]
    pub fn listen(&self) -> broadcast::Receiver<Arc<LiveEvent>> {
        self.sender.subscribe()
    }
}
