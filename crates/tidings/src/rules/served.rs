//! Who is told of one event over which channel: whatever the number of rules, once (SX-09).
//!
//! Rules have their turn in the order of their names, and those that are left to a job after those of the event's own
//! transaction. The first that makes a message for somebody serves them. Kept are hashes: what a job keeps for its next
//! rules is small and shows no addresses.

use std::collections::{BTreeSet, HashMap};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD as BASE64;
use serde_json::{Value as Json, json};
use tidings_store::{Change, Error, Item, Key, Store, Value, Write};
use uuid::Uuid;

use super::job;
use super::outcome::LeftOut;
use crate::mask;
use crate::messages::Message;

/// Recipients that one page of a job has room for: 22 bytes each, and an item has 400 KB.
pub const PAGE: usize = 10_000;

/// Those who are served, and by whom.
#[derive(Debug, Default)]
pub struct Served {
    shares: Vec<Share>,
    /// Which of the shares somebody is in.
    by: HashMap<Uuid, usize>,
    /// The page of the job that the next share goes to, and how many are on it.
    page: usize,
    on_page: usize,
}

/// Those whom one message serves.
#[derive(Debug, Clone)]
pub struct Share {
    /// The rule, or the part that brought the message with the event.
    by: String,
    target: Option<usize>,
    keys: Vec<Uuid>,
}

/// What is left of a message.
#[derive(Debug, Default)]
pub struct Taken {
    pub left_out: Vec<LeftOut>,
    /// Those whom it still goes to; `None` if there is nobody, or the very message was made before.
    pub share: Option<Share>,
}

impl Served {
    /// How many are served.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by.is_empty()
    }

    /// Notes a message that a part brought with the event.
    pub fn note(&mut self, message: &Message) {
        let by = message.rule.as_ref().unwrap_or(&message.created_by).clone();
        let keys = recipients(message).iter().map(|one| key(&message.channel, one)).collect();
        self.add(Share { by, target: None, keys });
    }

    /// Takes those who are served out of a message of the rule's target number `target`.
    pub fn take_out(&self, rule: &str, target: usize, message: &mut Message) -> Taken {
        let channel = message.channel.clone();
        if let Some(Json::Array(to)) = message.target.get_mut("to") {
            let mut taken = Taker::new(self, rule, target, &channel);
            to.retain(|address| taken.keeps(address.as_str().unwrap_or_default()));
            return taken.end();
        }
        let mut taken = Taker::new(self, rule, target, &channel);
        for one in recipients(message) {
            taken.keeps(&one);
        }
        taken.end()
    }

    /// The same for what goes to a queue or topic.
    #[must_use]
    pub fn entity(&self, rule: &str, target: usize, entity: &str) -> Taken {
        let mut taken = Taker::new(self, rule, target, "queue");
        taken.keeps(entity);
        taken.end()
    }

    pub fn add(&mut self, share: Share) {
        for key in &share.keys {
            self.by.entry(*key).or_insert(self.shares.len());
        }
        self.shares.push(share);
    }

    /// Where [`back_to`](Self::back_to) leads back to.
    #[must_use]
    pub fn mark(&self) -> usize {
        self.shares.len()
    }

    /// Forgets the shares that were added since.
    pub fn back_to(&mut self, mark: usize) {
        for share in self.shares.drain(mark.min(self.shares.len())..) {
            for key in &share.keys {
                self.by.remove(key);
            }
        }
    }

    /// The write that keeps all of it for a job, as its first page.
    #[must_use]
    pub fn first_page(&self, job: &str, expires_at: i64) -> Option<Write> {
        let shares: Vec<Value> = self.shares.iter().map(|share| Value::from(share.text())).collect();
        let item = Item::new().with("job_id", page_id(job, 0)).with("ttl", expires_at).with("served", Value::L(shares));
        (!self.is_empty()).then(|| Write::insert(job::table(), item))
    }

    /// What a job has kept.
    pub async fn of_job(store: &dyn Store, job: &str) -> Result<Self, Error> {
        let mut served = Self::default();
        for page in 0.. {
            let Some(item) = store.get(job::table(), &Key::new(page_id(job, page))).await? else { break };
            let before = served.len();
            for text in job::notes_in(&item, "served") {
                let share = Share::parse(text);
                served.add(share.ok_or_else(|| Error::Corrupt("a stored job cannot be read".to_owned()))?);
            }
            (served.page, served.on_page) = (page, served.len() - before);
        }
        Ok(served)
    }

    /// The write that keeps one more share for a job.
    #[must_use]
    pub fn kept(&self, job: &str, expires_at: i64, share: &Share) -> Write {
        let (page, _) = self.place(share);
        let changes = vec![
            Change::Append("served".into(), vec![Value::from(share.text())]),
            Change::Set("ttl".into(), expires_at.into()),
        ];
        Write::update(job::table(), Key::new(page_id(job, page)), changes)
    }

    /// Adds a share that a job has kept.
    pub fn add_kept(&mut self, share: Share) {
        (self.page, self.on_page) = self.place(&share);
        self.add(share);
    }

    /// The page for a share, and how many are on it then.
    fn place(&self, share: &Share) -> (usize, usize) {
        let together = self.on_page + share.keys.len();
        if together > PAGE && self.on_page > 0 { (self.page + 1, share.keys.len()) } else { (self.page, together) }
    }

    /// The writes that take a job's pages away.
    pub fn removed(&self, job: &str) -> impl Iterator<Item = Write> {
        let pages = if self.shares.is_empty() { 0 } else { self.page + 1 };
        (0..pages).map(move |page| Write::delete(job::table(), Key::new(page_id(job, page))))
    }
}

