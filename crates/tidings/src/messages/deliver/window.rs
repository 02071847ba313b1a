//! The messages that a deliverer has in memory and that wait for their attempt: a line for each destination, so that
//! looking for who may go costs as much as there are destinations that may be served, however long their lines are.

use std::collections::VecDeque;
use std::time::Duration;

use tidings_core::message::Status;

use super::QUEUED_AFTER;
use super::roster::Roster;
use super::senders::{self, Destination};
use crate::channel::limiter::Admission;
use crate::messages::transition::Stored;

/// A message of more bytes is not kept in the window, but read again when its turn comes.
const KEPT_BYTES: usize = 8 * 1024;

/// A message that waits for its attempt.
#[derive(Debug, Clone)]
pub struct Stub {
    pub message_id: String,
    pub destination: Destination,
    pub revision: i64,
    /// As it was read, unless it is large.
    pub stored: Option<Box<Stored>>,
    /// On the monotonic clock.
    pub since: Duration,
    /// It is being made `queued`.
    pub queueing: bool,
    /// Made while this process ran, and not tried yet.
    pub is_new: bool,
    /// [`crate::messages::Holds::changes`] before it was made: if none came since, it is as it is `stored` here.
    pub seen: Option<u64>,
}

impl Stub {
    pub fn of(stored: Box<Stored>, since: Duration) -> Self {
        let message = &stored.message;
        Self {
            message_id: message.message_id.clone(),
            destination: senders::destination(message),
            revision: message.revision,
            stored: (stored.size() <= KEPT_BYTES).then_some(stored),
            since,
            queueing: false,
            is_new: false,
            seen: None,
        }
    }

    /// Whether it is still to become `queued` if it has to wait.
    pub fn is_to_be_queued(&self) -> bool {
        let is_created = |stored: &Stored| stored.message.delivery.status == Status::Created;
        !self.queueing && self.stored.as_deref().is_some_and(is_created)
    }
}

/// Those who wait for one destination, whoever waits longest first.
#[derive(Debug, Default)]
pub struct Line {
    stubs: VecDeque<Stub>,
    /// How many are still to become `queued` if they have to wait: most often the last ones.
    unqueued: usize,
    /// When it was last asked about the destination, that was to be left alone for a time.
    left_alone: bool,
    /// Where the last probe went.
    probed: Option<Target>,
}

/// A message's target.
type Target = serde_json::Map<String, serde_json::Value>;

#[derive(Debug, Default)]
pub struct Window {
    lines: Roster<Line>,
    length: usize,
    /// When somebody may have to become `queued`: nobody is looked at before.
    queue_at: Option<Duration>,
    /// Who was served last: the next round begins behind, so that nobody is always first.
    last: Destination,
}

impl Window {
    pub const fn len(&self) -> usize {
        self.length
    }

    pub const fn is_empty(&self) -> bool {
        self.length == 0
    }

    pub fn push(&mut self, stub: Stub) {
        self.length += 1;
        let since = stub.since;
        let (unqueued, is_left_alone) = match self.lines.get_mut(&stub.destination) {
            Some(line) => (line.push(stub), line.left_alone),
            None => {
                let (destination, mut line) = (stub.destination.clone(), Line::default());
                let unqueued = line.push(stub);
                self.lines.insert(destination, line);
                (unqueued, false)
            }
        };
        if unqueued {
            self.queue_by(if is_left_alone { since } else { since + QUEUED_AFTER });
        }
    }

    /// By destination.
    pub const fn lines(&self) -> &Roster<Line> {
        &self.lines
    }

    /// A destination that could not be served may be asked about again.
    pub fn wake(&mut self, destination: &str) {
        self.lines.wake(destination);
    }

    /// Everybody may be asked about again.
    pub fn wake_all(&mut self) {
        self.lines.wake_all();
    }

    /// Goes over those that have to become `queued` by now, and are not about to: at once where the destination is left
    /// alone, else after a while.
    pub fn each_unqueued(&mut self, now: Duration, mut queue: impl FnMut(&mut Stub)) {
        if self.queue_at.is_none_or(|at| now < at) {
            return;
        }
        self.queue_at = None;
        let mut next = None;
        for (_, line) in self.lines.iter_mut() {
            let mut left = line.unqueued;
            let unqueued = line.stubs.iter_mut().rev().filter(|stub| stub.is_to_be_queued());
            for stub in unqueued.take(line.unqueued) {
                let at = stub.since + QUEUED_AFTER;
                if line.left_alone || at <= now {
                    queue(stub);
                    left -= usize::from(!stub.is_to_be_queued());
                } else {
                    next = Some(next.map_or(at, |next: Duration| next.min(at)));
                }
            }
            line.unqueued = left;
        }
        self.queue_at = next;
    }

