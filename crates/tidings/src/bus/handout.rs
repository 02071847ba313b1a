//! Handouts: messages that were handed out for the first time, in one call. One record counts the delivery of all of them,
//! before anybody has them: most messages are delivered once, and a record for each would be written only to be removed.
//!
//! Whoever is delivered again gets a record of its own (`<gen>/d`), which counts instead. A handout is over when all its
//! messages are settled or counted elsewhere; until then its record stays, whatever becomes of single messages, for a
//! position is given out only once and what is gone is counted for nothing. This is the bookkeeping; `line` does the rest.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidings_core::time::Timestamp;
use tidings_store::{Error, Item, Key, Query, Write, limits};
use uuid::Uuid;

use super::layout::{self, LaneId, Place};
use super::line::Line;
use super::message::Stored;
use super::receive::note_lost;
use super::state::{State, Taken};

/// Records that are read at once.
const PAGE: usize = 256;

/// What is known of one call's first deliveries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Handout {
    /// The lock of its first message, by which its record is found: nobody has ever had the same.
    token: Uuid,
    at: Timestamp,
    by: Option<Arc<str>>,
}

/// A handout as it is stored: with the positions of its messages in front and in the main lane.
type Recorded = (Handout, [Vec<u64>; 2]);

/// The handouts of a lane, by the positions of their messages.
#[derive(Debug, Default)]
pub struct Handouts {
    of: BTreeMap<u64, Arc<Handout>>,
    /// Those whose records nobody needs any more.
    over: Vec<Uuid>,
}

impl Handouts {
    pub fn add(&mut self, position: u64, handout: &Arc<Handout>) {
        if let Some(before) = self.of.insert(position, Arc::clone(handout)) {
            self.part(before);
        }
    }

    #[must_use]
    pub fn get(&self, position: u64) -> Option<&Handout> {
        self.of.get(&position).map(|handout| &**handout)
    }

    /// The message is gone, or its deliveries are counted elsewhere.
    pub fn leave(&mut self, position: u64) {
        if let Some(handout) = self.of.remove(&position) {
            self.part(handout);
        }
    }

    /// Of a stretch only these positions, which are in order, have messages.
    pub fn leave_all_but(&mut self, first: u64, last: u64, present: impl Fn(u64) -> bool) {
        if first > last || self.of.is_empty() {
            return;
        }
        let absent: Vec<u64> = self.of.range(first..=last).map(|(at, _)| *at).filter(|at| !present(*at)).collect();
        absent.into_iter().for_each(|position| self.leave(position));
    }

    /// Whoever lets go of a handout last knows that it is over.
    fn part(&mut self, handout: Arc<Handout>) {
        self.over.extend(Arc::into_inner(handout).map(|handout| handout.token));
    }
}

impl State {
    /// A message that was taken but not handed out waits again, as if nothing had been.
    pub fn untake(&mut self, token: &Uuid) {
        if let Some(held) = self.forget(token)
            && let Place::Lane(lane, position) = held.place
        {
            let lane = self.lane(lane);
            lane.handouts.leave(position);
            lane.put_back(position, held.message);
        }
    }

    /// Notes the messages of handouts that an earlier process or another node left behind; only of those that may still
    /// be there.
    fn recall(&mut self, recorded: Vec<Recorded>) {
        let Some(before) = self.unrecalled.take() else { return };
        for (handout, positions) in recorded {
            // Numbers of since then are in handouts of our own.
            if positions.iter().flatten().any(|position| *position >= before) {
                continue;
            }
            let handout = Arc::new(handout);
            for (lane, positions) in LANES.into_iter().zip(positions) {
                let lane = self.lane(lane);
                for position in positions {
                    if lane.is_unread(position) {
                        lane.handouts.add(position, &handout);
                    }
                }
            }
            self.main.handouts.part(handout);
        }
    }
}

/// In the order in which positions are recorded.
const LANES: [LaneId; 2] = [LaneId::Front, LaneId::Main];

