//! Messages for a line that this process does not have: they are posted, in the sender's own transaction, and whoever has
//! the line takes them in. A post changes nothing that two could be in each other's way for, and it fails for nobody's
//! sake but the sender's.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tidings_core::time::Timestamp;
use tidings_store::{Condition, Error, Query, Value, Write};
use tokio::time::Instant;

use super::history::End;
use super::layout::{self, Delta, LaneId, Layout};
use super::leave::dead_bytes;
use super::line::Line;
use super::message::{Message, Stored};
use super::prepared::{Prepared, Sent};

/// Posts that are read and taken in at once.
const ROUND: usize = 256;
/// Numbers of scheduled posts begin here: far from those that whoever has the line gives out, and exact in every JSON.
const FIRST_NUMBER: u64 = 1 << 52;
/// Of which a process reserves so many at a time.
const RESERVE: u64 = 1024;
const TRIES: usize = 50;

impl Line {
    /// The writes that post a message to whoever has the line.
    pub(super) async fn prepare_post(self: &Arc<Self>, message: Message, now: Timestamp) -> Result<Prepared, Error> {
        let mut stored = self.stored(message, now, None);
        let (id, path) = (stored.message.id.clone(), self.path.clone());
        let mut prepared = Prepared::default();
        if stored.enqueued_at > now {
            let due = stored.enqueued_at;
            stored.sequence = self.post_number().await?;
            prepared.count_anyhow(self, Delta { scheduled: 1, incoming: 1, ..Delta::default() });
            self.schedule(&stored, due, &mut prepared)?;
        } else {
            self.put_post(&stored, now, &mut prepared)?;
        }
        prepared.sent.push(Sent { message_id: id, path, sequence: stored.sequence });
        Ok(prepared)
    }

    /// The same for one that goes straight to the dead letters: a rule could not be decided on it.
    pub(super) fn post_dead(&self, stored: &Stored, why: &str, now: Timestamp) -> Result<Prepared, Error> {
        let mut prepared = Prepared::default();
        if let Some(dead) = self.dead() {
            let letter = stored.dead_letter("FilterEvaluationException", Some(why), &self.path, now);
            dead.put_post(&letter, now, &mut prepared)?;
            self.row(&letter, End::DeadLettered, 0).into_iter().for_each(|row| prepared.write(row));
        }
        Ok(prepared)
    }

    fn put_post(self: &Arc<Self>, stored: &Stored, now: Timestamp, prepared: &mut Prepared) -> Result<(), Error> {
        let number = self.shared.posts.fetch_add(1, Ordering::Relaxed);
        let node = self.shared.nodes.as_ref().map_or("", |nodes| nodes.me.as_str());
        // Behind what is known of, whatever the clock says.
        let after = |last: u64| (last + 1).max(layout::micros(now));
        let last = self.last_post.fetch_update(Ordering::AcqRel, Ordering::Acquire, |last| Some(after(last)));
        let at = after(last.unwrap_or_default());
        prepared.post(self, self.layout.posted(at, number, node), stored)
    }

    /// Sees what others have posted here since then: what this node posts next stands behind it. Clocks of different
    /// nodes do not agree, so a post's place must not follow from them alone. Those who wait for each other share a look.
    pub(super) async fn see_posts(&self, began: Instant) -> Result<(), Error> {
        // Its own, it knows.
        if self.shared.nodes.as_ref().is_none_or(|nodes| nodes.is_alone()) {
            return Ok(());
        }
        let mut seen = self.posts_seen.lock().await;
        if seen.is_some_and(|at| at >= began) {
            return Ok(());
        }
        let looking = Instant::now();
        let query = Query::new(self.layout.partition("a")).descending().limit(1);
        let page = self.shared.store.query(layout::table(), &query).await?;
        if let Some(last) = page.items.first().and_then(layout::posted_at) {
            self.last_post.fetch_max(last, Ordering::AcqRel);
        }
        *seen = Some(looking);
        Ok(())
    }

