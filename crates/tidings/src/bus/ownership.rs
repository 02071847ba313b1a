//! Who has which entity, where several nodes share the store.
//!
//! `tend` is called after every look at the nodes: it takes over what this node should have and nobody alive has, lets go
//! of what another one should have, and gives up at once what another one has taken.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tidings_store::{Error, Write};
use tokio::sync::watch;
use tokio::time::Instant;

use super::definition::Kind;
use super::entity::{Body, Entity};
use super::fence::Fence;
use super::layout::{self, Delta};
use super::line::Line;
use super::message::Message;
use super::prepared::Sent;
use super::{Bus, BusError, Path, Way};
use crate::nodes::{Holder, Nodes};
use crate::workers::turned_true;

/// How often what was posted by other nodes is looked for, and what they have scheduled.
const POSTS_EVERY: Duration = Duration::from_millis(500);
const TIMED_EVERY: u32 = 4;
/// Leases for which a node keeps what another should have, if locks were out when it wanted to let go.
const STAYS: u32 = 3;
/// For so long a node goes by what it knows of entities without asking whether they were changed. Whoever changes one is
/// answered when that time is over for everybody, so what was answered holds wherever the next call goes: nothing is sent
/// past a subscription that is there. It costs a small read now and then, however much is sent, and none while nothing is.
const KNOWN_FOR: Duration = Duration::from_millis(200);

/// Where the lines of an entity are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Where {
    Here,
    At(String),
    /// Between two nodes: in a moment somebody has them.
    Nowhere,
}

impl Bus {
    /// What has an owner: the lines that are counted together, by the name of their counts.
    fn units(&self) -> BTreeMap<String, Vec<Arc<Line>>> {
        let mut units: BTreeMap<String, Vec<Arc<Line>>> = BTreeMap::new();
        for line in self.lines() {
            units.entry(line.entity.clone()).or_default().push(line);
        }
        units
    }

    /// Does what follows from who is there.
    pub async fn tend(&self) -> Result<(), Error> {
        let Some(nodes) = self.shared.nodes.clone() else { return Ok(()) };
        self.sync_entities().await?;
        let units = self.units();
        for (generation, lines) in &units {
            self.tend_one(&nodes, generation, lines).await?;
        }
        self.forget_gone(&nodes, &units).await
    }

    async fn tend_one(&self, nodes: &Nodes, generation: &str, lines: &[Arc<Line>]) -> Result<(), Error> {
        let (fence, lease) = (self.shared.fence(generation), Fence::lease(generation));
        let epoch = fence.epoch();
        if epoch == 0 {
            // A lease of ours without the lines is one that could not be carried through: nobody else would take it.
            if nodes.wants(&lease) || nodes.holder(&lease) == Holder::Me {
                self.seize(generation).await?;
            }
            return Ok(());
        }
        let known = nodes.lease_of(&lease).filter(|_| nodes.holder(&lease) == Holder::Me);
        if !nodes.believes() || known.is_none_or(|known| known.epoch != epoch) {
            tracing::warn!(entity = name(lines), "another node has taken it over");
            drop(self.give_up(generation, lines).await);
        } else if nodes.wants(&lease) {
            let was_leaving = fence.is_leaving();
            fence.set(epoch);
            if was_leaving {
                lines.iter().for_each(|line| line.ready.notify_waiters());
            }
        } else {
            self.leave(nodes, generation, lines, epoch).await?;
        }
        Ok(())
    }

    /// Takes lines over if nobody has them; says nothing if somebody was faster.
    pub(super) async fn seize(&self, generation: &str) -> Result<(), Error> {
        let Some(nodes) = &self.shared.nodes else { return Ok(()) };
        let _changing = self.changing.lock().await;
        let fence = self.shared.fence(generation);
        let Some(lines) = self.units().remove(generation).filter(|_| fence.epoch() == 0) else { return Ok(()) };
        let raise = |epoch| vec![Fence::raise(generation, epoch)];
        let Some(epoch) = nodes.take(&Fence::lease(generation), raise).await? else { return Ok(()) };
        // From here on nobody else's writes go through, so what is read now is how things are.
        let counts = self.shared.store.get(layout::table(), &layout::counts_key(generation)).await?.unwrap_or_default();
        for line in &lines {
            line.take_over(Delta::read(&counts, line.layout.generation()), epoch).await?;
        }
        fence.set(epoch);
        lines.iter().for_each(|line| line.ready.notify_waiters());
        self.shared.alarm.notify_one();
        tracing::info!(entity = name(&lines), epoch, "this node has it now");
        Ok(())
    }