impl Line {
    /// The write that counts the first deliveries among these.
    pub(super) fn hand_out(&self, taken: &[Taken], now: Timestamp) -> Option<Write> {
        let mut positions = [Vec::new(), Vec::with_capacity(taken.len())];
        let first = taken.iter().filter(|taken| taken.held.deliveries == 1);
        for held in first.clone().map(|taken| &taken.held) {
            let Place::Lane(lane, position) = held.place else { continue };
            for (list, _) in positions.iter_mut().zip(LANES).filter(|(_, of)| *of == lane) {
                list.push(position);
            }
        }
        let Taken { token, held } = first.clone().next()?;
        let handout = Arc::new(Handout { token: *token, at: now, by: held.consumer.clone() });
        let mut state = self.state();
        // Before it is stored: whatever becomes of them meanwhile is noted.
        if state.epoch == held.epoch {
            for (lane, positions) in LANES.into_iter().zip(&positions) {
                let lane = state.lane(lane);
                positions.iter().for_each(|position| lane.handouts.add(*position, &handout));
            }
        }
        drop(state);
        Some(Write::put(layout::table(), handout.to_item(self, &positions)).when(tidings_store::Condition::Fresh))
    }

    /// These have records of their own now.
    pub(super) fn counted_alone(&self, taken: &[Taken]) {
        let again = taken.iter().map(|taken| &taken.held).filter(|held| held.deliveries > 1);
        let mut state = self.state();
        let epoch = state.epoch;
        for held in again.filter(|held| held.epoch == epoch) {
            if let Place::Lane(lane, position) = held.place {
                state.lane(lane).handouts.leave(position);
            }
        }
    }

    /// Reads what an earlier process or another node has left behind, once.
    pub(super) async fn recall(&self) -> Result<(), Error> {
        let epoch = {
            let state = self.state();
            if state.epoch == 0 || state.unrecalled.is_none() {
                return Ok(());
            }
            state.epoch
        };
        let recorded = self.recorded().await?;
        let mut state = self.state();
        if state.epoch == epoch {
            state.recall(recorded);
        }
        Ok(())
    }

    /// Counts the deliveries of messages that are part of handouts and have no record of their own. `lost`: nobody knows
    /// how they ended.
    pub(super) async fn add_handouts(
        &self,
        lane: LaneId,
        messages: &mut [(u64, Stored)],
        lost: bool,
    ) -> Result<(), Error> {
        self.recall().await?;
        let mut others = BTreeMap::new();
        if self.epoch() == 0 {
            // It is another node's, and only looked at.
            for (handout, positions) in self.recorded().await? {
                let positions = LANES.into_iter().zip(positions).filter(|(of, _)| *of == lane);
                others.extend(positions.flat_map(|(_, list)| list).map(|position| (position, handout.clone())));
            }
        }
        let mut state = self.state();
        let ours = &state.lane(lane).handouts;
        for (position, stored) in messages.iter_mut().filter(|(_, stored)| stored.deliveries == 0) {
            if let Some(handout) = ours.get(*position).or_else(|| others.get(position)) {
                stored.deliveries = 1;
                if lost {
                    note_lost(Some(handout.at), handout.by.as_deref(), stored);
                }
            }
        }
        Ok(())
    }

    async fn recorded(&self) -> Result<Vec<Recorded>, Error> {
        let mut recorded = Vec::new();
        let mut query = Query::new(self.layout.partition(layout::HANDOUTS)).limit(PAGE);
        loop {
            let page = self.shared.store.query(layout::table(), &query).await?;
            for item in &page.items {
                recorded.push(Handout::from_item(item)?);
            }
            if page.next.is_none() {
                return Ok(recorded);
            }
            query = query.after(page.next);
        }
    }

    /// The writes that remove the records of handouts that are over. What is left of them after a crash is removed when
    /// the line is read again.
    pub(super) fn forget_handouts(&self) -> Vec<Vec<Write>> {
        let mut state = self.state();
        let mut over = std::mem::take(&mut state.front.handouts.over);
        over.append(&mut state.main.handouts.over);
        let epoch = state.epoch;
        drop(state);
        let partition = self.layout.partition(layout::HANDOUTS);
        let key = |token: &Uuid| Key::with_sort(partition.clone(), token.simple().to_string());
        let chunks = over.chunks(limits::TRANSACTION_WRITES - 1);
        let delete = |token| Write::delete(layout::table(), key(token));
        chunks.map(|chunk| chunk.iter().map(delete).chain(self.fence.check(epoch)).collect()).collect()
    }
}

