//! The chunks of a fan-out's job: what one transaction stores, and those that the store is deciding about.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Waker};

use futures_util::future::{BoxFuture, FutureExt, MaybeDone, maybe_done};
use tidings_store::{Error, Store, Table, Write};

use super::job::{Cursor, Job};
use super::window::Windows;
use crate::inbox::record::Stamp;
use crate::messages::Message;

/// Something to be stored by a job.
pub enum Piece {
    /// One of a user whom the event names opens the user's window first, if the rule has windows.
    Entry {
        user: String,
        stamp: Arc<Stamp>,
        window: Option<Box<Write>>,
    },
    Message(Box<Message>),
}

/// Pieces of one transaction, and where the job stands after it.
pub struct Chunk {
    pub pieces: Vec<Piece>,
    pub after: Cursor,
    /// How many pieces were taken out of it because their windows are open.
    pub repeats: u64,
}

type Results = Vec<Result<(), Error>>;

/// Chunks that the store is deciding about.
pub struct Flight {
    pub chunks: Vec<Chunk>,
    results: Pin<Box<MaybeDone<BoxFuture<'static, Results>>>>,
}

impl Flight {
    /// Hands chunks to the store as these transactions. Here and now, and not by a task: of two tasks the second may be
    /// the first to run, and find the job not yet where it should be.
    pub fn begin(store: &Arc<dyn Store>, chunks: Vec<Chunk>, transactions: Vec<Vec<Write>>) -> Self {
        let store = Arc::clone(store);
        let results = async move { store.transact_each(transactions).await };
        let mut results = Box::pin(maybe_done(results.boxed()));
        // Whoever waits for the results will be waked for them.
        let _ = results.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        Self { chunks, results }
    }

    pub async fn results(&mut self) -> Results {
        self.results.as_mut().await;
        self.results.as_mut().take_output().unwrap_or_default()
    }
}

impl Chunk {
    /// The entries of some users, after which the job stands at the last of them.
    pub fn of(job: &Job, users: &[String], stamp: &Arc<Stamp>, windows: Option<&Windows<'_>>) -> Self {
        let pieces = users.iter().map(|user| {
            let window = windows.map(|windows| Box::new(windows.open(windows.user(user))));
            Piece::Entry { user: user.clone(), stamp: Arc::clone(stamp), window }
        });
        let after = Cursor { after: users.last().cloned(), ..job.cursor.clone() };
        Self { pieces: pieces.collect(), after, repeats: 0 }
    }

    /// How many inbox entries it has.
    pub fn entries(&self) -> u64 {
        self.pieces.iter().filter(|piece| matches!(piece, Piece::Entry { .. })).count() as u64
    }
}

impl Piece {
    /// How many writes it takes.
    pub fn width(&self) -> usize {
        match self {
            Self::Entry { window, .. } => 2 + usize::from(window.is_some()),
            Self::Message(_) => 1,
        }
    }

    /// Whether the first of its writes opens a window.
    pub fn has_window(&self) -> bool {
        matches!(self, Self::Entry { window: Some(_), .. })
    }

    pub fn message(&self) -> Option<&Message> {
        match self {
            Self::Entry { .. } => None,
            Self::Message(message) => Some(message),
        }
    }

    /// Whose inbox it comes into.
    pub fn user(&self) -> Option<&str> {
        match self {
            Self::Entry { user, .. } => Some(user),
            Self::Message(_) => None,
        }
    }

    pub fn add_to(&self, writes: &mut Vec<Write>, messages: &Table) -> Result<(), Error> {
        match self {
            Self::Entry { user, stamp, window } => {
                writes.extend(window.as_deref().cloned());
                writes.extend(stamp.writes(user));
            }
            Self::Message(message) => writes.push(Write::insert(messages, message.to_item()?)),
        }
        Ok(())
    }
}
