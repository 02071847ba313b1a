//! Rules: who hears of what. `read` checks a rule, `builtin` has those that come with Tidings, `book` matches events,
//! `exclude` keeps some of the matching rules back, `react` says what follows from the others, `served` that nobody hears
//! of an event twice over one channel,
//! `fanout` carries on what is too much for one transaction, `record` and `job` are what is stored of it.

pub mod book;
pub mod builtin;
mod chunk;
pub mod dry_run;
pub mod exclude;
pub mod fanout;
pub mod http;
pub mod job;
pub mod limits;
pub mod notice;
pub mod outcome;
pub mod react;
pub mod read;
pub mod record;
pub mod rule;
pub mod served;
pub mod template;
pub mod window;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use serde_json::{Map, Value};
use tidings_core::envelope::FieldError;
use tidings_core::time::Clock;
use tidings_store::{Error, Query, Range, Store};
use tokio::sync::Mutex;

pub use book::Book;
pub use outcome::Outcome;
pub use rule::{Rule, Target};

use crate::audit::{Action, Audit};
use crate::config;
pub use crate::origin::Origin;
use record::Stored;

/// How often a node looks whether another one has changed the rules.
pub const SYNC_EVERY: Duration = Duration::from_secs(3);
/// Changes by others that may come between reading the count and writing.
const TRIES: usize = 10;

/// What is wrong with a rule of the configuration file, if anything.
#[must_use]
pub fn check(name: &str, fields: &Map<String, Value>) -> Vec<FieldError> {
    read::rule(name, fields, Origin::File, None).err().unwrap_or_default()
}

/// Who changes a rule, for the audit log.
pub struct Author<'a> {
    pub user: &'a str,
    pub correlation_id: &'a str,
}

/// The rules of this installation: the book, and its copy in the store.
pub struct Rules {
    pub book: Arc<Book>,
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    /// The last change that the book has.
    revision: AtomicI64,
    /// Changes go one after the other, so that the book takes them in the order of the store.
    turn: Mutex<()>,
}

impl Rules {
    /// The book with the built-in rules and those of the configuration and of the store.
    pub async fn open(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        rules: &[config::rules::Rule],
    ) -> Result<Self, Error> {
        let book = Arc::new(Book::default());
        for rule in builtin::all()?.into_iter().chain(from_file(rules)?) {
            book.put(rule);
        }
        let rules = Self { book, store, clock, revision: AtomicI64::new(0), turn: Mutex::new(()) };
        rules.sync().await?;
        Ok(rules)
    }

    /// Says that this installation has no such channel: built-in rules do not tell by it.
    pub fn lacks(&self, channel: &str) -> Result<(), Error> {
        builtin::without(channel)?.into_iter().for_each(|rule| self.book.put(rule));
        Ok(())
    }

    /// Puts these in the place of the rules that the configuration file had before.
    pub fn take_file_rules(&self, rules: &[config::rules::Rule]) -> Result<(), Error> {
        self.book.replace_file_rules(from_file(rules)?);
        Ok(())
    }

    /// Takes over what changed in the store since the last look.
    pub async fn sync(&self) -> Result<(), Error> {
        let version = self.store.get(record::table(), &record::version_key()).await?;
        if record::revision_of(version.as_ref()) == self.revision.load(Ordering::Acquire) {
            return Ok(());
        }
        let _turn = self.turn.lock().await;
        let from = self.revision.load(Ordering::Acquire);
        let mut query = Query::new(record::RULES).index("revision-index").range(Range::Above(from.into())).limit(500);
        loop {
            let page = self.store.query(record::table(), &query).await?;
            for item in &page.items {
                match record::from_item(item) {
                    Ok(Stored::Rule(rule)) => self.book.put(*rule),
                    Ok(Stored::Gone(name)) => self.book.remove(&name),
                    // One rule that cannot be read must not keep the others from their events.
                    Err(error) => tracing::error!(%error, "a rule is left out"),
                }
                let seen = item.int("revision").unwrap_or(from);
                self.revision.fetch_max(seen, Ordering::AcqRel);
            }
            if page.next.is_none() {
                return Ok(());
            }
            query = query.after(page.next);
        }
    }

    /// Stores a rule and puts it into the book. Says whether it is new.
    pub async fn put(&self, rule: Rule, audit: &Audit, author: &Author<'_>) -> Result<bool, Error> {
        let _turn = self.turn.lock().await;
        // What takes the place of a built-in rule changes a rule that was there.
        let is_new = self.book.get(&rule.name).is_none();
        let action = |rule: &Rule| {
            let name = if is_new { "rule.create" } else { "rule.update" };
            let channels: Vec<_> = rule.targets.iter().map(Target::channel).collect();
            // No patterns, texts or addresses: they may be long, and the rule itself shows them.
            let excludes = rule.exclusion.is_some();
            let details = serde_json::json!({ "enabled": rule.enabled, "channels": channels, "exclude": excludes });
            Action::new(name, "rule", &rule.name).details(details)
        };
        let revision =
            self.change(audit, author, || action(&rule), |before| record::put(&rule, before, self.clock.now())).await?;
        self.book.put(rule);
        self.note(revision);
        Ok(is_new)
    }

    pub async fn delete(&self, name: &str, audit: &Audit, author: &Author<'_>) -> Result<(), Error> {
        let _turn = self.turn.lock().await;
        let action = || Action::new("rule.delete", "rule", name);
        let revision =
            self.change(audit, author, action, |before| record::delete(name, before, self.clock.now())).await?;
        self.book.remove(name);
        self.note(revision);
        Ok(())
    }

    /// Commits a change under the next number; gives the number.
    async fn change(
        &self,
        audit: &Audit,
        author: &Author<'_>,
        action: impl Fn() -> Action,
        writes: impl Fn(i64) -> Vec<tidings_store::Write>,
    ) -> Result<i64, Error> {
        for _ in 0..TRIES {
            let version = self.store.get(record::table(), &record::version_key()).await?;
            let before = record::revision_of(version.as_ref());
            match audit.record_with(author.user, author.correlation_id, action(), writes(before)).await {
                Ok(_) => return Ok(before + 1),
                // Another node was first.
                Err(Error::Conflict { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Err(Error::Throttled("the rules are contended".to_owned()))
    }

    /// Our own change is in the book; changes of others in between are still to be read.
    fn note(&self, revision: i64) {
        let _ = self.revision.compare_exchange(revision - 1, revision, Ordering::AcqRel, Ordering::Acquire);
    }
}

/// The rules of a configuration file, compiled.
fn from_file(rules: &[config::rules::Rule]) -> Result<Vec<Rule>, Error> {
    let compile = |rule: &config::rules::Rule| {
        let origin = if rule.of_monitor { Origin::Monitor } else { Origin::File };
        read::rule(&rule.name, &rule.to_json(), origin, None).map_err(|errors| {
            Error::Open(format!("the rule `{}` cannot be used: {}", rule.name, read::in_one_line(&errors)))
        })
    };
    rules.iter().map(compile).collect()
}
