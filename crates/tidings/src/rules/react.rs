//! What follows from an event that rules match: the writes for its transaction, and its outcome.
//!
//! Everything goes into the event's own transaction while it fits. Rules that do not fit are left to a job (`job`),
//! which is part of the transaction too, so that nothing accepted is forgotten.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tidings_store::{Error, Store, Table, Write, limits};
use uuid::Uuid;

use super::exclude::Exclusions;
use super::job;
use super::notice::{self, Destination, Notice, Occurrence, Settings};
use super::outcome::{Fanout, Outcome, Told};
use super::rule::{Rule, Target};
use super::served::{self, Served, Share};
use super::window::Windows;
use crate::bus::{self, Bus, BusError, Prepared};
use crate::events::record::NewEvent;
use crate::inbox::order::Order;
use crate::inbox::{Entry, map};
use crate::ingest::Companions;
use crate::messages::{Message, counters, record};
use crate::tickets::callers::Callers;

/// Writes of the event itself: its id, its record, its day. And one for a job, one for whom the job need not tell any more,
/// and one that counts messages.
const KEPT_WRITES: usize = 6;
/// Bytes kept for the event, its outcome and a job.
const KEPT_BYTES: usize = 1024 * 1024;

/// What follows from one event.
#[derive(Debug, Default)]
pub struct Reaction {
    pub writes: Vec<Write>,
    /// Which of the writes open a window, and which one.
    pub markers: Vec<(usize, Uuid)>,
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
    order: Order,
}

/// What one rule causes.
#[derive(Default)]
struct Effects {
    /// The windows that it opens.
    markers: Vec<(Uuid, Write)>,
    entries: Vec<Entry>,
    messages: Vec<Message>,
    /// For the bus, with the name of the target's entity.
    bus: Vec<(String, Prepared)>,
    nobody: bool,
    /// Whom it would have told, but for windows and other rules, and what is wrong.
    told: Told,
}