    /// Gives the writes that keep where the lines stand.
    async fn give_up(&self, generation: &str, lines: &[Arc<Line>]) -> Vec<Vec<Write>> {
        let _changing = self.changing.lock().await;
        self.shared.fence(generation).set(0);
        lines.iter().filter_map(|line| line.give_up()).collect()
    }

    /// Lets go of lines that another node should have, at a moment when no lock is out: nothing is handed out for a little
    /// while, so that there is one. Where locks last longer, everybody has what he wants meanwhile, and it is tried again
    /// later: a queue must not stand still for the sake of one slow receiver.
    async fn leave(&self, nodes: &Nodes, generation: &str, lines: &[Arc<Line>], epoch: u64) -> Result<(), Error> {
        let (fence, now) = (self.shared.fence(generation), self.shared.clock.monotonic());
        let waited = match (fence.is_leaving(), fence.since_turned(now)) {
            (true, waited) => waited.unwrap_or_default(),
            (false, Some(ago)) if ago < nodes.lease * STAYS => return Ok(()),
            (false, _) => {
                fence.begin_to_leave(now);
                Duration::ZERO
            }
        };
        if lines.iter().any(Line::holds_locks) {
            if waited >= nodes.every() / 2 {
                fence.stay(now);
                lines.iter().for_each(|line| line.ready.notify_waiters());
            }
            return Ok(());
        }
        tracing::info!(entity = name(lines), "another node should have it: letting go");
        self.release(nodes, generation, lines, epoch).await
    }

    async fn release(&self, nodes: &Nodes, generation: &str, lines: &[Arc<Line>], epoch: u64) -> Result<(), Error> {
        let heads = self.give_up(generation, lines).await;
        // What is not kept costs a longer way from the old head, and nothing else.
        drop(self.shared.store.transact_each(heads).await);
        nodes.give_back(&Fence::lease(generation), epoch).await
    }

    /// Lets go of everything, at the end.
    pub async fn release_all(&self) {
        let Some(nodes) = &self.shared.nodes else { return };
        for (generation, lines) in self.units() {
            let epoch = self.shared.fence(&generation).epoch();
            if epoch != 0
                && let Err(error) = self.release(nodes, &generation, &lines, epoch).await
            {
                tracing::warn!(%error, entity = name(&lines), "it is taken over when the lease has run out");
            }
        }
    }

    /// Forgets leases on entities that are no more, one node for all.
    async fn forget_gone(&self, nodes: &Nodes, known: &BTreeMap<String, Vec<Arc<Line>>>) -> Result<(), Error> {
        self.shared.fences.retain(|generation| known.contains_key(generation));
        if !nodes.wants("bus-sweep") {
            return Ok(());
        }
        let prefix = Fence::lease("");
        for lease in nodes.leases(&prefix) {
            let generation = lease.strip_prefix(&prefix).unwrap_or_default();
            // One that was made since we looked has its counts.
            if !known.contains_key(generation)
                && self.shared.store.get(layout::table(), &layout::counts_key(generation)).await?.is_none()
            {
                nodes.drop_lease(&lease).await?;
            }
        }
        Ok(())
    }

    /// Takes over what other nodes changed of queues, topics and subscriptions.
    pub async fn sync_entities(&self) -> Result<(), Error> {
        if self.shared.nodes.is_none() {
            return Ok(());
        }
        self.sync_in_turn(&mut *self.known.lock().await).await
    }