    /// Changes those who wait for a destination.
    pub fn each_of(&mut self, destination: &str, change: impl FnMut(&mut Stub)) {
        if let Some(line) = self.lines.get_mut(destination) {
            line.stubs.iter_mut().for_each(change);
            line.unqueued = line.stubs.iter().filter(|stub| stub.is_to_be_queued()).count();
        }
    }

    /// Takes out at most `most` of those whose destination is admitted, one of each in turn; `admit` is asked before each.
    /// One that is not admitted is not asked about again before its time has come, or it is woken.
    pub fn take(&mut self, most: usize, now: Duration, mut admit: impl FnMut(&str) -> Admission) -> Vec<Stub> {
        self.lines.wake_by(now);
        let (mut going, mut round, mut refused) = (Vec::new(), Vec::new(), Vec::new());
        let mut next = |destination: &Destination, line: &mut Line| {
            let until = match admit(destination) {
                Admission::Go => return line.pop(),
                Admission::Probe => return line.pop_probe(),
                // Whose end it waits for is not known, so that it is asked about again.
                Admission::Crowded => return None,
                Admission::Busy => None,
                Admission::Open { until } => Some(until),
            };
            refused.push((destination.clone(), until));
            None
        };
        self.lines.each_awake(&self.last, |destination, line| {
            if going.len() < most
                && let Some(stub) = next(destination, line)
            {
                going.push(stub);
                round.push(destination.clone());
            }
        });
        while !round.is_empty() && going.len() < most {
            round.retain(|destination| {
                let line = self.lines.get_mut(destination).filter(|line| !line.stubs.is_empty());
                let stub = line.filter(|_| going.len() < most).and_then(|line| next(destination, line));
                let goes = stub.is_some();
                going.extend(stub);
                goes
            });
        }
        for stub in &going {
            if self.lines.get_mut(&stub.destination).is_some_and(|line| line.stubs.is_empty()) {
                self.lines.remove(&stub.destination);
            }
        }
        for (destination, until) in refused {
            self.rest(&destination, until, now);
        }
        self.length -= going.len();
        if let Some(last) = going.last() {
            self.last.clone_from(&last.destination);
        }
        going
    }

    /// Takes out everybody.
    pub fn clear(&mut self) -> Vec<Stub> {
        (self.length, self.queue_at) = (0, None);
        self.lines.drain().flat_map(|line| line.stubs).collect()
    }

    /// Leaves a destination alone until that moment, or until it is woken.
    fn rest(&mut self, destination: &str, until: Option<Duration>, now: Duration) {
        if let Some(line) = self.lines.get_mut(destination) {
            line.left_alone = until.is_some();
            if line.left_alone && line.unqueued > 0 {
                self.queue_by(now);
            }
        }
        // What lasts for ever ends only when somebody says so.
        self.lines.rest(destination, until.filter(|until| *until < Duration::MAX));
    }

    fn queue_by(&mut self, at: Duration) {
        self.queue_at = Some(self.queue_at.map_or(at, |known| known.min(at)));
    }
}

impl Line {
    /// Whether the new one is still to become `queued` if it has to wait.
    fn push(&mut self, stub: Stub) -> bool {
        let unqueued = stub.is_to_be_queued();
        self.unqueued += usize::from(unqueued);
        self.stubs.push_back(stub);
        unqueued
    }

    fn pop(&mut self) -> Option<Stub> {
        self.take(0)
    }

    /// One by which it shows whether the destination takes anything: best one that was not tried yet, and goes elsewhere
    /// there than the last probe. One message or address that always fails does not hold up the others.
    fn pop_probe(&mut self) -> Option<Stub> {
        let probed = self.probed.take();
        let merit = |stub: &Stub| {
            let message = stub.stored.as_deref().map(|stored| &stored.message);
            let is_untried = message.is_some_and(|message| message.delivery.attempts.is_empty());
            (is_untried, message.is_some_and(|message| probed.as_ref() != Some(&message.target)))
        };
        // Of those that are as good as each other, whoever waits longest.
        let best = self.stubs.iter().enumerate().rev().max_by_key(|(_, stub)| merit(stub))?.0;
        let stub = self.take(best)?;
        self.probed = stub.stored.as_deref().map(|stored| stored.message.target.clone());
        Some(stub)
    }