impl Reactor {
    pub fn new(store: Arc<dyn Store>, settings: Settings) -> Self {
        let messages = record::table(&settings.stage);
        Self { store, settings, messages, bus: None, order: Order::default() }
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

    /// What follows from an event, given the rules it matches and those of their windows that are known to be open.
    pub async fn react(
        &self,
        new: &NewEvent<'_>,
        rules: &[Arc<Rule>],
        silent: &BTreeSet<Uuid>,
        with: &Companions,
    ) -> Result<Reaction, Error> {
        let event = Occurrence::new(new.envelope, &new.json, new.received_at, &self.settings)
            .at(self.order.place(new.received_at));
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
            let before = sheet.served.mark();
            // Thousands of rules may match; those that cannot fit any more cost nothing here.
            let effects = match sheet.is_full() {
                true => None,
                false => self.effects(rule, &event, silent, &sheet.reaction.told, &mut sheet.served).await?,
            };
            let fits = match effects {
                Some(effects) => sheet.add(rule, effects, &self.messages)?,
                None => false,
            };
            if !fits {
                sheet.served.back_to(before);
                sheet.reaction.outcome.rule(&rule.name, "fanout", Told::default());
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
            reaction.writes.extend(sheet.served.first_page(&id, event.received_at.as_second().saturating_add(keep)));
            reaction.outcome.fanout = Some(Fanout { job: id, ..Fanout::default() });
        }
        Ok(reaction)
    }

    /// What a rule causes, or `None` if it is more than a transaction could ever hold. Whom it tells is noted in `served`.
    async fn effects(
        &self,
        rule: &Rule,
        event: &Occurrence<'_>,
        silent: &BTreeSet<Uuid>,
        told: &BTreeSet<String>,
        served: &mut Served,
    ) -> Result<Option<Effects>, Error> {
        let mut notice = Notice::of(rule, event);
        let windows = Windows::of(rule, &notice, event);
        let mut errors = std::mem::take(&mut notice.errors);
        // Users with the windows that telling them opens.
        let mut users: BTreeMap<String, Vec<Uuid>> = BTreeMap::new();
        let mut opened: BTreeSet<Uuid> = BTreeSet::new();
        let mut effects = Effects::default();
        for (number, target) in rule.targets.iter().enumerate() {
            let shared = windows.as_ref().filter(|_| target.is_fixed()).map(Windows::fixed);
            if shared.is_some_and(|shared| silent.contains(&shared)) {
                effects.told.repeats += 1;
                continue;
            }
            // The rule's targets that the event itself gives an address.
            let apart = windows.as_ref().filter(|_| shared.is_none());
            match notice.destination(rule, number, event, &mut errors) {
                Destination::Message(mut message) => {
                    let turn = Turn { rule: &rule.name, number, shared, apart };
                    let is_open = |id: &Uuid| silent.contains(id) || opened.contains(id);
                    let left = turn.left_of(&mut message, is_open, served, &mut effects.told);
                    let Some((share, ids)) = left else { continue };
                    opened.extend(ids);
                    let on_bus = self.on_bus(rule, number, event).await?;
                    // What nobody on the bus wants is told to nobody.
                    if on_bus.as_ref().is_none_or(|(_, prepared)| !prepared.sent.is_empty()) {
                        served.add(share);
                    }
                    match on_bus {
                        Some(prepared) => effects.bus.push(prepared),
                        None => effects.messages.push(*message),
                    }
                }
                Destination::Users(named) => {
                    for user in named {
                        let window = shared.or_else(|| apart.map(|windows| windows.user(&user)));
                        if window.is_some_and(|window| silent.contains(&window)) {
                            effects.told.repeats += 1;
                        } else {
                            users.entry(user).or_default().extend(window);
                        }
                    }
                }
                Destination::Product { product, groups } => {
                    let window = shared.or_else(|| apart.map(|windows| windows.product(&product, &groups)));
                    if window.is_some_and(|window| silent.contains(&window)) {
                        effects.told.repeats += 1;
                        continue;
                    }
                    let most = limits::TRANSACTION_WRITES;
                    let found = map::recipients_up_to(&*self.store, &product, &groups, most).await?;
                    effects.nobody |= found.is_empty();
                    for user in found.into_iter().filter(|user| notice::is_user(user)) {
                        users.entry(user).or_default().extend(window);
                    }
                }
                Destination::Nobody => effects.nobody = true,
            }
        }
        if 2 * users.len() + effects.messages.len() > limits::TRANSACTION_WRITES {
            effects.bus.into_iter().for_each(|(_, prepared)| prepared.aborted());
            return Ok(None);
        }
        for (user, ids) in users.into_iter().filter(|(user, _)| !told.contains(user)) {
            effects.entries.push(notice.entry(rule, &user, event));
            opened.extend(ids);
        }
        effects.markers = windows.iter().flat_map(|windows| opened.iter().map(|id| (*id, windows.open(*id)))).collect();
        effects.told.errors = errors;
        Ok(Some(effects))
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

/// A target's turn, with the windows that its message may open.
struct Turn<'a> {
    rule: &'a str,
    number: usize,
    shared: Option<Uuid>,
    apart: Option<&'a Windows<'a>>,
}

impl Turn<'_> {
    /// Takes out of a message who was told the same not long ago, and who is served. Gives those who are left, if any, and
    /// the windows that telling them opens.
    fn left_of(
        &self,
        message: &mut Message,
        is_open: impl Fn(&Uuid) -> bool,
        served: &Served,
        told: &mut Told,
    ) -> Option<(Share, BTreeSet<Uuid>)> {
        let mut ids: BTreeSet<Uuid> = self.shared.into_iter().collect();
        let each = self.apart.filter(|_| Windows::are_apart(message));
        if let Some(windows) = self.apart {
            let (new, repeats) = windows.message(message, is_open);
            told.repeats += repeats;
            if new.is_empty() {
                return None;
            }
            ids = new;
        }
        // Only what is really made counts, so windows come first.
        let taken = served.take_out(self.rule, self.number, message);
        told.left_out.extend(taken.left_out);
        let share = taken.share?;
        // Who is left out has not heard it from this rule.
        Some((share, each.map_or(ids, |windows| windows.message(message, |_| false).0)))
    }
}

/// The transaction as it fills up.
#[derive(Default)]
struct Sheet {
    reaction: Reaction,
    bytes: usize,
    /// Writes of the transaction that are spoken for.
    kept_writes: usize,
    /// Who is told over which channel, and by whom.
    served: Served,
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
            sheet.served.note(message);
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
        let told_somebody = !effects.entries.is_empty() || !effects.messages.is_empty() || !effects.bus.is_empty();
        let (opened, mut writes): (Vec<Uuid>, Vec<Write>) = effects.markers.into_iter().unzip();
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
        let is_crowded = self.served.bytes() > served::PAGE_BYTES;
        if used + writes.len() + on_bus > room
            || self.bytes + bytes > limits::TRANSACTION_BYTES - KEPT_BYTES
            || is_crowded
        {
            effects.bus.into_iter().for_each(|(_, prepared)| prepared.aborted());
            return Ok(false);
        }
        for (entity, prepared) in effects.bus {
            reaction.outcome.on_bus(Some(&rule.name), &entity, &prepared);
            reaction.bus = std::mem::take(&mut reaction.bus).and(prepared);
        }
        let first = reaction.writes.len();
        reaction.markers.extend(opened.into_iter().enumerate().map(|(place, window)| (first + place, window)));
        self.bytes += bytes;
        reaction.writes.extend(writes);
        let status = match (told_somebody, effects.nobody) {
            (false, _) if effects.told.repeats > 0 => "deduplicated",
            (false, false) if !effects.told.left_out.is_empty() => "served",
            (_, true) => "no_recipients",
            (_, false) => "matched",
        };
        reaction.outcome.rule(&rule.name, status, effects.told);
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
