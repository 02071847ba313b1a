//! Making, changing, purging and deleting entities.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tidings_core::time::Timestamp;
use tidings_store::{Condition, Error, Query, Write};

use super::declared;
use super::definition::{Definition, Kind};
use super::entity::{Body, Entity, Origin, Pair, Record, Subscription};
use super::layout::{self, Delta, Layout};
use super::line::{Line, Origin as LineOrigin};
use super::path::{DEAD_LETTERS, Path};
use super::state::Settings;
use super::{Bus, BusError};

/// Queues and topics there can be, and subscriptions of one topic, as in Service Bus.
pub const ENTITIES: usize = 1000;
pub const SUBSCRIPTIONS: usize = 2000;
/// Subscriptions whose counts are in one item: it must stay small.
const COUNTED_TOGETHER: usize = 16;
/// A topic with no more subscriptions is deleted in one transaction; else its subscriptions are swept after it.
const DELETED_TOGETHER: usize = 40;
/// Who writes what is in the configuration file.
const CONFIGURATION: &str = "configuration";

/// A change of an entity: the writes, and what follows once they are durable.
pub struct Planned {
    pub writes: Vec<Write>,
    pub created: bool,
    record: Record,
    /// Lines that are replaced or gone.
    closing: Vec<Arc<Line>>,
    what: What,
}

enum What {
    Put,
    Delete,
}

/// What is declared, as far as it can still be so; said where it cannot.
fn possible(path: &Path, declared: &Definition, origin: Origin, before: Option<&Record>) -> Option<Definition> {
    let Some(before) = before.map(|before| &before.definition) else { return Some(declared.clone()) };
    if before.kind != declared.kind {
        let (is, declared) = (before.kind, declared.kind);
        tracing::warn!(entity = %path, ?is, ?declared, "an entity of the configuration is not made: there is one of another kind under its name, and its kind cannot change; delete that one first, or choose another name");
        return None;
    }
    // Where messages wait follows from it. The API refuses the same; a start goes on with what there is.
    if before.ordered != declared.ordered && origin == Origin::File {
        let (is, declared) = (before.ordered, declared.ordered);
        tracing::warn!(entity = %path, is, declared, "an entity of the configuration keeps its `ordered`, which is fixed when it is made; delete it first, or choose another name");
    }
    Some(Definition { ordered: before.ordered, ..declared.clone() })
}

impl Bus {
    /// Reads every entity and opens its lines.
    pub(super) async fn load(&self) -> Result<(), Error> {
        // A topic comes before its subscriptions: its path is the beginning of theirs.
        for record in self.stored_records().await? {
            self.install(record).await?;
        }
        for entity in self.entities().iter().filter(|entity| entity.kind() == Kind::Topic) {
            self.find_jobs(entity).await?;
        }
        Ok(())
    }

    /// Every entity as it is stored, in the order of paths.
    pub(super) async fn stored_records(&self) -> Result<Vec<Record>, Error> {
        let mut records = Vec::new();
        let mut query = Query::new(layout::ENTITIES).limit(500);
        loop {
            let page = self.shared.store.query(layout::table(), &query).await?;
            for item in &page.items {
                records.push(Record::from_item(item)?);
            }
            if page.next.is_none() {
                return Ok(records);
            }
            query = query.after(page.next);
        }
    }

    /// What every change of entities comes with where other nodes must hear of it.
    pub(super) fn change(&self) -> Option<Write> {
        self.shared.nodes.as_ref().map(|_| layout::changed())
    }

