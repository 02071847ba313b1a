//! What follows from an event that rules match: the writes for its transaction, and its outcome.
//!
//! Everything goes into the event's own transaction while it fits. Rules that do not fit are left to a job (`job`),
//! which is part of the transaction too, so that nothing accepted is forgotten.

use std::collections::BTreeSet;
use std::sync::Arc;

use tidings_store::{Error, Store, Table, Write, limits};

use super::exclude::Exclusions;
use super::job;
use super::notice::{self, Destination, Notice, Occurrence, Settings};
use super::outcome::{Fanout, Outcome};
use super::rule::{Rule, Target};
use crate::bus::{self, Bus, BusError, Prepared};
use crate::events::record::NewEvent;
use crate::inbox::{Entry, map};
use crate::ingest::Companions;
use crate::messages::{Message, counters, record};
use crate::tickets::callers::Callers;

/// Writes of the event itself: its id, its record, its day. And one for a job, and one that counts messages.
const KEPT_WRITES: usize = 5;
/// Bytes kept for the event, its outcome and a job.
const KEPT_BYTES: usize = 1024 * 1024;

/// What follows from one event.
#[derive(Debug, Default)]
pub struct Reaction {
    pub writes: Vec<Write>,
    /// Which of the writes open a window, and for which rule.
    pub markers: Vec<(usize, String)>,
    pub outcome: Outcome,
    /// To be announced once they are stored.
    pub messages: Vec<Message>,
    /// Users who have an entry of it: one for an event, however many rules name them (S001-49).
    pub told: BTreeSet<String>,
    /// Messages on the bus, whose writes are among the others already.
    pub bus: Prepared,
}

/// Decides what follows from events.
pub struct Reactor {
    store: Arc<dyn Store>,
    settings: Settings,
    messages: Table,
    bus: Option<Arc<Bus>>,
}

/// What one rule causes.
struct Effects {
    marker: Option<Write>,
    entries: Vec<Entry>,
    messages: Vec<Message>,
    /// For the bus, with the name of the target's entity.
    bus: Vec<(String, Prepared)>,
    nobody: bool,
    errors: Vec<String>,
}

impl Reactor {
    pub fn new(store: Arc<dyn Store>, settings: Settings) -> Self {
        let messages = record::table(&settings.stage);
        Self { store, settings, messages, bus: None }
    }

    /// Phone numbers that tickets are for are stored as this makes them.
    #[must_use]
    pub fn with_callers(self, callers: Arc<Callers>) -> Self {
        Self { settings: self.settings.with_callers(callers), ..self }
    }

    /// Sends what rules send to queues and topics over this bus.
    #[must_use]
    pub fn with_bus(self, bus: Arc<Bus>) -> Self {
        Self { bus: Some(bus), ..self }
    }

    /// What follows from an event, given the rules it matches and those of them that said the same not long ago.
    pub async fn react(
        &self,
        new: &NewEvent<'_>,
        rules: &[Arc<Rule>],
        silent: &BTreeSet<String>,
        with: &Companions,
    ) -> Result<Reaction, Error> {
        let event = Occurrence::new(new.envelope, &new.json, new.received_at, &self.settings);
        let mut sheet = Sheet::beside(with, &self.messages)?;
        let mut left: Vec<Arc<Rule>> = Vec::new();
        let exclusions = Exclusions::among(rules, &event.fields);
        for rule in rules {
            if let Some(kept) = exclusions.is_one(rule) {
                sheet.reaction.outcome.excluded(kept);
                continue;
            }
            if let Some(kept) = exclusions.covers(&rule.name) {
                sheet.reaction.outcome.suppressed(&rule.name, kept);
                continue;
            }
            if silent.contains(&rule.name) {
                sheet.reaction.outcome.rule(&rule.name, "deduplicated", Vec::new());
                continue;
            }
            // Thousands of rules may match; those that cannot fit any more cost nothing here.
            let effects = if sheet.is_full() { None } else { self.effects(rule, &event, &sheet.reaction.told).await? };
            let fits = match effects {
                Some(effects) => sheet.add(rule, effects, &self.messages)?,
                None => false,
            };
            if !fits {
                sheet.reaction.outcome.rule(&rule.name, "fanout", Vec::new());
                left.push(Arc::clone(rule));
            }
        }
        let mut reaction = sheet.reaction;
        reaction.writes.extend(reaction.bus.writes());
        reaction.writes.extend(counters::created(&reaction.messages));
        if !left.is_empty() {
            let keep = self.settings.messages_seconds.max(self.settings.notifications_seconds);
            let (id, write) = job::new(&event, &new.key, &left, keep);
            reaction.writes.push(write);
            reaction.outcome.fanout = Some(Fanout { job: id, state: String::new(), notifications: 0, messages: 0 });
        }
        Ok(reaction)
    }

