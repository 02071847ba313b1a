//! Sending: straight to a queue, as copies to the subscriptions of a topic, or as part of somebody else's transaction.

use tidings_core::envelope::FieldError;
use tidings_core::time;
use tidings_store::{Error, Item, Write};

use super::entity::{Body, Entity};
use super::layout::seen_table;
use super::message::Message;
use super::path::Path;
use super::prepared::{Prepared, Sent};
use super::{Bus, BusError};

/// Bytes of a message: its body and its properties together, and its properties alone.
pub const MESSAGE_BYTES: usize = 262_144;
pub const PROPERTY_BYTES: usize = 65_536;
/// What a message may take in the store, with room left for what becomes of it.
pub(super) const STORED_BYTES: usize = 340_000;

impl Bus {
    /// Sends messages to a queue or topic; durable when it returns. A message whose id was seen within the entity's
    /// window is taken and dropped. Nothing is sent if one of them cannot be.
    pub async fn send(&self, entity: &str, messages: Vec<Message>) -> Result<Vec<Sent>, BusError> {
        self.send_from(self.shared.sources(), entity, messages).await
    }

    /// The same for what a part of the house sends: it is no foreign source.
    pub async fn send_own(&self, entity: &str, messages: Vec<Message>) -> Result<Vec<Sent>, BusError> {
        self.send_from(&[], entity, messages).await
    }

    async fn send_from(
        &self,
        sources: &[String],
        entity: &str,
        mut messages: Vec<Message>,
    ) -> Result<Vec<Sent>, BusError> {
        let entity = self.entity_anywhere(entity).await?;
        for (place, message) in messages.iter().enumerate() {
            check_size(message).map_err(|error| match error {
                BusError::TooLarge(why) if messages.len() > 1 => BusError::TooLarge(format!("[{place}]: {why}")),
                error => error,
            })?;
        }
        if let Some(full) = entity.lines().find(|line| line.is_full()) {
            return Err(BusError::Full(full.path.clone()));
        }
        self.judge(&entity, &mut messages, sources)?;
        if self.shared.nodes.is_some() {
            return self.send_among(&entity, messages).await;
        }
        Ok(self.send_by(&entity, messages, Way::Straight).await?.0)
    }

    /// What was sent, and what was not because the entity is no longer ours.
    pub(super) async fn send_by(
        &self,
        entity: &Entity,
        messages: Vec<Message>,
        way: Way,
    ) -> Result<(Vec<Sent>, Vec<Message>), BusError> {
        let mut transactions: Vec<Prepared> = Vec::new();
        let detects = entity.record.definition.duplicate_window_seconds > 0;
        // What is refused must be there to be posted.
        let may_be_refused = way == Way::Straight && self.shared.nodes.is_some();
        let mut groups: Vec<Vec<Message>> = Vec::new();
        let mut rest = messages.into_iter();
        // Each message in turn, with the room that the last one left.
        let mut one = Prepared::default();
        while let Some(mut message) = rest.next() {
            let marker = self.marker(entity, &message);
            let kept = may_be_refused.then(|| message.clone());
            let mark = message.mark.take();
            match self.prepare_one(entity, message, way, &mut one).await {
                Err(BusError::Store(Error::Throttled(_))) if may_be_refused => {
                    transactions.into_iter().for_each(Prepared::aborted);
                    return Ok((Vec::new(), groups.into_iter().flatten().chain(kept).chain(rest).collect()));
                }
                prepared => prepared?,
            }
            if let Some(mark) = mark {
                one.write(mark.of(&one.sent));
            }
            if let Some(marker) = marker {
                one.write_first(marker);
            }
            // A duplicate must not take others with it.
            let is_alone = if detects {
                transactions.push(std::mem::take(&mut one));
                true
            } else {
                one.join(&mut transactions)
            };
            match groups.last_mut() {
                _ if !may_be_refused => {}
                Some(group) if !is_alone => group.extend(kept),
                _ => groups.push(kept.into_iter().collect()),
            }
        }
        let (mut sent, mut refused, mut groups) = (Vec::new(), Vec::new(), groups.into_iter());
        let all: Vec<(Vec<Sent>, bool)> =
            transactions.iter_mut().map(|one| (std::mem::take(&mut one.sent), one.is_empty())).collect();
        transactions.retain(|prepared| !prepared.is_empty());
        let mut outcomes = Prepared::run_each(&*self.shared.store, transactions).await.into_iter();
        for (mut done, is_empty) in all {
            let group = groups.next().unwrap_or_default();
            match if is_empty { Ok(()) } else { outcomes.next().unwrap_or(Ok(())) } {
                Err(error) if detects && error.conflict_on(0).is_some() => sent.append(&mut done),
                Err(Error::Conflict { .. }) if may_be_refused => refused.extend(group),
                Ok(()) if sent.is_empty() => sent = done,
                Ok(()) => sent.append(&mut done),
                Err(error) => return Err(error.into()),
            }
        }
        Ok((sent, refused))
    }

    /// What is a business event must be a good one, by whatever door it comes (S003-71), and says what it is.
    fn judge(&self, entity: &Entity, messages: &mut [Message], sources: &[String]) -> Result<(), BusError> {
        let now = self.shared.clock.now();
        let (mut errors, count) = (Vec::new(), messages.len());
        for (place, message) in messages.iter_mut().enumerate() {
            let wrong = crate::business::message::admit(&entity.record.path, message, sources, now);
            errors.extend(wrong.into_iter().map(|error| match count {
                1 => error,
                _ => FieldError::new(format!("[{place}].{}", error.field), error.message),
            }));
        }
        if errors.is_empty() { Ok(()) } else { Err(BusError::Invalid(errors)) }
    }