/// Goes through those whom one target leads to.
struct Taker<'a> {
    served: &'a Served,
    rule: &'a str,
    target: usize,
    channel: &'a str,
    left_out: Vec<LeftOut>,
    keys: BTreeSet<Uuid>,
    /// This very target has told somebody before.
    is_done: bool,
}

impl<'a> Taker<'a> {
    fn new(served: &'a Served, rule: &'a str, target: usize, channel: &'a str) -> Self {
        Self { served, rule, target, channel, left_out: Vec::new(), keys: BTreeSet::new(), is_done: false }
    }

    /// Whether the message still goes there.
    fn keeps(&mut self, recipient: &str) -> bool {
        let key = key(self.channel, recipient);
        let by = self.served.by.get(&key).and_then(|place| self.served.shares.get(*place));
        let Some(by) = by else { return self.keys.insert(key) };
        if by.by == self.rule && by.target == Some(self.target) {
            self.is_done = true;
            return false;
        }
        let shown = if self.channel == "webhook" { mask::url(recipient) } else { recipient.to_owned() };
        let (rule, channel) = (self.rule.to_owned(), self.channel.to_owned());
        self.left_out.push(LeftOut { rule, channel, recipient: shown, by: by.by.clone() });
        false
    }

    fn end(self) -> Taken {
        if self.is_done {
            return Taken::default();
        }
        let share =
            Share { by: self.rule.to_owned(), target: Some(self.target), keys: self.keys.into_iter().collect() };
        Taken { left_out: self.left_out, share: (!share.keys.is_empty()).then_some(share) }
    }
}

impl Share {
    fn text(&self) -> String {
        let bytes: Vec<u8> = self.keys.iter().flat_map(|key| *key.as_bytes()).collect();
        json!([self.by, self.target, BASE64.encode(bytes)]).to_string()
    }

    fn parse(text: &str) -> Option<Self> {
        let (by, target, keys): (String, Option<usize>, String) = serde_json::from_str(text).ok()?;
        let bytes = BASE64.decode(keys).ok()?;
        let keys = bytes.chunks(16).map(Uuid::from_slice).collect::<Result<_, _>>().ok()?;
        Some(Self { by, target, keys })
    }
}

/// Those whom a message goes to.
fn recipients(message: &Message) -> Vec<String> {
    let text = |value: &Json| value.as_str().map(ToOwned::to_owned);
    match message.target.get("to") {
        Some(Json::Array(to)) => to.iter().filter_map(text).collect(),
        _ => ["to", "topic", "url", "entity", "caller"]
            .iter()
            .find_map(|name| message.target.get(*name).and_then(text))
            .into_iter()
            .collect(),
    }
}

/// The same for whatever is the same recipient.
fn key(channel: &str, recipient: &str) -> Uuid {
    let same = match channel {
        // What stands before an address in brackets is a name.
        "email" => recipient.rsplit('<').next().unwrap_or_default().trim_end_matches('>').to_lowercase(),
        "webhook" => reqwest::Url::parse(recipient).map_or_else(
            |_| recipient.to_owned(),
            |mut url| {
                // It is not sent.
                url.set_fragment(None);
                url.into()
            },
        ),
        _ => recipient.to_owned(),
    };
    Uuid::new_v5(&Uuid::NAMESPACE_OID, format!("{channel}\n{same}").as_bytes())
}

fn page_id(job: &str, page: usize) -> String {
    format!("{job}/served/{page}")
}
