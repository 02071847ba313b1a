//! What must hold of a line that keeps order, whatever is in its window.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tidings_core::time::Timestamp;
use uuid::Uuid;

use super::*;
use crate::bus::message::Message;

const PAGE: usize = 3;

/// A line with a small window over messages by position and key.
struct Small {
    state: State,
    store: BTreeMap<u64, &'static str>,
    settings: Settings,
    tokens: u128,
}

impl Small {
    fn new(keys: &[&'static str]) -> Self {
        let last = keys.len() as u64;
        let lane = || Lane::new(1, last).with_room(4, 2);
        let store = (1..).zip(keys.iter().copied()).collect();
        let settings = Settings { ordered: true, ..Settings::of_dead_letters(Duration::from_secs(60), false) };
        Self {
            state: State::new(Lane::new(last + 1, last), lane(), Delta::default(), last + 1, 1),
            store,
            settings,
            tokens: 0,
        }
    }

    fn message(position: u64, key: &str) -> Arc<Stored> {
        let message = Message { session_id: Some(key.to_owned()), ..Message::default() };
        Arc::new(Stored { message, sequence: position, ..Stored::default() })
    }

    /// Reads a page, if there is one to read; says whether.
    fn read(&mut self) -> bool {
        let Some(load) = self.state.start_load(LaneId::Main, true) else { return false };
        let range = || self.store.range(load.above + 1..=load.up_to);
        let page = range().take(PAGE).map(|(at, key)| (*at, Self::message(*at, key))).collect();
        let whole = range().count() <= PAGE;
        self.state.main.finish_load(load, page, whole);
        true
    }

    /// Hands out one message, reading as long as that helps.
    fn receive(&mut self) -> Option<Taken> {
        for _ in 0..1000 {
            let tokens = &mut self.tokens;
            let token = || {
                *tokens += 1;
                Uuid::from_u128(*tokens)
            };
            let (mut taken, _) = self.state.take(1, &self.settings, None, now(), token);
            if let Some(taken) = taken.pop() {
                return Some(taken);
            }
            if !self.read() {
                return None;
            }
        }
        panic!("reading never ends");
    }

    fn complete(&mut self, taken: &Taken) {
        self.store.remove(&taken.held.message.sequence);
        self.state.settled(&taken.token);
    }
}

fn now() -> Now {
    Now { wall: Timestamp::UNIX_EPOCH, monotonic: Duration::ZERO }
}

fn at(taken: &Taken) -> (u64, String) {
    (taken.held.message.sequence, taken.held.message.message.order_key().to_owned())
}

#[test]
fn a_blocked_key_with_more_messages_than_the_window_hides_nobody() {
    let mut keys = vec!["a"; 50];
    keys.extend(["b", "a", "c", "b"]);
    let mut line = Small::new(&keys);
    let first = line.receive().unwrap();
    assert_eq!(at(&first), (1, "a".to_owned()));
    let second = line.receive().unwrap();
    assert_eq!(at(&second), (51, "b".to_owned()), "behind fifty of a key that is busy");
    assert_eq!(line.receive().map(|taken| at(&taken)), Some((53, "c".to_owned())));
    assert!(line.receive().is_none());
    assert!(line.state.main.ready_len() <= 8, "and memory stays what it is");
    assert_eq!(line.state.main.head(), 1, "nothing is forgotten");
    line.complete(&second);
    assert_eq!(line.receive().map(|taken| at(&taken)), Some((54, "b".to_owned())));
    // The key that was passed over goes on where it was, in its order.
    line.complete(&first);
    for wanted in (2..=50).chain([52]) {
        let taken = line.receive().unwrap();
        assert_eq!(at(&taken), (wanted, "a".to_owned()));
        line.complete(&taken);
    }
    assert!(line.receive().is_none());
}

// Whatever the order of keys and the moments of completion: each message once, and those of a key in order.
#[test]
fn every_message_of_every_key_comes_once_and_in_order() {
    const KEYS: [&str; 5] = ["a", "b", "c", "d", "e"];
    for seed in 0..300_u64 {
        let mut random = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let mut next = |below: usize| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            usize::try_from(random % below as u64).unwrap()
        };
        // The first keys come much more often.
        let keys: Vec<&str> = (0..120).map(|_| KEYS[next(KEYS.len()).min(next(KEYS.len()))]).collect();
        let mut line = Small::new(&keys);
        let (mut held, mut seen, mut last) = (Vec::<Taken>::new(), BTreeSet::new(), BTreeMap::new());
        for _ in 0..2000 {
            if next(3) > 0 || held.is_empty() {
                if let Some(taken) = line.receive() {
                    let (position, key) = at(&taken);
                    assert!(seen.insert(position), "{position} twice, seed {seed}");
                    let before = last.insert(key.clone(), position).unwrap_or(0);
                    assert!(before < position, "{key}: {position} after {before}, seed {seed}");
                    assert!(held.iter().all(|other| at(other).1 != key), "two of {key} at once, seed {seed}");
                    held.push(taken);
                }
            } else {
                let taken = held.swap_remove(next(held.len()));
                line.complete(&taken);
            }
            assert!(line.state.main.ready_len() <= 8 + PAGE, "seed {seed}");
        }
        for taken in held {
            line.complete(&taken);
        }
        while let Some(taken) = line.receive() {
            assert!(seen.insert(at(&taken).0));
            line.complete(&taken);
        }
        assert_eq!(seen.len(), 120, "seed {seed}");
    }
}

// S003-93: of three deliveries two ended with the message deferred; one more failure than one is too many.
#[test]
fn what_was_deferred_has_not_failed() {
    let settings = |most| Settings { max_deliveries: Some(most), ordered: false, ..Small::new(&[]).settings };
    let message = Arc::new(Stored { deliveries: 2, deferrals: 2, ..Stored::default() });
    assert!(!message.is_exhausted(2, Some(1)) && message.is_exhausted(3, Some(1)));
    assert!(!message.is_exhausted(3, Some(2)) && !message.is_exhausted(3, None));
    for (most, is_buried) in [(1, true), (2, false)] {
        let mut state = Small::new(&[]).state;
        let (place, token) = (Place::Deferred(7), Uuid::from_u128(1));
        state.hold(token, place, Arc::clone(&message), &settings(most), None, now());
        let attempt = Attempt {
            delivery: 0,
            at: now().wall,
            outcome: "abandoned".into(),
            consumer: None,
            reason: None,
            description: None,
        };
        let action = state.release(&token, &settings(most), attempt, Duration::ZERO, now());
        assert_eq!(matches!(action, Some(Action::DeadLetter { .. })), is_buried, "{most}: {action:?}");
    }
}