    /// The same, unless it was done a moment ago.
    pub(super) async fn know_entities(&self) -> Result<(), Error> {
        if self.shared.nodes.is_none() {
            return Ok(());
        }
        let mut known = self.known.lock().await;
        match *known {
            Some(at) if at.elapsed() < KNOWN_FOR => Ok(()),
            _ => self.sync_in_turn(&mut known).await,
        }
    }

    /// Waits until every other node has asked whether entities were changed, or must ask before it goes by them.
    pub(super) async fn until_known(&self) -> Result<(), Error> {
        if let Some(nodes) = &self.shared.nodes
            && nodes.are_others().await?
        {
            tokio::time::sleep(KNOWN_FOR).await;
        }
        Ok(())
    }

    async fn sync_in_turn(&self, known: &mut Option<Instant>) -> Result<(), Error> {
        let began = Instant::now();
        let version = self.shared.store.get(layout::table(), &layout::version_key()).await?;
        let version = version.and_then(|item| item.int("n")).unwrap_or(0);
        if self.version.load(Ordering::Acquire) == version {
            *known = Some(began);
            return Ok(());
        }
        let records = self.stored_records().await?;
        let before = self.records();
        for record in &records {
            if !before.contains(record) {
                let closing: Vec<Arc<Line>> = self.lines_named(&record.path);
                self.install(record.clone()).await?;
                let kept = self.lines_named(&record.path);
                closing
                    .iter()
                    .filter(|line| !kept.iter().any(|new| Arc::ptr_eq(line, new)))
                    .for_each(|line| line.close());
            }
        }
        for record in before.iter().filter(|record| !records.iter().any(|known| known.path == record.path)) {
            let closing = self.lines_named(&record.path);
            self.uninstall(record);
            closing.iter().for_each(|line| line.close());
        }
        self.version.store(version, Ordering::Release);
        *known = Some(began);
        Ok(())
    }

    /// A queue or topic as it is now, whichever node made or changed it.
    pub async fn entity_anywhere(&self, name: &str) -> Result<Arc<Entity>, BusError> {
        self.know_entities().await?;
        match self.entity(name) {
            Err(_) if self.shared.nodes.is_some() => {
                self.sync_entities().await?;
                self.entity(name)
            }
            known => known,
        }
    }

    fn lines_named(&self, path: &str) -> Vec<Arc<Line>> {
        let Some(path) = Path::parse(path) else { return Vec::new() };
        let line = self.line(&path).ok();
        let dead = self.line(&path.dead_letters()).ok();
        line.into_iter().chain(dead).collect()
    }

    /// Where what a path names is; takes it over if nobody has it. A topic itself is everywhere.
    pub async fn whereabouts(&self, path: &Path) -> Result<Where, Error> {
        let Some(nodes) = &self.shared.nodes else { return Ok(Where::Here) };
        let path = Path { dead: false, ..path.clone() };
        self.know_entities().await?;
        if self.line(&path).is_err() {
            // It may be new; and if it is not there at all, that can be said here.
            self.sync_entities().await?;
        }
        let Ok(line) = self.line(&path) else {
            self.refresh().await?;
            return Ok(Where::Here);
        };
        if !nodes.believes() {
            nodes.look().await?;
            self.tend().await?;
        }
        let (fence, lease) = (&line.fence, Fence::lease(&line.entity));
        if fence.epoch() == 0 && nodes.is_free(&lease) {
            match nodes.wanted_at(&lease) {
                // Whoever should have it takes it when he is asked; here it would only go on.
                Some(address) if nodes.holder(&lease) != Holder::Me => return Ok(Where::At(address)),
                _ => self.seize(&line.entity).await?,
            }
        }
        if fence.epoch() != 0 {
            // What was posted here is there for whoever asks next.
            line.take_in().await?;
            return Ok(Where::Here);
        }
        Ok(match nodes.holder(&lease) {
            Holder::At(address) => Where::At(address),
            Holder::Me | Holder::Nobody => Where::Nowhere,
        })
    }

