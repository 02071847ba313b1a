//! Marking entries as read, unread or archived: all of a request or none (S001-97 to S001-103).
//!
//! An entry's keys in the table never change, so marking is an update in place. The counters of the users concerned
//! belong into the same transaction. A hundred entries and a counter are more than a transaction holds; then a counter
//! first notes what is about to happen (`pending`), the entries change in a transaction of their own, and the counter
//! follows. One of the entries carries the request's mark, so that whoever comes across the note knows whether it
//! happened, whatever crashed in between: the count is right at every moment.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tidings_core::time::{self, Timestamp};
use tidings_store::{Change, Condition, Error, Item, Store, Write, limits};

use super::counter::{self, Count};
use super::record::{self, Kind, Status, table};
use super::{Inbox, view};

/// Others that may change the same entries at the same time before we give up.
const TRIES: usize = 20;

/// One entry, and what it is to become.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark {
    pub user: String,
    /// What follows `all#` in its identifier.
    pub time: String,
    pub to: Status,
}

/// What became of a request.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Marked {
    /// Entries that were not what they were to become.
    pub updated: usize,
    /// Which of the marks found no entry.
    pub not_found: Vec<usize>,
}

/// By how much the unread of a user change, by the second at which they expire.
type Deltas = BTreeMap<i64, i64>;

/// What a counter notes before entries change without it.
#[derive(Serialize, Deserialize)]
struct Pending {
    /// Stands in the entry below once it happened.
    id: String,
    user: String,
    time: String,
    by: Vec<(i64, i64)>,
}

/// The work of one request, as the entries are now.
#[derive(Default)]
struct Plan {
    entries: Vec<Write>,
    /// The first entry that changes, and its mark.
    probe: Option<(String, String, Option<String>)>,
    deltas: BTreeMap<String, Deltas>,
    counters: BTreeMap<String, Option<Item>>,
    marked: Marked,
}