    fn take(&mut self, place: usize) -> Option<Stub> {
        let stub = self.stubs.remove(place)?;
        self.unqueued = self.unqueued.saturating_sub(usize::from(stub.is_to_be_queued()));
        self.left_alone = false;
        Some(stub)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Map;
    use tidings_core::message::Input;
    use tidings_core::retry::Policy;
    use tidings_core::time::Timestamp;
    use uuid::Uuid;

    use super::*;
    use crate::messages::{Message, NewMessage};

    fn stub(destination: &str, number: u32) -> Stub {
        Stub {
            message_id: format!("{destination}{number}"),
            destination: destination.to_owned().into(),
            revision: 0,
            stored: None,
            since: Duration::ZERO,
            queueing: false,
            is_new: false,
            seen: None,
        }
    }

    fn ids(stubs: &[Stub]) -> Vec<&str> {
        stubs.iter().map(|stub| stub.message_id.as_str()).collect()
    }

    const NOW: Duration = Duration::from_secs(10);

    #[test]
    fn each_destination_has_its_turn_and_keeps_its_order() {
        let mut window = Window::default();
        for number in 0..4 {
            window.push(stub("a", number));
        }
        window.push(stub("b", 0));
        window.push(stub("c", 0));
        let but_b = |destination: &str| if destination == "b" { Admission::Busy } else { Admission::Go };
        assert_eq!(ids(&window.take(3, NOW, but_b)), ["a0", "c0", "a1"]);
        assert_eq!(window.len(), 3);
        assert!(window.lines().awake().eq(["a"]) && window.lines().contains("b"));
        window.wake("b");
        let going = window.take(10, NOW, |_| Admission::Go);
        assert_eq!(ids(&going), ["b0", "a2", "a3"], "who was served last comes last");
        assert!(window.is_empty() && window.lines().awake().next().is_none());
    }

    /// Which is why a deliverer with room left may park everybody whom it finds here.
    #[test]
    fn with_room_left_only_those_stay_who_may_not_go() {
        let mut window = Window::default();
        for number in 0..3 {
            window.push(stub("dead", number));
            window.push(stub("well", number));
        }
        let but_dead = |destination: &str| if destination == "dead" { Admission::Busy } else { Admission::Go };
        assert_eq!(ids(&window.take(100, NOW, but_dead)), ["well0", "well1", "well2"]);
        assert_eq!(ids(&window.clear()), ["dead0", "dead1", "dead2"]);
        assert!(window.is_empty() && window.take(1, NOW, |_| Admission::Go).is_empty());
    }

    #[test]
    fn those_left_alone_are_part_of_the_window() {
        let mut window = Window::default();
        for destination in ["dead", "dead", "well"] {
            window.push(stub(destination, 0));
        }
        let until = |destination: &str| match destination {
            "dead" => Admission::Open { until: NOW * 2 },
            _ => Admission::Busy,
        };
        assert!(window.take(3, NOW, until).is_empty());
        assert_eq!((window.len(), window.lines().awake().count()), (3, 0));
        let mut seen = 0;
        window.each_of("dead", |_| seen += 1);
        window.each_of("nobody", |_| seen += 10);
        assert_eq!(seen, 2);
        assert_eq!(ids(&window.clear()), ["dead0", "dead0", "well0"]);
        assert_eq!((window.len(), window.lines().next_wake()), (0, None));
    }

    /// The same as [`stub`], of a new message.
    fn new_stub(destination: &str, since: u64) -> Stub {
        let new = NewMessage {
            message_id: Uuid::from_u128(since.into()),
            created_by: "rule:r".to_owned(),
            stage: "dev",
            message_type: "alert_notification",
            payload: Map::new(),
            correlation_id: "c",
            channel: "webhook",
            target: Map::new(),
            secret: None,
            event_id: None,
            rule: None,
            deliver_at: None,
            keep_seconds: 86_400,
        };
        let stored = Stored::just_made(Message::new(new, Timestamp::UNIX_EPOCH)).unwrap();
        Stub { stored: Some(stored), since: Duration::from_secs(since), ..stub(destination, 0) }
    }

    /// Those who have to become `queued` at that moment, by the second in which they came.
    fn queued(window: &mut Window, now: u64) -> Vec<u64> {
        let mut all = Vec::new();
        window.each_unqueued(Duration::from_secs(now), |stub| {
            stub.queueing = true;
            all.push(stub.since.as_secs());
        });
        all.sort_unstable();
        all
    }

    // S002-44
    #[test]
    fn who_waits_becomes_queued_at_once_or_after_a_while() {
        let mut window = Window::default();
        for since in [10, 11, 13] {
            window.push(new_stub("busy", since));
        }
        window.push(new_stub("dead", 12));
        // Nobody was asked about yet.
        assert!(queued(&mut window, 13).is_empty());
        let but_dead = |destination: &str| match destination {
            "dead" => Admission::Open { until: Duration::from_secs(99) },
            _ => Admission::Busy,
        };
        assert!(window.take(9, Duration::from_secs(13), but_dead).is_empty());
        assert_eq!(queued(&mut window, 13), [12], "whose destination is left alone");
        window.push(new_stub("dead", 14));
        assert_eq!(queued(&mut window, 14), [14], "also if it comes later");
        assert_eq!([14, 15, 15, 17].map(|now| queued(&mut window, now)), [vec![], vec![10], vec![], vec![11]]);
        // Who is served meanwhile waits no more.
        window.wake("busy");
        assert_eq!(window.take(9, Duration::from_secs(17), |_| Admission::Go).len(), 3);
        assert!(queued(&mut window, 50).is_empty());
        assert_eq!(window.len(), 2);
    }

    #[test]
    fn a_probe_goes_where_the_last_one_did_not() {
        let mut window = Window::default();
        let to = |path: &str, since| {
            let mut stub = new_stub("host", since);
            let message = &mut stub.stored.as_mut().unwrap().message;
            message.target = Map::from_iter([("url".to_owned(), path.into())]);
            Stub { message_id: format!("{path}{since}"), ..stub }
        };
        for (path, since) in [("a", 0), ("a", 1), ("a", 2), ("b", 3), ("c", 4), ("a", 5)] {
            window.push(to(path, since));
        }
        // One that has failed before is the last choice.
        let mut tried = to("d", 6);
        let delivery = &mut tried.stored.as_mut().unwrap().message.delivery;
        delivery.step(&Policy::default(), Input::TakenUp, Timestamp::UNIX_EPOCH).unwrap();
        window.push(tried);
        let mut probe = || {
            window.wake("host");
            let mut left = 1;
            let going = window.take(9, NOW, |_| {
                left -= 1;
                if left == 0 { Admission::Probe } else { Admission::Busy }
            });
            ids(&going).concat()
        };
        assert_eq!([0; 7].map(|_| probe()), ["a0", "b3", "a1", "c4", "a2", "a5", "d6"]);
    }

    #[test]
    fn who_is_left_alone_until_somebody_says_so_does_not_wake_by_himself() {
        let mut window = Window::default();
        window.push(new_stub("behind", 1));
        let until = Duration::MAX;
        assert!(window.take(9, Duration::from_secs(1), |_| Admission::Open { until }).is_empty());
        assert_eq!((window.lines().next_wake(), queued(&mut window, 1)), (None, vec![1]));
        window.wake("behind");
        assert_eq!(window.take(9, NOW, |_| Admission::Go).len(), 1);
    }

    #[test]
    fn whoever_is_refused_is_not_asked_about_again_before_something_ended() {
        let (mut window, mut asked) = (Window::default(), 0);
        for number in 0..500 {
            window.push(stub("dead", number));
        }
        let mut look = |window: &mut Window| {
            let going = window.take(100, NOW, |_| {
                asked += 1;
                Admission::Busy
            });
            assert!(going.is_empty());
            asked
        };
        assert_eq!([look(&mut window), look(&mut window)], [1, 1], "however long its line is");
        window.push(stub("dead", 500));
        assert_eq!(look(&mut window), 1);
        window.wake("dead");
        assert_eq!(look(&mut window), 2);
        window.wake_all();
        assert_eq!(look(&mut window), 3);
        assert_eq!(window.len(), 501);
    }

    #[test]
    fn who_is_left_alone_is_asked_again_when_that_is_over() {
        let (mut window, mut asked) = (Window::default(), Vec::new());
        for seconds in [10, 11, 14, 15] {
            // Some come while it is left alone.
            window.push(stub("dead", 0));
            let going = window.take(9, Duration::from_secs(seconds), |_| {
                asked.push(seconds);
                if seconds < 15 { Admission::Open { until: Duration::from_secs(15) } } else { Admission::Go }
            });
            assert_eq!(going.len(), if seconds < 15 { 0 } else { 4 });
        }
        assert_eq!(asked, [10, 15, 15, 15, 15]);
        assert!(window.is_empty() && window.lines().next_wake().is_none());
    }
}