    /// The writes that send a message, for the caller's own transaction. Empty if nobody would get it, or if its id was
    /// seen before.
    pub async fn prepare(&self, entity: &str, message: Message) -> Result<Prepared, BusError> {
        let entity = self.entity_anywhere(entity).await?;
        // What is inside already is as large as it is; its properties are beside it.
        check_room(&message)?;
        let marker = self.marker(&entity, &message);
        if let Some(Write::Put { table, item, .. }) = &marker
            && self.shared.store.get(table, &table.key_of(item)?).await?.is_some()
        {
            return Ok(Prepared::default());
        }
        // A transaction that is not the bus's own must not fail because a line changes hands.
        let way = self.way();
        // Many hold this within theirs: it keeps them small.
        let mut prepared = Box::pin(self.prepare_for(&entity, message, way)).await?;
        if let Some(marker) = marker {
            prepared.write_first(marker.when(tidings_store::Condition::None));
        }
        Ok(prepared)
    }

    /// The writes that cancel the scheduled messages with this business key, and how many they are.
    pub async fn prepare_cancel(&self, entity: &str, key: &str) -> Result<(Prepared, usize), BusError> {
        let line = self.line(&Path::queue(entity))?;
        Ok(line.prepare_cancel(key).await?)
    }

    /// The same into what is empty. Most go straight to a queue, which needs no future of its own.
    async fn prepare_one(
        &self,
        entity: &Entity,
        message: Message,
        way: Way,
        into: &mut Prepared,
    ) -> Result<(), BusError> {
        match (&entity.body, way) {
            (Body::Queue(pair), Way::Straight) => {
                pair.main.prepare_into(message, self.shared.clock.now(), None, into).await?;
            }
            _ => *into = Box::pin(self.prepare_for(entity, message, way)).await?,
        }
        Ok(())
    }

    async fn prepare_for(&self, entity: &Entity, message: Message, way: Way) -> Result<Prepared, BusError> {
        let now = self.shared.clock.now();
        let subscriptions = match &entity.body {
            Body::Queue(pair) => return Ok(pair.main.prepare(message, now, way).await?),
            Body::Topic(subscriptions) => subscriptions,
        };
        let mut message = message;
        let ttl = entity.record.definition.settings().ttl;
        message.ttl = match (message.ttl, ttl) {
            (Some(own), Some(most)) => Some(own.min(most)),
            (own, most) => own.or(most),
        };
        self.prepare_copies(entity, subscriptions, message, now, way).await
    }

    /// The write that remembers a message's id, if the entity does that.
    fn marker(&self, entity: &Entity, message: &Message) -> Option<Write> {
        let seconds = entity.record.definition.duplicate_window_seconds;
        if seconds == 0 {
            return None;
        }
        let until = time::second_after(self.shared.clock.now(), seconds);
        let item = Item::new().with("line", &entity.record.generation).with("id", &message.id).with("ttl", until);
        Some(Write::insert(seen_table(), item))
    }
}

/// How a message comes to its line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// To its place, by whoever has the line.
    Straight,
    /// By post: whoever has the line takes it in.
    Post,
    /// The same, behind everything that was posted by then, on whichever node.
    PostAfter(tokio::time::Instant),
}

/// An event as a message: its envelope is the body, and its type the subject, by which subscriptions choose.
#[must_use]
pub fn of_event(envelope: &tidings_core::envelope::Envelope, rule: Option<&str>) -> Message {
    let texts = [
        ("eventType", Some(envelope.event_type.as_str())),
        ("eventVersion", Some(envelope.event_version.as_str())),
        ("source", envelope.source.as_deref()),
        ("rule", rule),
    ];
    let properties = texts.into_iter().filter_map(|(name, text)| Some((name.to_owned(), text?.into())));
    Message {
        id: envelope.event_id.clone(),
        body: bytes::Bytes::from(envelope.to_json()),
        content_type: Some("application/json".to_owned()),
        correlation_id: Some(envelope.correlation_id.clone()),
        subject: Some(envelope.event_type.clone()),
        properties: properties.collect(),
        ..Message::default()
    }
}

pub(super) fn check_size(message: &Message) -> Result<(), BusError> {
    let properties = message.property_bytes();
    if properties > PROPERTY_BYTES {
        let why = format!("the message's properties have {properties} bytes, at most {PROPERTY_BYTES} are allowed");
        return Err(BusError::TooLarge(why));
    }
    let bytes = properties + message.body.len();
    if bytes > MESSAGE_BYTES {
        let why = format!("the message has {bytes} bytes with its properties, at most {MESSAGE_BYTES} are allowed");
        return Err(BusError::TooLarge(why));
    }
    check_room(message)
}

/// What cannot be stored cannot be sent.
fn check_room(message: &Message) -> Result<(), BusError> {
    // Properties that need much escaping take more room than they have bytes.
    let may_swell = message.property_bytes() > (STORED_BYTES - MESSAGE_BYTES) / 6 || message.body.len() > MESSAGE_BYTES;
    if may_swell && message.body.len() + serde_json::to_string(message).map_or(0, |head| head.len()) > STORED_BYTES {
        return Err(BusError::TooLarge("the message takes too much room in the store with its properties".to_owned()));
    }
    Ok(())
}
