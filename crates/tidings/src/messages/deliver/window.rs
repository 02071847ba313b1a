//! The messages that a deliverer has in memory and that wait for their attempt: a line for each destination, so that
//! looking for who may go costs as much as there are destinations, however long their lines are.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use super::senders;
use crate::messages::transition::Stored;

/// A message of more bytes is not kept in the window, but read again when its turn comes.
const KEPT_BYTES: usize = 8 * 1024;

/// A message that waits for its attempt.
#[derive(Debug, Clone)]
pub struct Stub {
    pub message_id: String,
    pub destination: String,
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
}

#[derive(Debug, Default)]
pub struct Window {
    lines: BTreeMap<String, VecDeque<Stub>>,
    length: usize,
    /// Who was served last: the next round begins behind, so that nobody is always first.
    last: Option<String>,
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
        match self.lines.get_mut(&stub.destination) {
            Some(line) => line.push_back(stub),
            None => drop(self.lines.insert(stub.destination.clone(), VecDeque::from([stub]))),
        }
    }

    pub fn destinations(&self) -> impl Iterator<Item = &str> {
        self.lines.keys().map(String::as_str)
    }

    /// Each destination and its line, whoever waits longest first.
    pub fn lines_mut(&mut self) -> impl Iterator<Item = (&str, &mut VecDeque<Stub>)> {
        self.lines.iter_mut().map(|(destination, line)| (destination.as_str(), line))
    }

    /// Takes out at most `most` of those whose destination `may_go`, one of each in turn; `may_go` is asked before each.
    /// Gives also the destinations that may not.
    pub fn take(&mut self, most: usize, mut may_go: impl FnMut(&str) -> bool) -> (Vec<Stub>, BTreeSet<String>) {
        let (mut going, mut blocked): (Vec<Stub>, _) = (Vec::new(), BTreeSet::new());
        let mut round: Vec<String> = self.lines.keys().cloned().collect();
        let behind = self.last.as_ref().map_or(0, |last| round.partition_point(|destination| destination <= last));
        round.rotate_left(behind);
        while !round.is_empty() && going.len() < most {
            round.retain(|destination| {
                if going.len() >= most {
                    return true;
                }
                if !may_go(destination) {
                    blocked.insert(destination.clone());
                    return false;
                }
                let Some(line) = self.lines.get_mut(destination) else { return false };
                going.extend(line.pop_front());
                let goes_on = !line.is_empty();
                if !goes_on {
                    self.lines.remove(destination);
                }
                goes_on
            });
        }
        self.length -= going.len();
        if let Some(last) = going.last() {
            self.last = Some(last.destination.clone());
        }
        (going, blocked)
    }

    /// Takes out everybody who waits for one of these.
    pub fn clear(&mut self, destinations: &BTreeSet<String>) -> Vec<Stub> {
        let lines = destinations.iter().filter_map(|destination| self.lines.remove(destination));
        let gone: Vec<Stub> = lines.flatten().collect();
        self.length -= gone.len();
        gone
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stub(destination: &str, number: u32) -> Stub {
        Stub {
            message_id: format!("{destination}{number}"),
            destination: destination.to_owned(),
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

    #[test]
    fn each_destination_has_its_turn_and_keeps_its_order() {
        let mut window = Window::default();
        for number in 0..4 {
            window.push(stub("a", number));
        }
        window.push(stub("b", 0));
        window.push(stub("c", 0));
        let (going, blocked) = window.take(3, |destination| destination != "b");
        assert_eq!((ids(&going), blocked), (vec!["a0", "c0", "a1"], BTreeSet::from(["b".to_owned()])));
        assert_eq!(window.len(), 3);
        let (going, blocked) = window.take(10, |_| true);
        assert_eq!(ids(&going), ["b0", "a2", "a3"], "who was served last comes last");
        assert!(blocked.is_empty() && window.is_empty());
    }

    #[test]
    fn a_destination_is_cleared_as_a_whole() {
        let mut window = Window::default();
        for number in 0..3 {
            window.push(stub("dead", number));
            window.push(stub("well", number));
        }
        assert_eq!(ids(&window.clear(&BTreeSet::from(["dead".to_owned()]))), ["dead0", "dead1", "dead2"]);
        assert_eq!((window.len(), window.destinations().collect::<Vec<_>>()), (3, vec!["well"]));
    }

    #[test]
    fn whoever_is_asked_after_a_refusal_is_not_asked_again() {
        let mut window = Window::default();
        for number in 0..500 {
            window.push(stub("dead", number));
        }
        let mut asked = 0;
        window.take(100, |_| {
            asked += 1;
            false
        });
        assert_eq!(asked, 1, "however long its line is");
    }
}