impl Inbox {
    /// Carries out all marks, or none. No entry is named twice.
    pub async fn mark(&self, marks: &[Mark]) -> Result<Marked, Error> {
        for _ in 0..TRIES {
            let plan = self.plan(marks).await?;
            if plan.entries.is_empty() {
                return Ok(plan.marked);
            }
            let fits = plan.entries.len() + plan.deltas.len() <= limits::TRANSACTION_WRITES;
            let done = if fits { self.at_once(&plan).await } else { self.with_notes(&plan).await };
            match done {
                Ok(()) => return Ok(plan.marked),
                // Somebody else changed one of them first.
                Err(Error::Conflict { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Err(Error::Throttled("the notifications are being changed by others".to_owned()))
    }

    async fn plan(&self, marks: &[Mark]) -> Result<Plan, Error> {
        let now = self.clock.now();
        let mut plan = Plan::default();
        for (place, mark) in marks.iter().enumerate() {
            let Some(item) = self.entry(&mark.user, &mark.time).await? else {
                plan.marked.not_found.push(place);
                continue;
            };
            let Some((write, ttl, by)) = marked(&item, mark, now) else { continue };
            plan.marked.updated += 1;
            plan.entries.push(write);
            *plan.deltas.entry(mark.user.clone()).or_default().entry(ttl).or_default() += by;
            plan.probe
                .get_or_insert_with(|| (mark.user.clone(), mark.time.clone(), item.str("mark").map(ToOwned::to_owned)));
        }
        for user in plan.deltas.keys() {
            let counter = self.store.get(table(), &counter::key(user)).await?;
            plan.counters.insert(user.clone(), self.settle(user, counter).await?);
        }
        Ok(plan)
    }

    async fn at_once(&self, plan: &Plan) -> Result<(), Error> {
        let now = self.clock.now();
        let mut writes = plan.entries.clone();
        for (user, deltas) in &plan.deltas {
            let by: Vec<_> = deltas.iter().map(|(ttl, by)| (*ttl, *by)).collect();
            writes.push(counter::changed(user, &by, plan.counters.get(user).and_then(Option::as_ref), now));
        }
        self.store.transact(writes).await
    }

    /// Notes first, then the entries, then the counters.
    async fn with_notes(&self, plan: &Plan) -> Result<(), Error> {
        let Some((probe_user, probe_time, mark)) = &plan.probe else { return Ok(()) };
        let id = self.ids.uuid(self.clock.now()).to_string();
        let mut notes = Vec::new();
        for (user, deltas) in &plan.deltas {
            let by = deltas.iter().map(|(ttl, by)| (*ttl, *by)).collect();
            let pending = Pending { id: id.clone(), user: probe_user.clone(), time: probe_time.clone(), by };
            let text = serde_json::to_string(&pending).unwrap_or_default();
            let changes = vec![Change::Set("pending".into(), text.into()), Change::Add("rev".into(), 1)];
            let write = Write::update(table(), counter::key(user), changes);
            notes.push(write.when(Condition::LacksAttribute("pending".into())));
        }
        self.store.transact(notes).await?;
        let mut entries = plan.entries.clone();
        if let Some(Write::Update { changes, condition, .. }) = entries.first_mut() {
            changes.push(Change::Set("mark".into(), id.into()));
            let unchanged = match mark {
                Some(mark) => Condition::Equals("mark".into(), mark.into()),
                None => Condition::LacksAttribute("mark".into()),
            };
            *condition = Condition::All(vec![condition.clone(), unchanged]);
        }
        let done = self.store.transact(entries).await;
        for user in plan.deltas.keys() {
            let counter = self.store.get(table(), &counter::key(user)).await?;
            self.settle(user, counter).await?;
        }
        done
    }

    /// Brings a counter in order that has a note on it: what it says either happened and is counted now, or will never
    /// happen. Gives the counter as it is then.
    async fn settle(&self, user: &str, counter: Option<Item>) -> Result<Option<Item>, Error> {
        let Some((text, pending)) = pending_of(counter.as_ref()) else { return Ok(counter) };
        let probe = self.entry(&pending.user, &pending.time).await?;
        let is_note = Condition::Equals("pending".into(), text.into());
        let writes = if happened(probe.as_ref(), &pending) {
            let counted = counter::changed(user, &pending.by, counter.as_ref(), self.clock.now());
            vec![without_note(counted).when(is_note)]
        } else {
            let changes = vec![Change::Add("rev".into(), 1)];
            let dropped = without_note(Write::update(table(), counter::key(user), changes)).when(is_note);
            // Whoever wrote the note may still be about to change the entries; now that fails.
            let fence = Write::update(
                table(),
                record::key(&pending.user, &pending.time),
                vec![Change::Set("mark".into(), format!("not {}", pending.id).into())],
            )
            .when(Condition::All(vec![
                Condition::Exists,
                Condition::Differs("mark".into(), pending.id.clone().into()),
            ]));
            if probe.is_some() { vec![dropped, fence] } else { vec![dropped] }
        };
        match self.store.transact(writes).await {
            Ok(()) | Err(Error::Conflict { .. }) => self.store.get(table(), &counter::key(user)).await,
            Err(error) => Err(error),
        }
    }
}

/// What a counter says, a note on it included.
pub async fn settled_count(store: &dyn Store, counter: Option<&Item>, now: Timestamp) -> Result<Count, Error> {
    let mut count = Count::of(counter, now);
    let Some((_, pending)) = pending_of(counter) else { return Ok(count) };
    let probe = store.get(table(), &record::key(&pending.user, &pending.time)).await?;
    if happened(probe.as_ref(), &pending) {
        let by: i64 = pending.by.iter().filter(|(ttl, _)| *ttl > now.as_second()).map(|(_, by)| by).sum();
        count.unread = count.unread.saturating_add_signed(by);
        // The entries have changed, and the counter has yet to say so.
        count.revision = -1 - count.revision;
    }
    Ok(count)
}

fn pending_of(counter: Option<&Item>) -> Option<(String, Pending)> {
    let text = counter?.str("pending")?;
    Some((text.to_owned(), serde_json::from_str(text).ok()?))
}

fn happened(probe: Option<&Item>, pending: &Pending) -> bool {
    probe.and_then(|item| item.str("mark")) == Some(pending.id.as_str())
}

fn without_note(mut write: Write) -> Write {
    if let Write::Update { changes, .. } = &mut write {
        changes.push(Change::Remove("pending".into()));
    }
    write
}

/// How long the counter is kept, at least, for an entry that says nothing of its end.
const FOREIGN_SECONDS: i64 = 90 * 86_400;

/// The update that makes an entry what it is to become, when it expires, and by how much the unread change; nothing if
/// it is that already (S001-101).
fn marked(item: &Item, mark: &Mark, now: Timestamp) -> Option<(Write, i64, i64)> {
    let was_key = item.str("status_ordenar")?;
    let was = Status::parse(was_key.split('#').next()?)?;
    if was == mark.to {
        return None;
    }
    let (time, kind) = (view::time_of(item)?, Kind::parse(item.str("event_type")?)?);
    let mut changes = vec![
        Change::Set("status_ordenar".into(), record::status_key(mark.to, time).into()),
        Change::Set("tipo_ordenar".into(), record::kind_key(kind, mark.to, time).into()),
    ];
    match mark.to {
        Status::Read => {
            let read_at = item.str("read_at").map_or_else(|| time::iso_millis(now), ToOwned::to_owned);
            changes.push(Change::Set(record::READING.into(), format!("{read_at}#{time}").into()));
            changes.push(Change::Set("read_at".into(), read_at.into()));
        }
        Status::Unread => {
            changes.push(Change::Remove(record::READING.into()));
            changes.push(Change::Remove("read_at".into()));
        }
        Status::Archived => changes.push(Change::Remove(record::READING.into())),
    }
    let unread = |status| i64::from(status == Status::Unread);
    let write = Write::update(table(), record::key(&mark.user, time), changes)
        .when(Condition::Equals("status_ordenar".into(), was_key.into()));
    Some(match item.int("ttl") {
        Some(ttl) => (write, ttl, unread(mark.to) - unread(was)),
        // Not ours: written by another tool, and never counted.
        None => (write, now.as_second().saturating_add(FOREIGN_SECONDS), 0),
    })
}