    /// Takes in what was posted until now, by whomever, as far as it is not much; whether that is all of it. What is sent
    /// straight afterwards stands behind it. Those who wait for each other share a look.
    pub(super) async fn catch_up(self: &Arc<Self>) -> Result<bool, Error> {
        self.has_post.store(true, Ordering::Release);
        let _turn = self.taking_in.lock().await;
        if self.has_post.swap(false, Ordering::AcqRel) {
            let outcome = self.take_in_page().await;
            if !matches!(outcome, Ok(Page::Last(_))) {
                self.has_post.store(true, Ordering::Release);
            }
            match outcome {
                Ok(Page::Last(_)) => {}
                Ok(Page::More) => return Ok(false),
                // It changes hands in this moment.
                Ok(Page::Refused) | Err(Error::Throttled(_)) => {
                    self.shared.doubt();
                    return Ok(false);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(self.is_ours())
    }

    /// A number that no other process gives out.
    async fn post_number(&self) -> Result<u64, Error> {
        let mut numbers = self.numbers.lock().await;
        if numbers.0 >= numbers.1 {
            *numbers = self.reserve_numbers().await?;
        }
        numbers.0 += 1;
        Ok(numbers.0 - 1)
    }

    async fn reserve_numbers(&self) -> Result<(u64, u64), Error> {
        let key = self.layout.numbers();
        for _ in 0..TRIES {
            let item = self.shared.store.get(layout::table(), &key).await?;
            let before = item.as_ref().and_then(|item| item.int("next"));
            let first = before.and_then(|next| u64::try_from(next).ok()).unwrap_or(FIRST_NUMBER);
            let next = Value::from(i64::try_from(first + RESERVE).unwrap_or(i64::MAX));
            let unchanged = match before {
                Some(before) => Condition::Equals("next".into(), before.into()),
                None => Condition::NotExists,
            };
            let write = Write::put(layout::table(), layout::table().key_item(&key).with("next", next)).when(unchanged);
            match self.shared.store.transact(vec![write]).await {
                Ok(()) => return Ok((first, first + RESERVE)),
                Err(Error::Conflict { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Err(Error::Throttled("the numbers of a line are contended".to_owned()))
    }

    /// The writes by which numbers go on in the partitions that take the place of this line's: whoever kept one must not
    /// find another message under it. What may be given out meanwhile is skipped.
    pub(super) async fn pass_numbers(&self, to: &Layout) -> Result<Vec<Write>, Error> {
        let store = &self.shared.store;
        let head = store.get(layout::table(), &self.layout.head()).await?.unwrap_or_default();
        let reserved = head.int("reserved").and_then(|n| u64::try_from(n).ok()).unwrap_or(1);
        let first = reserved.saturating_add(super::line::RESERVE);
        let mut writes = vec![layout::head(to, first, (first, first))];
        if let Some(next) = store.get(layout::table(), &self.layout.numbers()).await?.and_then(|item| item.int("next"))
        {
            let next = next.saturating_add(i64::try_from(RESERVE).unwrap_or(0));
            writes.push(Write::put(layout::table(), layout::table().key_item(&to.numbers()).with("next", next)));
        }
        Ok(writes)
    }

    /// Something was posted here. If the line is ours, it is taken in at once; else whoever has it looks now and then.
    pub(super) fn posted(self: &Arc<Self>) {
        if self.is_ours() {
            self.has_post.store(true, Ordering::Release);
            let line = Arc::clone(self);
            drop(tokio::spawn(async move {
                if let Err(error) = line.take_in().await {
                    tracing::warn!(line = line.path, %error, "what was posted could not be taken in; later");
                }
            }));
        }
    }

    /// Takes in what was posted; says whether there was anything. Looks only if somebody said that there may be.
    pub(super) async fn take_in(self: &Arc<Self>) -> Result<bool, Error> {
        if !self.fence.is_shared() {
            return Ok(false);
        }
        let at_once = self.taking_in.try_lock();
        // Whoever is at it may bring what we want.
        let mut any = at_once.is_err();
        let _turn = match at_once {
            Ok(turn) => turn,
            Err(_) => self.taking_in.lock().await,
        };
        while self.has_post.swap(false, Ordering::AcqRel) && self.is_ours() {
            let outcome = self.take_in_page().await;
            if !matches!(outcome, Ok(Page::Last(_))) {
                self.has_post.store(true, Ordering::Release);
            }
            match outcome? {
                Page::Last(taken) => any |= taken,
                Page::More => any = true,
                // Another node was faster with some of them: it has the line.
                Page::Refused => {
                    self.shared.doubt();
                    return Ok(any);
                }
            }
        }
        Ok(any)
    }

    async fn take_in_page(self: &Arc<Self>) -> Result<Page, Error> {
        let query = Query::new(self.layout.partition("a")).limit(ROUND);
        let page = self.shared.store.query(layout::table(), &query).await?;
        let mut transactions: Vec<Prepared> = Vec::new();
        for item in &page.items {
            let mut prepared = Prepared::default();
            prepared.write(Write::delete(layout::table(), layout::table().key_of(item)?));
            prepared.demand_first(Condition::Exists);
            let mut stored = Stored::from_item(item)?;
            let position = self.begin(LaneId::Main).await?;
            stored.sequence = position;
            let mut delta = Delta { waiting: 1, incoming: 1, ..Delta::default() };
            if self.is_of_dead_letters() {
                delta.bytes = dead_bytes(&stored);
                self.entry(&stored).into_iter().for_each(|entry| prepared.write(entry));
            }
            prepared.count(self, delta);
            prepared.arrive(self, LaneId::Main, position, stored)?;
            prepared.join(&mut transactions);
        }
        for outcome in Prepared::run_each(&*self.shared.store, transactions).await {
            match outcome {
                Err(Error::Conflict { .. }) => return Ok(Page::Refused),
                outcome => outcome?,
            }
        }
        Ok(if page.next.is_some() { Page::More } else { Page::Last(!page.items.is_empty()) })
    }
}

enum Page {
    /// Everything there was; whether that was anything.
    Last(bool),
    More,
    Refused,
}
