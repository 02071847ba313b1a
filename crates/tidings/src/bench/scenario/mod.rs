//! What can be measured: the table of scenarios, and what a scenario has to say about itself.
//!
//! A new scenario is a [`Load`] in the file of its family and a line in [`ALL`]. The runner does the rest: it opens the
//! connections, gives each a [`Caller`], sends what the caller asks for, times it and lets the caller judge the reply.

use std::time::Duration;

use async_trait::async_trait;

use super::client::{Connection, Response};
use super::error::Error;
use super::messages::Pace;
use super::tally::Tally;

pub mod alerts;
mod basic;
mod events;
mod inbox;
mod messages;
mod queue;
mod rules;
mod tickets;

pub use events::ingest_batch;

/// The scenario that all others are compared with.
pub const LIMIT: &str = "limit";
/// The scenario that needs alerts to be there.
pub const ALERTS_READ: &str = "alerts-read";

/// Everything that `tidings bench` can run, in the order of its table.
pub const ALL: &[Scenario] = &[
    Scenario { name: LIMIT, about: "the body is only appended and synced", kind: Kind::Http(basic::limit) },
    Scenario { name: "health", about: "GET /healthz", kind: Kind::Http(basic::health) },
    Scenario { name: "ingest", about: "POST /events, one event a request", kind: Kind::Http(events::ingest) },
    Scenario {
        name: "ingest-batch",
        about: "POST /events, many events a request",
        kind: Kind::Http(events::ingest_batch),
    },
    Scenario { name: "events-read", about: "GET /events, pages of 50, newest first", kind: Kind::Http(events::read) },
    Scenario {
        name: "inbox-read",
        about: "a page of the 20 newest unread, each connection of another of 10,000 users",
        kind: Kind::Http(inbox::read),
    },
    Scenario {
        name: "inbox-many",
        about: "the same of a user who has 100,000 notifications",
        kind: Kind::Http(inbox::read_many),
    },
    Scenario { name: "inbox-deep", about: "page 100 of that user", kind: Kind::Http(inbox::read_deep) },
    Scenario {
        name: "fanout",
        about: "one event to 10,000 users, one after the other; operations are entries",
        kind: Kind::Http(inbox::fan_out),
    },
    Scenario {
        name: "ingest-fanout",
        about: "as ingest, while a fan-out goes on",
        kind: Kind::Http(inbox::ingest_beside),
    },
    Scenario {
        name: "messages",
        about: "POST /api/messages until completed, through ntfy to a sink",
        kind: Kind::Flow(Pace::Full),
    },
    Scenario {
        name: "messages-paced",
        about: "the same at 500 a second; the time is from created to handed over",
        kind: Kind::Flow(Pace::PerSecond(500)),
    },
    Scenario {
        name: "messages-read",
        about: "a message by its id, then a page by stage and status",
        kind: Kind::Http(messages::read),
    },
    Scenario { name: "queue-send", about: "POST /bus/bench-send/messages, 600 bytes", kind: Kind::Http(queue::send) },
    Scenario {
        name: "queue",
        about: "a message sent, then received and completed: each call that receives completes the one before",
        kind: Kind::Http(queue::whole),
    },
    Scenario { name: "queue-apart", about: "the same with a call for each", kind: Kind::Http(queue::apart) },
    Scenario { name: "tickets", about: "tickets in turn: open, read, comment, list", kind: Kind::Http(tickets::all) },
    Scenario { name: "tickets-read", about: "GET /tickets/{ticket_id}", kind: Kind::Http(tickets::read) },
    Scenario {
        name: ALERTS_READ,
        about: "GET /alerts, 1000 rows of one day out of all that are stored",
        kind: Kind::Http(alerts::read),
    },
    Scenario { name: "rules", about: "an event against --rules rules, one thread", kind: Kind::Local(rules::indexed) },
    Scenario {
        name: "rules-crowded",
        about: "the same with 1,000 tenants, however many rules",
        kind: Kind::Local(rules::crowded),
    },
    Scenario {
        name: "rules-naive",
        about: "the same, one rule after the other on a parsed event",
        kind: Kind::Local(rules::naive),
    },
];

/// One line of the table.
#[derive(Debug, Clone, Copy)]
pub struct Scenario {
    pub name: &'static str,
    pub about: &'static str,
    pub kind: Kind,
}

/// How a scenario is run.
#[derive(Debug, Clone, Copy)]
pub enum Kind {
    /// Requests over connections to a server.
    Http(fn(&Options) -> Box<dyn Load>),
    /// No server and no connection: the function works for about the given time on the calling thread.
    Local(fn(&Options, Duration) -> Result<Tally, Error>),
    /// Messages through a server of its own to a sink.
    Flow(Pace),
}

/// What the command line says about the work itself.
#[derive(Debug, Clone)]
pub struct Options {
    /// Events or messages in one request of the batch scenarios; 0: as many as is usual for the scenario.
    pub batch: u32,
    /// Rules to match against.
    pub rules: u32,
    /// Inbox entries that are there when inboxes are read.
    pub entries: u64,
    /// Sent as bearer token with every request.
    pub token: String,
}

impl Options {
    /// What was asked for, or what is usual.
    #[must_use]
    pub fn batch_or(&self, usual: u32) -> u32 {
        if self.batch == 0 { usual } else { self.batch }
    }
}

/// A scenario over HTTP.
#[async_trait]
pub trait Load: Send + Sync {
    /// Creates on the server what the requests need. Called once, before anything is measured.
    async fn prepare(&self, _connection: &mut Connection) -> Result<(), Error> {
        Ok(())
    }

    /// How many operations one request carries.
    fn batch(&self) -> u32 {
        1
    }

    /// How many connections it uses where so many are asked for.
    fn connections(&self, asked: u32) -> u32 {
        asked
    }

    /// The part of one connection. Two callers never send the same identifier.
    fn caller(&self) -> Box<dyn Caller>;
}

/// What one connection sends, one request after the other.
pub trait Caller: Send {
    /// The next request, whole.
    fn request(&mut self) -> &[u8];

    /// How long to wait before the next request.
    fn pause(&self) -> Option<Duration> {
        None
    }

    /// How many operations this reply to the last request completed; none if it is not what it should be.
    fn check(&mut self, response: Response<'_>) -> Option<u64>;
}

/// The scenario of that name.
pub fn find(name: &str) -> Result<&'static Scenario, Error> {
    ALL.iter().find(|scenario| scenario.name == name).ok_or_else(|| Error::UnknownScenario {
        name: name.to_owned(),
        all: ALL.iter().map(|scenario| scenario.name).collect::<Vec<_>>().join(", "),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_name_lists_all() {
        assert_eq!(find("ingest").unwrap().name, "ingest");
        let error = find("injest").unwrap_err().to_string();
        for scenario in ALL {
            assert!(error.contains(scenario.name), "{error}");
        }
    }
}
