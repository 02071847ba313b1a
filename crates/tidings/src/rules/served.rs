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

/// Bytes of shares that one page of a job has room for; an item has 400 KB. That is 10,000 recipients of a few messages,
/// and fewer of many: each share has its rule's name beside it.
pub const PAGE_BYTES: usize = 256 * 1024;

/// Those who are served, and by whom.
#[derive(Debug, Default)]
pub struct Served {
    shares: Vec<Share>,
    /// Which of the shares somebody is in.
    by: HashMap<Uuid, usize>,
    /// Bytes of all shares.
    bytes: usize,
    /// The page of the job that the next share goes to, and how many bytes are on it.
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

    /// About how many bytes it takes to keep all of it.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn add(&mut self, share: Share) {
        self.bytes += share.bytes();
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
            self.bytes = self.bytes.saturating_sub(share.bytes());
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
            let before = served.bytes;
            for text in job::notes_in(&item, "served") {
                let share = Share::parse(text);
                served.add(share.ok_or_else(|| Error::Corrupt("a stored job cannot be read".to_owned()))?);
            }
            (served.page, served.on_page) = (page, served.bytes - before);
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

    /// The page for a share, and how many bytes are on it then.
    fn place(&self, share: &Share) -> (usize, usize) {
        let (own, together) = (share.bytes(), self.on_page + share.bytes());
        if together > PAGE_BYTES && self.on_page > 0 { (self.page + 1, own) } else { (self.page, together) }
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
    /// About how many bytes its text has, and never fewer.
    fn bytes(&self) -> usize {
        // A name may need escaping; of three bytes four are made, and of a key's 16 never more than 22 and a bit.
        self.by.len() * 2 + (self.keys.len() * 16).div_ceil(3) * 4 + 32
    }

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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tidings_core::time::ManualClock;
    use tidings_store::memory::Memory;

    use super::*;

    fn share(by: &str, number: usize, recipients: usize) -> Share {
        let one = |n: usize| key("email", &format!("{number}-{n}@example.com"));
        Share { by: by.to_owned(), target: Some(0), keys: (0..recipients).map(one).collect() }
    }

    /// Keeps shares as a job does, one in a transaction; gives how many pages there are, and what is found again.
    async fn keep(shares: impl Iterator<Item = Share>) -> (usize, Served) {
        let clock = Arc::new(ManualClock::new("2026-03-01T12:00:00Z".parse().unwrap()));
        let (store, mut served) = (Memory::new(clock), Served::default());
        for share in shares {
            store.transact(vec![served.kept("job", i64::MAX, &share)]).await.expect("it has room");
            served.add_kept(share);
        }
        let found = Served::of_job(&store, "job").await.unwrap();
        assert_eq!((found.len(), found.page, found.on_page), (served.len(), served.page, served.on_page));
        (found.removed("job").count(), found)
    }

    // SX-27: at n-1, n, n+1.
    #[tokio::test]
    async fn a_page_is_full_when_its_bytes_are() {
        let own = share("r", 0, 1).bytes();
        let fit = PAGE_BYTES / own;
        for (count, pages) in [(fit - 1, 1), (fit, 1), (fit + 1, 2), (2 * fit, 2), (2 * fit + 1, 3)] {
            let (found, served) = keep((0..count).map(|n| share("r", n, 1))).await;
            assert_eq!((found, served.len()), (pages, count));
        }
    }

    #[tokio::test]
    async fn ten_thousand_recipients_are_kept_however_they_are_divided() {
        // An item is refused where it is too large; the longest names make the most of it.
        let long = "\"".repeat(128);
        for recipients in [9_999, 10_000, 10_001] {
            for each in [1, 7, 1_000] {
                let last = recipients % each;
                let whole = (0..recipients / each).map(|n| share(&long, n, each));
                let shares = whole.chain((last > 0).then(|| share(&long, recipients, last)));
                let (pages, served) = keep(shares).await;
                assert_eq!(served.len(), recipients, "{each}");
                assert!(pages >= 1 && served.by.contains_key(&key("email", "0-0@example.com")));
            }
        }
    }

    #[test]
    fn a_share_is_never_larger_than_it_says() {
        for by in ["r", "", "\"\"\"", "päßt"] {
            for count in [1, 2, 3, 4, 999, 1_000] {
                let share = share(by, 0, count);
                assert!(share.text().len() <= share.bytes(), "{by} {count}");
                assert_eq!(Share::parse(&share.text()).unwrap().keys, share.keys);
            }
        }
    }
}