    /// Sends on a store that is shared: straight where the entity is ours, else by post. Either way behind everything that
    /// was sent before it began, on whichever node.
    pub(super) async fn send_among(&self, entity: &Entity, messages: Vec<Message>) -> Result<Vec<Sent>, BusError> {
        let post = Way::PostAfter(Instant::now());
        let ours = match &entity.body {
            Body::Queue(pair) if pair.main.is_ours() => pair.main.catch_up().await?,
            _ => false,
        };
        if !ours {
            return Ok(self.send_by(entity, messages, post).await?.0);
        }
        let (mut sent, refused) = self.send_by(entity, messages, Way::Straight).await?;
        if !refused.is_empty() {
            // It changed hands in this moment.
            self.shared.doubt();
            sent.extend(self.send_by(entity, refused, post).await?.0);
        }
        Ok(sent)
    }

    /// The counts of entities that other nodes have, as they are in the store.
    pub async fn refresh(&self) -> Result<(), Error> {
        if self.shared.nodes.is_none() {
            return Ok(());
        }
        self.know_entities().await?;
        for (generation, lines) in self.units() {
            self.refresh_one(&generation, &lines).await?;
        }
        Ok(())
    }

    async fn refresh_one(&self, generation: &str, lines: &[Arc<Line>]) -> Result<(), Error> {
        let fence = self.shared.fence(generation);
        // No transaction of ours is under way meanwhile.
        let _turn = fence.turn.lock().await;
        let key = layout::counts_key(generation);
        let counts = self.shared.store.get(layout::table(), &key).await?.unwrap_or_default();
        for line in lines {
            line.state().counts = Delta::read(&counts, line.layout.generation());
        }
        Ok(())
    }

    /// Takes in everything that was posted: for tests, which do not wait for the next look.
    pub async fn collect_posts(&self) -> Result<(), Error> {
        for line in self.lines().into_iter().filter(|line| line.is_ours()) {
            line.has_post.store(true, Ordering::Release);
            line.take_in().await?;
        }
        Ok(())
    }

    /// Jobs of a node that is gone are done by another one; two at one job do no harm.
    async fn look_for_jobs(&self) -> Result<(), Error> {
        let Some(nodes) = &self.shared.nodes else { return Ok(()) };
        for entity in self.entities().iter().filter(|entity| entity.kind() == Kind::Topic) {
            if nodes.wants(&Fence::lease(&entity.record.generation)) {
                self.find_jobs(entity).await?;
            }
        }
        Ok(())
    }

    /// Looks now and then for what other nodes have posted and scheduled, until told to stop.
    pub(super) async fn collect(self: Arc<Self>, mut stop: watch::Receiver<bool>) {
        let mut round = 0_u32;
        loop {
            round = round.wrapping_add(1);
            let seldom = round.is_multiple_of(TIMED_EVERY);
            if seldom && let Err(error) = self.look_for_jobs().await {
                tracing::warn!(%error, "what other nodes left to be copied cannot be looked for; later");
            }
            for (generation, lines) in self.units() {
                if self.shared.fence(&generation).epoch() == 0 {
                    continue;
                }
                if seldom && let Err(error) = self.refresh_one(&generation, &lines).await {
                    tracing::warn!(%error, entity = name(&lines), "its counts cannot be read; later");
                }
                for line in &lines {
                    let letters = line.is_of_dead_letters();
                    if !letters && seldom {
                        line.due_at(tidings_core::time::Timestamp::MIN);
                    }
                    if !letters || seldom {
                        line.posted();
                    }
                }
            }
            tokio::select! {
                () = tokio::time::sleep(POSTS_EVERY) => {}
                () = turned_true(&mut stop) => return,
            }
        }
    }
}

/// For logs: one of them.
fn name(lines: &[Arc<Line>]) -> &str {
    lines.first().map_or("", |line| line.path.as_str())
}

impl Line {
    /// Whether anybody has messages of it.
    pub(super) fn holds_locks(line: &Arc<Self>) -> bool {
        line.tick();
        line.state().held_len() > 0
    }

    /// Waits until this node may have the line, for a while.
    pub(super) async fn wait_for_ours(&self, most: Duration, stopping: &mut watch::Receiver<bool>) {
        tokio::select! {
            () = tokio::time::sleep(most) => {}
            () = self.ready.notified() => {}
            () = turned_true(stopping) => {}
        }
    }
}
