//! What a subscriber gets: first what is kept, if asked for, then what comes, with a sign of life in between.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use tidings_core::time::Timestamp;
use tidings_store::{Error, Item, Query, Range};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{broadcast, watch};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

use super::ago;
use super::params::Params;
use super::publish::check_topic;
use super::record::{Content, Event, Message, table};
use super::refusal::Refusal;
use super::{ID_LEN, Push};
use crate::channel::Priority;
use crate::workers::turned_true;

/// As often as ntfy.
pub const KEEP_ALIVE: Duration = Duration::from_secs(45);
/// Topics in one subscription.
const MOST_TOPICS: usize = 100;
/// Stored messages read at once, for each topic.
const PAGE: usize = 100;
/// How often it is looked what other nodes have published; how far back, in microseconds, since clocks differ and a
/// message is stored a little after the moment it is numbered for; and how many messages are known by their ids.
const LOOK: Duration = Duration::from_secs(1);
const SLACK: i64 = 5_000_000;
const REMEMBERED: usize = 4096;

/// How messages are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Json,
    Sse,
    Raw,
}

/// From where on a subscriber wants what is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Since {
    None,
    All,
    Latest,
    Id(String),
    /// Seconds since 1970.
    Time(i64),
}

/// What somebody wants to get.
pub struct Wanted {
    pub topics: Vec<String>,
    pub format: Format,
    pub since: Since,
    /// What is kept, and then the end.
    pub poll: bool,
    pub filter: Filter,
}

/// Which messages; all of it must fit.
#[derive(Debug, Default)]
pub struct Filter {
    id: Option<String>,
    message: Option<String>,
    title: Option<String>,
    /// Any of them.
    priorities: Vec<u8>,
    /// All of them.
    tags: Vec<String>,
}

/// The topics of a path: names with commas between them. A comma too many is overlooked.
pub fn topics(list: &str) -> Result<Vec<String>, Refusal> {
    let topics: Vec<String> = list.split(',').filter(|topic| !topic.is_empty()).map(ToOwned::to_owned).collect();
    if topics.is_empty() {
        return check_topic("").map(|()| topics);
    }
    if topics.len() > MOST_TOPICS {
        return Err(Refusal::topic(&format!("at most {MOST_TOPICS} in one subscription")));
    }
    topics.iter().try_for_each(|topic| check_topic(topic))?;
    Ok(topics)
}

impl Wanted {
    pub fn read(topics: Vec<String>, format: Format, params: &Params, now: Timestamp) -> Result<Self, Refusal> {
        let poll = params.flag(&["x-poll", "poll", "po"], false);
        let since = Since::read(params.get(&["x-since", "since", "si"]), poll, now)?;
        Ok(Self { topics, format, since, poll, filter: Filter::read(params)? })
    }
}

impl Since {
    fn read(text: Option<&str>, poll: bool, now: Timestamp) -> Result<Self, Refusal> {
        let Some(text) = text else { return Ok(if poll { Self::All } else { Self::None }) };
        Ok(match text {
            "all" => Self::All,
            "none" => Self::None,
            "latest" => Self::Latest,
            // Twelve digits are an id, as they are for ntfy.
            id if id.len() == ID_LEN && super::record::is_topic(id) => Self::Id(id.to_owned()),
            text => match (text.parse::<i64>(), ago::micros(text)) {
                (Ok(seconds), _) => Self::Time(seconds),
                (_, Some(ago)) => Self::Time(now.as_microsecond().saturating_sub(ago).div_euclid(1_000_000)),
                _ => return Err(Refusal::since()),
            },
        })
    }
}

impl Filter {
    fn read(params: &Params) -> Result<Self, Refusal> {
        let text = |names: &[&str]| params.get(names).map(ToOwned::to_owned);
        let priorities = params.list(&["x-priority", "priority", "prio", "p"]);
        let priorities = priorities.iter().map(|text| text.to_ascii_lowercase().parse().map(Priority::number));
        Ok(Self {
            id: text(&["x-id", "id"]),
            message: text(&["x-message", "message", "m"]),
            title: text(&["x-title", "title", "t"]),
            priorities: priorities.collect::<Result<_, _>>().map_err(|_| Refusal::priority())?,
            tags: params.list(&["x-tags", "tags", "tag", "ta"]),
        })
    }

