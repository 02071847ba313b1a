//! Senders on several connections, and the ledger of what they sent and what was acknowledged.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::{self, Receiver, Sender};

use serde_json::{Value, json};

use super::http::{Answer, Connection};
use super::random::Random;
use super::server::Server;

const CONNECTIONS: usize = 4;

/// What the senders know.
#[derive(Debug, Default)]
pub struct Ledger {
    /// Everything that was ever handed to a connection.
    pub sent: BTreeSet<String>,
    pub acknowledged: BTreeSet<String>,
    /// Sent, and answered with an error.
    pub refused: BTreeSet<String>,
    /// Sent in this round when some request had already been answered with an error.
    late: BTreeSet<String>,
    round: u64,
}

enum Note {
    Sent(Vec<String>),
    Acknowledged(Vec<String>),
    Refused(Vec<String>, Answer),
}

/// What an event of this id carries; its size and content follow from the id alone.
pub fn event(id: &str) -> Value {
    let mut random = Random::new(id.bytes().fold(7, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(byte))));
    // Some are small, most span a few sectors, a few are large enough to be compressed.
    let len = [20, 700, 2_000, 9_000][usize::try_from(random.below(4)).unwrap()];
    let text: String = (0..len).map(|_| char::from(b'a' + u8::try_from(random.below(26)).unwrap())).collect();
    json!({ "eventId": id, "eventType": "crash.test", "source": "crash", "data": { "id": id, "text": text } })
}

/// When to stop a load.
pub enum Until {
    Acknowledged(u64),
    /// Some request was answered with an error.
    Refused,
}

impl Ledger {
    /// Sends from several connections until the time has come, then calls `end`, which may kill the server. Gives
    /// the errors that were answered, in the order in which they came.
    pub fn load(
        &mut self,
        server: Server,
        until: &Until,
        random: &mut Random,
        end: impl FnOnce(Server),
    ) -> Vec<Answer> {
        self.round += 1;
        self.late.clear();
        let (notes, heard) = mpsc::channel();
        let senders: Vec<_> = (0..CONNECTIONS)
            .map(|n| {
                let connection = server.connect();
                let (notes, random) = (notes.clone(), random.fork());
                let name = format!("{}-{n}", self.round);
                std::thread::spawn(move || send_until_it_ends(connection, &name, random, &notes))
            })
            .collect();
        drop(notes);
        let mut answers = Vec::new();
        self.listen(&heard, until, &mut answers);
        // A moment that no protocol step determines.
        for _ in 0..random.below(200_000) {
            std::hint::black_box(());
        }
        end(server);
        while let Ok(note) = heard.recv() {
            self.write_down(note, &mut answers);
        }
        for sender in senders {
            sender.join().expect("a sender does not panic");
        }
        answers
    }

    fn listen(&mut self, heard: &Receiver<Note>, until: &Until, answers: &mut Vec<Answer>) {
        let before = self.acknowledged.len() as u64;
        while let Ok(note) = heard.recv() {
            self.write_down(note, answers);
            let enough = match until {
                Until::Acknowledged(count) => self.acknowledged.len() as u64 - before >= *count,
                Until::Refused => answers.len() >= CONNECTIONS,
            };
            if enough {
                return;
            }
        }
    }

    fn write_down(&mut self, note: Note, answers: &mut Vec<Answer>) {
        match note {
            Note::Sent(ids) => {
                if !answers.is_empty() {
                    self.late.extend(ids.iter().cloned());
                }
                self.sent.extend(ids);
            }
            Note::Acknowledged(ids) => {
                let late: Vec<_> = ids.iter().filter(|id| self.late.contains(*id)).collect();
                assert!(late.is_empty(), "{late:?} were sent after an error and acknowledged: {answers:?}");
                self.acknowledged.extend(ids);
            }
            Note::Refused(ids, answer) => {
                self.refused.extend(ids);
                answers.push(answer);
            }
        }
    }

    /// Sends again what was never acknowledged; each is accepted or known, as `present` says.
    pub fn resend(&mut self, connection: &mut Connection, present: &BTreeMap<String, Value>) {
        let open: Vec<_> = self.sent.difference(&self.acknowledged).cloned().collect();
        for id in open {
            let answer = connection.post("/events", &event(&id).to_string()).expect("the server is up");
            assert_eq!(answer.status, 202, "{answer:?}");
            let expected = if present.contains_key(&id) { "duplicate" } else { "accepted" };
            assert_eq!(answer.body["events"][0]["status"], expected, "{id}");
            self.acknowledged.insert(id);
        }
    }
}

fn send_until_it_ends(mut connection: Connection, name: &str, mut random: Random, notes: &Sender<Note>) {
    let mut number = 0;
    let mut refused = false;
    loop {
        let count = if random.one_in(3) { random.between(2, 8) } else { 1 };
        let ids: Vec<_> = (number..number + count).map(|n| format!("{name}-{n}")).collect();
        number += count;
        let mut events: Vec<_> = ids.iter().map(|id| event(id)).collect();
        // Some twice in one request; below, some once more in a request of their own.
        if random.one_in(4) {
            events.push(events[0].clone());
        }
        let single = events.len() == 1;
        let body = if single { events.remove(0).to_string() } else { Value::from(events).to_string() };
        for _ in 0..if random.one_in(5) { 2 } else { 1 } {
            if notes.send(Note::Sent(ids.clone())).is_err() {
                return;
            }
            let Ok(answer) = connection.post("/events", &body) else { return };
            let note = match answer.status {
                202 => {
                    assert!(!refused, "{name}: acknowledged after an error: {answer:?}");
                    Note::Acknowledged(acknowledged(&answer, &ids))
                }
                _ => {
                    refused = true;
                    Note::Refused(ids.clone(), answer)
                }
            };
            if notes.send(note).is_err() {
                return;
            }
        }
    }
}

/// Every event of the request must be named in the answer.
fn acknowledged(answer: &Answer, ids: &[String]) -> Vec<String> {
    let receipts = answer.body["events"].as_array().expect("a receipt for each event");
    let named: BTreeSet<_> = receipts
        .iter()
        .filter(|receipt| receipt["status"] == "accepted" || receipt["status"] == "duplicate")
        .filter_map(|receipt| receipt["eventId"].as_str().map(ToOwned::to_owned))
        .collect();
    assert!(ids.iter().all(|id| named.contains(id)), "{answer:?}");
    named.into_iter().collect()
}