impl Handout {
    fn to_item(&self, line: &Line, positions: &[Vec<u64>; 2]) -> Item {
        let mut item = Item::new()
            .with("at", self.token.simple().to_string())
            .with_some("by", self.by.as_deref())
            .with("line", line.layout.partition(layout::HANDOUTS));
        for (lane, list) in LANES.into_iter().zip(positions).rev().filter(|(_, list)| !list.is_empty()) {
            item = item.with(lane.letter(), stretches(list));
        }
        item.with("t", i64::try_from(layout::micros(self.at)).unwrap_or(i64::MAX))
    }

    fn from_item(item: &Item) -> Result<Recorded, Error> {
        let read = || {
            let at = item.int("t").and_then(|at| u64::try_from(at).ok()).map(layout::from_micros)?;
            let token = Uuid::parse_str(item.str("at")?).ok()?;
            let [front, main] = LANES.map(|lane| item.str(lane.letter()).map_or(Some(Vec::new()), positions_of));
            Some((Self { token, at, by: item.str("by").map(Arc::from) }, [front?, main?]))
        };
        read().ok_or_else(|| Error::Corrupt("a handout of the bus cannot be read".to_owned()))
    }
}

/// Positions as text: `7-38 41`. Most stand side by side.
fn stretches(positions: &[u64]) -> String {
    let mut text = String::new();
    let mut rest = positions.iter().copied().peekable();
    while let Some(first) = rest.next() {
        let mut last = first;
        while let Some(next) = rest.next_if(|next| *next == last + 1) {
            last = next;
        }
        if !text.is_empty() {
            text.push(' ');
        }
        text.push_str(&first.to_string());
        if last > first {
            text.push('-');
            text.push_str(&last.to_string());
        }
    }
    text
}

/// The same read; `None` if it is no such text.
fn positions_of(text: &str) -> Option<Vec<u64>> {
    let mut positions = Vec::new();
    for stretch in text.split(' ') {
        let (first, last) = stretch.split_once('-').unwrap_or((stretch, stretch));
        let (first, last) = (first.parse::<u64>().ok()?, last.parse::<u64>().ok()?);
        // What is handed out at once is not more than this.
        if last.checked_sub(first)? > 100_000 {
            return None;
        }
        positions.extend(first..=last);
    }
    Some(positions)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handout(n: u128) -> Arc<Handout> {
        Arc::new(Handout { token: Uuid::from_u128(n), at: Timestamp::UNIX_EPOCH, by: None })
    }

    #[test]
    fn positions_are_written_as_stretches() {
        let lists: [(&[u64], &str); 4] =
            [(&[7], "7"), (&[7, 8], "7-8"), (&[1, 2, 3, 9, 20, 21], "1-3 9 20-21"), (&[9, 3, 4], "9 3-4")];
        for (list, text) in lists {
            assert_eq!(stretches(list), text);
            assert_eq!(positions_of(text).unwrap(), list);
        }
        for bad in ["", "x", "1-", "5-4", "1  2", "1-99999999999"] {
            assert_eq!(positions_of(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_handout_is_over_with_its_last_message() {
        let (mut handouts, one, two) = (Handouts::default(), handout(1), handout(2));
        for position in 1..=3 {
            handouts.add(position, &one);
        }
        handouts.add(4, &two);
        drop((one, two));
        handouts.leave(2);
        handouts.leave(2);
        handouts.leave(1);
        assert!(handouts.over.is_empty());
        // It was taken back before anybody had it, and is handed out again with another one.
        let three = handout(3);
        handouts.add(3, &three);
        assert_eq!(handouts.over, [Uuid::from_u128(1)]);
        assert_eq!(handouts.get(3), Some(&*three));
        drop(three);
        handouts.leave_all_but(1, 3, |_| false);
        assert_eq!((handouts.over.len(), handouts.get(4).is_some()), (2, true));
    }
}