    fn fits(&self, message: &Message) -> bool {
        let same = |wanted: &Option<String>, have: &str| wanted.as_ref().is_none_or(|wanted| wanted == have);
        let content = &message.content;
        let priority = content.priority.unwrap_or(Priority::Default.number());
        same(&self.id, &message.id)
            && same(&self.message, &content.message)
            && same(&self.title, &content.title)
            && (self.priorities.is_empty() || self.priorities.contains(&priority))
            && self.tags.iter().all(|tag| content.tags.contains(tag))
    }
}

impl Format {
    #[must_use]
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::Json => "application/x-ndjson; charset=utf-8",
            Self::Sse => "text/event-stream; charset=utf-8",
            Self::Raw => "text/plain; charset=utf-8",
        }
    }

    fn write(self, message: &Message) -> Bytes {
        let text = match (self, message.event) {
            (Self::Json, _) => format!("{}\n", message.to_json()),
            // Without a name, so that a browser's `onmessage` hears it; the others have one, so that it does not.
            (Self::Sse, Event::Message) => format!("data: {}\n\n", message.to_json()),
            (Self::Sse, Event::Open) => format!("event: open\ndata: {}\n\n", message.to_json()),
            (Self::Sse, Event::Keepalive) => format!("event: keepalive\ndata: {}\n\n", message.to_json()),
            (Self::Raw, Event::Message) => format!("{}\n", message.content.message.replace(['\n', '\r'], " ")),
            (Self::Raw, _) => "\n".to_owned(),
        };
        Bytes::from(text)
    }
}

/// One subscriber at work.
pub struct Subscription {
    push: Arc<Push>,
    wanted: Wanted,
    stop: watch::Receiver<bool>,
    live: broadcast::Receiver<Arc<Message>>,
    /// The last `seq` of each topic that this subscriber was past.
    seen: BTreeMap<String, i64>,
    replay: Option<Replay>,
    opened: bool,
    keep_alive: Interval,
    /// What was shown lately, where nodes publish beside each other: their numbers are not in order.
    recent: Recent,
    look: Option<Interval>,
}

impl Subscription {
    pub async fn start(push: Arc<Push>, wanted: Wanted, stop: watch::Receiver<bool>) -> Result<Self, Error> {
        // In this order: what comes in between is in the store and on the air, and `seen` sorts it out.
        let head = push.head.load(Ordering::Acquire);
        let live = push.live.subscribe();
        let mut seen = BTreeMap::new();
        for topic in &wanted.topics {
            seen.insert(topic.clone(), push.before(topic, &wanted.since, head).await?);
        }
        let replay = (wanted.since != Since::None).then(|| Replay::after(&seen));
        let (mut recent, mut look) = (Recent::default(), None);
        if push.is_shared() {
            if wanted.since == Since::None {
                let now = push.clock.now().as_microsecond();
                seen.values_mut().for_each(|seq| *seq = now.max(*seq));
            }
            recent.learn(&push, &seen).await?;
            look = Some(interval_at(Instant::now() + LOOK, LOOK));
        }
        let mut keep_alive = interval_at(Instant::now() + KEEP_ALIVE, KEEP_ALIVE);
        keep_alive.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let opened = wanted.poll;
        Ok(Self { push, wanted, stop, live, seen, replay, opened, keep_alive, recent, look })
    }

    /// The next piece of the answer; `None` at its end.
    pub async fn next(&mut self) -> Option<Bytes> {
        if !std::mem::replace(&mut self.opened, true) {
            return Some(self.sign(Event::Open));
        }
        loop {
            if let Some(replay) = &mut self.replay {
                match replay.next(&self.push).await {
                    Ok(Some(message)) => match self.show(&message) {
                        Some(piece) => return Some(piece),
                        None => continue,
                    },
                    Ok(None) => self.replay = None,
                    Err(error) => {
                        tracing::warn!(%error, "a push subscriber is cut off; it can come back with since");
                        return None;
                    }
                }
            }
            if self.wanted.poll {
                return None;
            }
            tokio::select! {
                received = self.live.recv() => match received {
                    Ok(message) => if let Some(piece) = self.show(&message) {
                        return Some(piece);
                    },
                    // Too slow for the air: what was missed is in the store.
                    Err(RecvError::Lagged(_)) => self.replay = Some(Replay::after(&self.seen)),
                    Err(RecvError::Closed) => return None,
                },
                () = tick(&mut self.look) => self.replay = Some(Replay::after(&before(&self.seen))),
                _ = self.keep_alive.tick() => return Some(self.sign(Event::Keepalive)),
                () = turned_true(&mut self.stop) => return None,
            }
        }
    }

