//! The messages that a deliverer has in memory and that wait for their attempt: a line for each destination, so that
//! looking for who may go costs as much as there are destinations, however long their lines are.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::time::Duration;

use tidings_core::message::Status;

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

/// Those who wait for one destination.
#[derive(Debug, Default)]
struct Line {
    stubs: VecDeque<Stub>,
    /// The destination is left alone until then, for certain: nobody need ask before.
    until: Duration,
}

#[derive(Debug, Default)]
pub struct Window {
    lines: BTreeMap<Destination, Line>,
    length: usize,
    /// How many are still to become `queued` if they have to wait.
    to_be_queued: usize,
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

    /// Whether anybody is still to become `queued` if he has to wait.
    pub const fn has_to_be_queued(&self) -> bool {
        self.to_be_queued > 0
    }

    pub fn push(&mut self, stub: Stub) {
        self.length += 1;
        self.to_be_queued += usize::from(stub.is_to_be_queued());
        match self.lines.get_mut(&stub.destination) {
            Some(line) => line.stubs.push_back(stub),
            None => {
                let destination = stub.destination.clone();
                self.lines.insert(destination, Line { stubs: VecDeque::from([stub]), ..Line::default() });
            }
        }
    }

    /// Each destination, and until when it is left alone as far as is known here.
    pub fn destinations(&self) -> impl Iterator<Item = (&str, Duration)> {
        self.lines.iter().map(|(destination, line)| (&**destination, line.until))
    }

    /// Changes those who wait, destination by destination, whoever waits longest first.
    pub fn each_line(&mut self, mut change: impl FnMut(&str, &mut VecDeque<Stub>)) {
        self.to_be_queued = 0;
        for (destination, line) in &mut self.lines {
            change(destination, &mut line.stubs);
            self.to_be_queued += line.stubs.iter().filter(|stub| stub.is_to_be_queued()).count();
        }
    }

    /// Takes out at most `most` of those whose destination is admitted, one of each in turn; `admit` is asked before each,
    /// but not about one that said at an earlier `now` that it is left alone for longer.
    pub fn take(&mut self, most: usize, now: Duration, mut admit: impl FnMut(&str) -> Admission) -> Vec<Stub> {
        let (mut going, mut round) = (Vec::new(), Vec::new());
        let behind = (Bound::Excluded(&*self.last), Bound::Unbounded);
        let before = (Bound::Unbounded, Bound::Included(&*self.last));
        for part in [behind, before] {
            for (destination, line) in self.lines.range_mut::<str, _>(part) {
                if going.len() < most && line.goes(now, || admit(destination)) {
                    going.extend(line.stubs.pop_front());
                    round.push(destination.clone());
                }
            }
        }
        while !round.is_empty() && going.len() < most {
            round.retain(|destination| {
                let line = self.lines.get_mut(destination).filter(|line| !line.stubs.is_empty());
                let Some(line) = line.filter(|_| going.len() < most) else { return false };
                let goes = line.goes(now, || admit(destination));
                if goes {
                    going.extend(line.stubs.pop_front());
                }
                goes
            });
        }
        for stub in &going {
            if self.lines.get(&stub.destination).is_some_and(|line| line.stubs.is_empty()) {
                self.lines.remove(&stub.destination);
            }
        }
        self.left(&going);
        if let Some(last) = going.last() {
            self.last.clone_from(&last.destination);
        }
        going
    }

    /// Takes out everybody.
    pub fn clear(&mut self) -> Vec<Stub> {
        (self.length, self.to_be_queued) = (0, 0);
        std::mem::take(&mut self.lines).into_values().flat_map(|line| line.stubs).collect()
    }

    fn left(&mut self, gone: &[Stub]) {
        self.length -= gone.len();
        self.to_be_queued -= gone.iter().filter(|stub| stub.is_to_be_queued()).count();
    }
}

impl Line {
    fn goes(&mut self, now: Duration, admit: impl FnOnce() -> Admission) -> bool {
        if now < self.until {
            return false;
        }
        let admission = admit();
        if let Admission::Open { until } = admission {
            self.until = until;
        }
        admission == Admission::Go
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert!(window.destinations().map(|(destination, _)| destination).eq(["a", "b"]));
        let going = window.take(10, NOW, |_| Admission::Go);
        assert_eq!(ids(&going), ["b0", "a2", "a3"], "who was served last comes last");
        assert!(window.is_empty() && window.destinations().next().is_none());
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
    fn whoever_is_asked_after_a_refusal_is_not_asked_again() {
        let mut window = Window::default();
        for number in 0..500 {
            window.push(stub("dead", number));
        }
        let mut asked = 0;
        window.take(100, NOW, |_| {
            asked += 1;
            Admission::Busy
        });
        assert_eq!(asked, 1, "however long its line is");
    }

    #[test]
    fn who_is_left_alone_is_asked_again_when_that_is_over() {
        let (mut window, mut asked) = (Window::default(), Vec::new());
        window.push(stub("dead", 0));
        for seconds in [10, 11, 14, 15, 16] {
            window.take(1, Duration::from_secs(seconds), |_| {
                asked.push(seconds);
                if seconds < 15 { Admission::Open { until: Duration::from_secs(15) } } else { Admission::Busy }
            });
        }
        assert_eq!(asked, [10, 15, 16]);
        assert_eq!(window.destinations().collect::<Vec<_>>(), [("dead", Duration::from_secs(15))]);
    }
}