    /// What a rule causes, or `None` if it is more than a transaction could ever hold.
    async fn effects(
        &self,
        rule: &Rule,
        event: &Occurrence<'_>,
        told: &BTreeSet<String>,
    ) -> Result<Option<Effects>, Error> {
        let notice = Notice::of(rule, event);
        let mut users = BTreeSet::new();
        let mut messages = Vec::new();
        let mut bus = Vec::new();
        let mut nobody = false;
        for number in 0..rule.targets.len() {
            match notice.destination(rule, number, event) {
                Destination::Message(message) => match self.on_bus(rule, number, event).await? {
                    Some(prepared) => bus.push(prepared),
                    None => messages.push(*message),
                },
                Destination::Users(named) => users.extend(named),
                Destination::Product { product, groups } => {
                    let most = limits::TRANSACTION_WRITES;
                    let found = map::recipients_up_to(&*self.store, &product, &groups, most).await?;
                    nobody |= found.is_empty();
                    users.extend(found.into_iter().filter(|user| notice::is_user(user)));
                }
                Destination::Nobody => nobody = true,
            }
        }
        if 2 * users.len() + messages.len() > limits::TRANSACTION_WRITES {
            bus.into_iter().for_each(|(_, prepared)| prepared.aborted());
            return Ok(None);
        }
        let entries = users.iter().filter(|user| !told.contains(*user)).map(|user| notice.entry(rule, user, event));
        Ok(Some(Effects {
            marker: notice.marker(rule, event),
            entries: entries.collect(),
            messages,
            bus,
            nobody,
            errors: notice.errors,
        }))
    }

    /// The writes that put the event on the bus, if that is where the target leads. An entity that does not exist is
    /// left to the message, which says so.
    async fn on_bus(
        &self,
        rule: &Rule,
        number: usize,
        event: &Occurrence<'_>,
    ) -> Result<Option<(String, Prepared)>, Error> {
        let (Some(bus), Some(Target::Queue { entity })) = (&self.bus, rule.targets.get(number)) else {
            return Ok(None);
        };
        let message = bus::of_event(event.envelope, Some(&rule.name));
        match bus.prepare(entity, message).await {
            Ok(prepared) => Ok(Some((entity.clone(), prepared))),
            Err(BusError::Store(error)) => Err(error),
            Err(_) => Ok(None),
        }
    }
}

/// The transaction as it fills up.
#[derive(Default)]
struct Sheet {
    reaction: Reaction,
    bytes: usize,
    /// Writes of the transaction that are spoken for.
    kept_writes: usize,
}

impl Sheet {
    /// An empty sheet, but for what the part that brings the event stores with it.
    fn beside(with: &Companions, messages: &Table) -> Result<Self, Error> {
        let mut sheet = Self { kept_writes: KEPT_WRITES + with.writes.len(), ..Self::default() };
        sheet.bytes = with.writes.iter().map(notice::bytes).sum();
        for message in &with.messages {
            let write = Write::insert(messages, message.to_item()?);
            sheet.bytes += notice::bytes(&write);
            sheet.reaction.writes.push(write);
            sheet.reaction.outcome.sent(message);
        }
        with.sent.iter().for_each(|sent| sheet.reaction.outcome.forwarded(sent));
        sheet.reaction.messages.clone_from(&with.messages);
        Ok(sheet)
    }

    /// Writes that the rules may cause.
    fn room(&self) -> usize {
        limits::TRANSACTION_WRITES.saturating_sub(self.kept_writes)
    }

    fn is_full(&self) -> bool {
        self.reaction.writes.len() + self.reaction.bus.len() >= self.room()
    }

    /// Adds a rule's effects if all of them fit.
    fn add(&mut self, rule: &Rule, effects: Effects, messages: &Table) -> Result<bool, Error> {
        // A rule that told nobody has said nothing that could be repeated.
        let told_somebody = !effects.entries.is_empty() || !effects.messages.is_empty() || !effects.bus.is_empty();
        let mut writes: Vec<Write> = effects.marker.filter(|_| told_somebody).into_iter().collect();
        let marked = !writes.is_empty();
        for entry in &effects.entries {
            writes.extend(entry.writes()?);
        }
        for message in &effects.messages {
            writes.push(Write::insert(messages, message.to_item()?));
        }
        let on_bus: usize = effects.bus.iter().map(|(_, prepared)| prepared.len()).sum();
        let bus_bytes: usize = effects.bus.iter().map(|(_, prepared)| prepared.bytes()).sum();
        let bytes = writes.iter().map(notice::bytes).sum::<usize>() + bus_bytes;
        let room = self.room();
        let reaction = &mut self.reaction;
        let used = reaction.writes.len() + reaction.bus.len();
        if used + writes.len() + on_bus > room || self.bytes + bytes > limits::TRANSACTION_BYTES - KEPT_BYTES {
            effects.bus.into_iter().for_each(|(_, prepared)| prepared.aborted());
            return Ok(false);
        }
        for (entity, prepared) in effects.bus {
            reaction.outcome.on_bus(Some(&rule.name), &entity, &prepared);
            reaction.bus = std::mem::take(&mut reaction.bus).and(prepared);
        }
        if marked {
            reaction.markers.push((reaction.writes.len(), rule.name.clone()));
        }
        self.bytes += bytes;
        reaction.writes.extend(writes);
        let status = if effects.nobody { "no_recipients" } else { "matched" };
        reaction.outcome.rule(&rule.name, status, effects.errors);
        for entry in &effects.entries {
            reaction.outcome.notified(entry);
        }
        for message in &effects.messages {
            reaction.outcome.sent(message);
        }
        reaction.messages.extend(effects.messages);
        reaction.told.extend(effects.entries.into_iter().map(|entry| entry.user));
        Ok(true)
    }
}