    /// The message in the subscriber's format, unless it is for others, filtered out, or was shown before.
    fn show(&mut self, message: &Message) -> Option<Bytes> {
        let seen = self.seen.get_mut(&message.topic)?;
        // What is not kept comes by air alone, so it cannot come twice.
        if message.expires.is_some() {
            let is_new = match self.push.is_shared() {
                true => message.seq > seen.saturating_sub(SLACK) && self.recent.insert(&message.id),
                false => message.seq > *seen,
            };
            if !is_new {
                return None;
            }
            *seen = message.seq.max(*seen);
        }
        self.wanted.filter.fits(message).then(|| self.wanted.format.write(message))
    }

    fn sign(&self, event: Event) -> Bytes {
        let sign = Message {
            id: self.push.new_id(),
            time: self.push.clock.now().as_second(),
            expires: None,
            event,
            topic: self.wanted.topics.join(","),
            content: Content::default(),
            seq: 0,
            correlation_id: String::new(),
        };
        self.wanted.format.write(&sign)
    }
}

impl Push {
    /// The `seq` after which a topic's messages are wanted.
    async fn before(&self, topic: &str, since: &Since, head: i64) -> Result<i64, Error> {
        Ok(match since {
            Since::None => head,
            Since::All => i64::MIN,
            Since::Time(seconds) => seconds.saturating_mul(1_000_000).saturating_sub(1),
            // An id that is forgotten was before everything that is not.
            Since::Id(id) => self.find(id).await?.map_or(i64::MIN, |message| message.seq),
            Since::Latest => {
                let page = self.store.query(table(), &Query::new(topic).descending().limit(1)).await?;
                page.items.first().and_then(|item| item.int("seq")).map_or(i64::MIN, |seq| seq - 1)
            }
        })
    }
}

/// What was shown lately.
#[derive(Default)]
struct Recent {
    ids: HashSet<String>,
    order: VecDeque<String>,
}

impl Recent {
    /// Says whether it is new.
    fn insert(&mut self, id: &str) -> bool {
        if !self.ids.insert(id.to_owned()) {
            return false;
        }
        self.order.push_back(id.to_owned());
        if self.order.len() > REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.ids.remove(&oldest);
        }
        true
    }

    /// What was there before is not new, although another look will bring it.
    async fn learn(&mut self, push: &Push, seen: &BTreeMap<String, i64>) -> Result<(), Error> {
        for (topic, seq) in seen {
            let range = Range::Between(seq.saturating_sub(SLACK).into(), (*seq).into());
            let page = push.store.query(table(), &Query::new(topic).range(range).limit(PAGE)).await?;
            for item in &page.items {
                self.insert(&Message::from_item(item)?.id);
            }
        }
        Ok(())
    }
}

/// Where to look again from.
fn before(seen: &BTreeMap<String, i64>) -> BTreeMap<String, i64> {
    seen.iter().map(|(topic, seq)| (topic.clone(), seq.saturating_sub(SLACK))).collect()
}

async fn tick(interval: &mut Option<Interval>) {
    match interval {
        Some(interval) => drop(interval.tick().await),
        None => std::future::pending().await,
    }
}

/// Stored messages of several topics in the order of publishing, read page by page.
struct Replay {
    topics: Vec<Stored>,
}

struct Stored {
    topic: String,
    after: i64,
    next: Option<Item>,
    messages: VecDeque<Message>,
    ended: bool,
}

impl Replay {
    fn after(seen: &BTreeMap<String, i64>) -> Self {
        let stored = |(topic, after): (&String, &i64)| Stored {
            topic: topic.clone(),
            after: *after,
            next: None,
            messages: VecDeque::new(),
            ended: false,
        };
        Self { topics: seen.iter().map(stored).collect() }
    }

    async fn next(&mut self, push: &Push) -> Result<Option<Message>, Error> {
        for topic in &mut self.topics {
            topic.fill(push).await?;
        }
        let first = |topic: &&mut Stored| topic.messages.front().map_or(i64::MAX, |message| message.seq);
        Ok(self.topics.iter_mut().min_by_key(first).and_then(|topic| topic.messages.pop_front()))
    }
}

impl Stored {
    async fn fill(&mut self, push: &Push) -> Result<(), Error> {
        while self.messages.is_empty() && !self.ended {
            let range = Range::Above(self.after.into());
            let query = Query::new(&self.topic).range(range).limit(PAGE).after(self.next.take());
            let page = push.store.query(table(), &query).await?;
            self.messages = page.items.iter().map(Message::from_item).collect::<Result<_, _>>()?;
            self.next = page.next;
            self.ended = self.next.is_none();
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "subscribe_tests.rs"]
mod tests;