    /// Makes sure that the entities of the configuration exist as it says, and those declared from the start at all.
    pub async fn declare(&self, declared: &[(Path, Definition, Origin)]) -> Result<(), Error> {
        for (path, definition, origin) in declared {
            let before = self.record(path);
            let Some(definition) = &possible(path, definition, *origin, before.as_ref()) else { continue };
            let old = before.as_ref().filter(|_| *origin == Origin::BuiltIn);
            let old = old.filter(|before| declared::is_superseded(path, &before.definition.rules));
            let renewed = old.map(|old| Definition { rules: definition.rules.clone(), ..old.definition.clone() });
            let unchanged = before.as_ref().is_some_and(|before| match origin {
                Origin::BuiltIn if renewed.is_some() => false,
                Origin::BuiltIn => true,
                _ => before.origin == *origin && before.definition == *definition,
            });
            if unchanged {
                continue;
            }
            let origin = old.map_or(*origin, |old| old.origin);
            match self.plan_put(path, renewed.unwrap_or_else(|| definition.clone()), origin, CONFIGURATION).await {
                Ok(planned) => {
                    match self.shared.store.transact(planned.writes.clone()).await {
                        Ok(()) => self.follow(planned).await?,
                        // Another node starts at the same time, with the same.
                        Err(Error::Conflict { .. }) if self.shared.nodes.is_some() => self.sync_entities().await?,
                        Err(error) => return Err(error),
                    }
                }
                Err(BusError::Store(error)) => return Err(error),
                Err(error) => tracing::warn!(entity = %path, %error, "an entity of the configuration cannot be made"),
            }
        }
        // What is no longer in the file stays, with its messages, and is changed or deleted through the API.
        let in_file: Vec<_> = declared.iter().filter(|(.., origin)| *origin == Origin::File).collect();
        let is_in_file = |path: &str| in_file.iter().any(|(known, ..)| known.to_string() == path);
        for record in self.records().into_iter().filter(|record| record.origin == Origin::File) {
            if !is_in_file(&record.path) {
                let free = Record { origin: Origin::Api, ..record.clone() };
                let writes = std::iter::once(free.write(Some(&record))?).chain(self.change()).collect();
                match self.shared.store.transact(writes).await {
                    Ok(()) => self.install(free).await?,
                    Err(Error::Conflict { .. }) if self.shared.nodes.is_some() => self.sync_entities().await?,
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    /// Makes or changes an entity.
    pub async fn plan_put(
        &self,
        path: &Path,
        definition: Definition,
        origin: Origin,
        by: &str,
    ) -> Result<Planned, BusError> {
        let before = self.record(path);
        if let Some(before) = &before
            && before.definition.kind != definition.kind
        {
            return Err(BusError::OtherKind(before.definition.kind));
        }
        let now = self.shared.clock.now();
        let topic = match &path.subscription {
            Some(_) => Some(self.topic(&path.entity)?),
            None => None,
        };
        // What is declared from the start is there whatever else is.
        if before.is_none() && origin != Origin::BuiltIn {
            self.check_room(topic.as_deref())?;
        }
        let generation = || self.generation(now);
        let fresh = |record: Option<&String>| record.cloned().unwrap_or_else(generation);
        let record = Record {
            path: path.to_string(),
            origin,
            generation: match (&before, &topic) {
                (Some(before), _) => before.generation.clone(),
                (None, Some(topic)) => self.counted_with(topic, now),
                (None, None) => generation(),
            },
            main: fresh(before.as_ref().map(|before| &before.main)),
            dead: fresh(before.as_ref().map(|before| &before.dead)),
            topic: topic.as_ref().map(|topic| topic.record.generation.clone()),
            definition,
            updated_at: now,
            updated_by: by.to_owned(),
        };
        let mut writes = vec![record.write(before.as_ref())?];
        if let Some(topic) = topic {
            // The topic must not go away meanwhile.
            writes.push(Write::check(layout::table(), Record::key(&topic.record.path), Condition::Exists));
        }
        writes.extend(self.change());
        Ok(Planned { writes, created: before.is_none(), record, closing: Vec::new(), what: What::Put })
    }

    /// Where the counts of a new subscription are kept: with its topic's, or with those of a few others.
    fn counted_with(&self, topic: &Entity, now: Timestamp) -> String {
        let mut taken: BTreeMap<&str, usize> = BTreeMap::from([(topic.record.generation.as_str(), 0)]);
        if let Body::Topic(subscriptions) = &topic.body {
            for subscription in subscriptions.values() {
                *taken.entry(&subscription.record.generation).or_default() += 1;
            }
        }
        let room = taken.into_iter().find(|(_, count)| *count < COUNTED_TOGETHER);
        room.map_or_else(|| self.generation(now), |(generation, _)| generation.to_owned())
    }

    fn check_room(&self, topic: Option<&Entity>) -> Result<(), BusError> {
        match topic {
            Some(Entity { body: Body::Topic(subscriptions), .. }) if subscriptions.len() >= SUBSCRIPTIONS => {
                Err(BusError::TooMany(format!("the topic has {SUBSCRIPTIONS} subscriptions")))
            }
            None if self.entities().len() >= ENTITIES => {
                Err(BusError::TooMany(format!("there are {ENTITIES} queues and topics")))
            }
            _ => Ok(()),
        }
    }

    /// Deletes an entity with its messages; a topic with its subscriptions.
    pub fn plan_delete(&self, path: &Path) -> Result<Planned, BusError> {
        let record = self.record(path).ok_or_else(|| BusError::NoEntity(path.to_string()))?;
        let unchanged = Condition::Equals("main".into(), record.main.clone().into());
        let mut writes = vec![Write::delete(layout::table(), Record::key(&record.path)).when(unchanged)];
        let mut closing = Vec::new();
        let mut dispose = |pair: &Pair, writes: &mut Vec<Write>| {
            for line in [&pair.main, &pair.dead] {
                writes.push(layout::trash(line.layout.generation()));
                closing.push(Arc::clone(line));
            }
        };
        let entity = self.entity(&path.entity)?;
        match (&entity.body, &path.subscription) {
            (Body::Queue(pair), _) => {
                dispose(pair, &mut writes);
                writes.push(Write::delete(layout::table(), layout::counts_key(&record.generation)));
            }
            (Body::Topic(subscriptions), Some(name)) => {
                let found = subscriptions.get(name).ok_or_else(|| BusError::NoEntity(path.to_string()))?;
                dispose(&found.pair, &mut writes);
                let mut uncount = Vec::new();
                for line in [&found.pair.main, &found.pair.dead] {
                    uncount.extend(layout::uncount_changes(line.layout.generation()));
                }
                writes.push(Write::update(layout::table(), layout::counts_key(&record.generation), uncount));
            }
            (Body::Topic(subscriptions), None) => {
                let together = subscriptions.len() <= DELETED_TOGETHER;
                let mut counted = BTreeSet::from([&record.generation]);
                for subscription in subscriptions.values() {
                    if together {
                        writes.push(Write::delete(layout::table(), Record::key(&subscription.record.path)));
                        writes.push(subscription.record.trash());
                        counted.insert(&subscription.record.generation);
                    }
                    closing.push(Arc::clone(&subscription.pair.main));
                    closing.push(Arc::clone(&subscription.pair.dead));
                }
                let counts = counted.into_iter().map(|of| Write::delete(layout::table(), layout::counts_key(of)));
                writes.extend(counts);
                // What is yet to be copied goes with it.
                writes.push(layout::trash(&record.generation));
                if !together {
                    writes.push(layout::trash_topic(&record.path, &record.generation));
                }
            }
        }
        writes.extend(self.change());
        Ok(Planned { writes, created: false, record, closing, what: What::Delete })
    }

    /// Takes every message out of a line at once, however many: it gets new partitions, and the old ones are swept.
    pub async fn purge(&self, path: &Path) -> Result<(Planned, u64), BusError> {
        let line = self.line(path)?;
        let whole = Path { dead: false, ..path.clone() };
        let before = self.record(&whole).ok_or_else(|| BusError::NoEntity(path.to_string()))?;
        let counts = line.state().counts;
        let now = self.shared.clock.now();
        let mut record = Record { updated_at: now, ..before.clone() };
        let (from, to) = (line.layout.generation(), self.generation(now));
        *if path.dead { &mut record.dead } else { &mut record.main } = to.clone();
        let mut writes = vec![
            record.write(Some(&before))?,
            layout::trash(from),
            layout::pass_counts(&record.generation, from, &to, &counts),
        ];
        writes.extend(line.pass_numbers(&Layout::new(&to)).await?);
        writes.extend(self.change());
        let purged = u64::try_from(counts.waiting + counts.scheduled + counts.deferred).unwrap_or(0);
        Ok((Planned { writes, created: false, record, closing: vec![line], what: What::Put }, purged))
    }

    /// Follows a change that is durable. When it returns, every node that lives goes by it.
    pub async fn carried_out(&self, planned: Planned) -> Result<(), Error> {
        self.follow(planned).await?;
        self.until_known().await
    }

    async fn follow(&self, planned: Planned) -> Result<(), Error> {
        let Planned { record, closing, what, .. } = planned;
        match what {
            What::Put => {
                let generation = record.generation.clone();
                {
                    // Whoever takes changes over may have read what was there before.
                    let _turn = self.known.lock().await;
                    self.install(record).await?;
                }
                // Nobody else knows of a new one yet; which node should have it shows at the next look.
                self.seize(&generation).await?;
            }
            What::Delete => {
                let _turn = self.known.lock().await;
                self.uninstall(&record);
            }
        }
        closing.iter().for_each(|line| line.close());
        self.pushing.notify_one();
        Ok(())
    }

    fn generation(&self, now: Timestamp) -> String {
        self.shared.ids.uuid(now).simple().to_string()
    }

    /// Lets an entity run as its record says.
    pub(super) async fn install(&self, record: Record) -> Result<(), Error> {
        let _changing = self.changing.lock().await;
        let Some(path) = Path::parse(&record.path) else {
            return Err(Error::Corrupt(format!("{} is no path of the bus", record.path)));
        };
        if let (Some(_), Some(of)) = (&path.subscription, &record.topic)
            && self.entity(&path.entity).map_or(true, |topic| topic.record.generation != *of)
        {
            // Its topic is deleted, and it will be.
            return Ok(());
        }
        match (&path.subscription, record.definition.kind) {
            (None, Kind::Topic) => {
                let mut entities = self.write_entities();
                let body = match entities.get(&record.path).map(|entity| &entity.body) {
                    Some(body @ Body::Topic(_)) => body.clone(),
                    _ => Body::Topic(BTreeMap::new()),
                };
                entities.insert(record.path.clone(), Arc::new(Entity { record, body }));
            }
            (None, _) => {
                let before = self.entity(&record.path).ok().and_then(|entity| match &entity.body {
                    Body::Queue(pair) => Some(pair.clone()),
                    Body::Topic(_) => None,
                });
                let pair = self.open_pair(&record, before).await?;
                let entity = Entity { body: Body::Queue(pair), record };
                self.write_entities().insert(entity.record.path.clone(), Arc::new(entity));
            }
            (Some(name), _) => {
                let before = self.subscription(&path.entity, name).ok().map(|before| before.pair.clone());
                let pair = self.open_pair(&record, before).await?;
                let rules = Subscription::rules_of(&record.definition);
                let subscription = Arc::new(Subscription { name: name.clone(), rules, pair, record });
                let mut entities = self.write_entities();
                if let Some(topic) = entities.get(&path.entity)
                    && let Body::Topic(subscriptions) = &topic.body
                {
                    let mut subscriptions = subscriptions.clone();
                    subscriptions.insert(name.clone(), subscription);
                    let entity = Entity { record: topic.record.clone(), body: Body::Topic(subscriptions) };
                    entities.insert(path.entity.clone(), Arc::new(entity));
                }
            }
        }
        Ok(())
    }

    pub(super) fn uninstall(&self, record: &Record) {
        let Some(path) = Path::parse(&record.path) else { return };
        let mut entities = self.write_entities();
        match &path.subscription {
            None => {
                drop(entities.remove(&path.entity));
                self.forget_fanout(&record.generation);
            }
            Some(name) => {
                if let Some(topic) = entities.get(&path.entity)
                    && let Body::Topic(subscriptions) = &topic.body
                {
                    let mut subscriptions = subscriptions.clone();
                    subscriptions.remove(name);
                    let entity = Entity { record: topic.record.clone(), body: Body::Topic(subscriptions) };
                    entities.insert(path.entity.clone(), Arc::new(entity));
                }
            }
        }
    }

    /// The lines of a record: those that run already, where the generation is the same.
    async fn open_pair(&self, record: &Record, before: Option<Pair>) -> Result<Pair, Error> {
        let settings = record.definition.settings();
        let of_dead = Settings::of_dead_letters(settings.lock, settings.history);
        let counts = self.shared.store.get(layout::table(), &layout::counts_key(&record.generation)).await?;
        let counts = counts.unwrap_or_default();
        let open = |path: String, generation: &str, settings: Settings, dead: Option<Arc<Line>>| {
            let origin = LineOrigin {
                path,
                entity: record.generation.clone(),
                generation: generation.to_owned(),
                settings,
                dead,
            };
            Line::open(Arc::clone(&self.shared), origin, Delta::read(&counts, generation))
        };
        let same = |line: &Arc<Line>, generation: &str| line.layout.generation() == generation;
        let dead = match before.as_ref().map(|pair| &pair.dead).filter(|line| same(line, &record.dead)) {
            Some(line) => {
                line.change_settings(of_dead);
                Arc::clone(line)
            }
            None => open(format!("{}/{DEAD_LETTERS}", record.path), &record.dead, of_dead, None).await?,
        };
        let main = match before.as_ref().map(|pair| &pair.main).filter(|line| same(line, &record.main)) {
            Some(line) => {
                line.change_settings(settings);
                line.change_dead(Arc::clone(&dead));
                Arc::clone(line)
            }
            None => open(record.path.clone(), &record.main, settings, Some(Arc::clone(&dead))).await?,
        };
        Ok(Pair { main, dead })
    }
}
