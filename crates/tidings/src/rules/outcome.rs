//! What came of an event: stored with it, shown by `/events/{eventId}` and `/trace`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use tidings_core::message::Attempt;

use super::exclude::KeptBack;
use super::limits::OUTCOME_ENTRIES;
use crate::bus::{self, Prepared};
use crate::inbox::Entry;
use crate::messages::Message;

/// What came of an event. Each list has its first entries; `totals` counts all.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Outcome {
    /// Every rule that matched.
    pub rules: Vec<Matched>,
    pub notifications: Vec<Notified>,
    pub messages: Vec<Sent>,
    /// Messages to queues and topics.
    pub queue: Vec<Sent>,
    /// Messages that open tickets.
    pub tickets: Vec<Sent>,
    /// Rules that found nobody to tell.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub no_recipients: Vec<String>,
    /// Rules that had told the same within their window, to all whom they lead to or to some.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub deduplicated: Vec<String>,
    /// Rules that an exclude rule kept from telling anybody.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub suppressed: Vec<String>,
    /// Who is left out of a rule's messages, because another one has told them of this event over the same channel.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<LeftOut>,
    pub totals: Totals,
    /// The work that was too much for one transaction.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fanout: Option<Fanout>,
    /// How many rules came to each status, for the metrics: the lists may be cut.
    #[serde(skip)]
    pub by_status: BTreeMap<&'static str, u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Matched {
    pub name: String,
    /// `matched`, `deduplicated`, `served` (others have told everybody), `no_recipients`, `fanout` or `suppressed`; of an
    /// exclude rule, `excluded`.
    pub status: String,
    /// The exclude rule that kept this one from telling anybody.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Why this rule was kept back, or keeps others back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// How many had been told the same within the window, and are not told again: fixed targets, and users and addresses
    /// that the event names.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub repeats: u64,
    /// How many are told of this event over the same channel already, by another rule or another target of this one;
    /// `left_out` has the first of them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub served: u64,
    /// What was wrong with its templates for this event, and how many of those whom the event names cannot be told.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<String>,
}

/// One who hears of an event over a channel, but not from this rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LeftOut {
    pub rule: String,
    pub channel: String,
    /// The address, topic, queue or caller; of a webhook's URL scheme and host.
    pub recipient: String,
    /// The rule that told them, or the part that did so by itself.
    pub by: String,
}

/// What one rule came to.
#[derive(Debug, Default)]
pub struct Told {
    /// How many were told the same not long ago.
    pub repeats: u64,
    pub left_out: Vec<LeftOut>,
    pub errors: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Notified {
    pub user: String,
    pub notification_identifier: String,
    pub rule: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Sent {
    pub message_id: String,
    pub rule: String,
    pub channel: String,
    /// What became of it, when the event is looked at alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<serde_json::Value>>")]
    pub attempts: Option<Vec<Attempt>>,
    /// The message whose place it took, when it was sent again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_of: Option<String>,
    /// The ticket that it opened or went to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ticket_id: Option<String>,
    /// On the bus: the queue or subscription that got it, and its number there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entity: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sequence_number: Option<u64>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Totals {
    pub rules: u64,
    pub notifications: u64,
    pub messages: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Fanout {
    pub job: String,
    /// `open` or `done`.
    #[serde(default)]
    pub state: String,
    #[serde(default)]
    pub notifications: u64,
    #[serde(default)]
    pub messages: u64,
    /// How many users and addresses had been told the same within the window, and are not told again.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub repeats: u64,
    /// How many were told of this event over the same channel already.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub served: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_zero(n: &u64) -> bool {
    *n == 0
}

impl Matched {
    fn new(name: &str, status: &str, errors: Vec<String>) -> Self {
        Self { name: name.to_owned(), status: status.to_owned(), by: None, reason: None, repeats: 0, served: 0, errors }
    }
}

impl Outcome {
    /// A rule that matched.
    pub fn rule(&mut self, name: &str, status: &'static str, told: Told) {
        let Told { repeats, left_out, errors } = told;
        if repeats > 0 && status != "deduplicated" {
            push(&mut self.deduplicated, name.to_owned());
        }
        self.matched(status, Matched { repeats, served: left_out.len() as u64, ..Matched::new(name, status, errors) });
        self.leave_out(left_out);
    }

    /// Notes who is left out.
    pub fn leave_out(&mut self, left_out: Vec<LeftOut>) {
        let room = OUTCOME_ENTRIES.saturating_sub(self.left_out.len());
        self.left_out.extend(left_out.into_iter().take(room));
    }

    /// An exclude rule that keeps others back.
    pub fn excluded(&mut self, kept: &KeptBack<'_>) {
        let errors = kept.error.clone().into_iter().collect();
        let status = "excluded";
        self.matched(status, Matched { reason: Some(kept.reason.clone()), ..Matched::new(kept.by, status, errors) });
    }

    /// A rule that is kept back.
    pub fn suppressed(&mut self, name: &str, kept: &KeptBack<'_>) {
        let status = "suppressed";
        let (by, reason) = (Some(kept.by.to_owned()), Some(kept.reason.clone()));
        self.matched(status, Matched { by, reason, ..Matched::new(name, status, Vec::new()) });
    }

    fn matched(&mut self, status: &'static str, matched: Matched) {
        self.totals.rules += 1;
        *self.by_status.entry(status).or_default() += 1;
        let list = match status {
            "no_recipients" => Some(&mut self.no_recipients),
            "deduplicated" => Some(&mut self.deduplicated),
            "suppressed" => Some(&mut self.suppressed),
            _ => None,
        };
        if let Some(list) = list {
            push(list, matched.name.clone());
        }
        push(&mut self.rules, matched);
    }

    pub fn notified(&mut self, entry: &Entry) {
        self.totals.notifications += 1;
        let (user, notification_identifier) = (entry.user.clone(), entry.identifier());
        push(&mut self.notifications, Notified { user, notification_identifier, rule: entry.rule.clone() });
    }

    /// What went on by the bus, with the queue or subscription that has it for its channel.
    pub fn forwarded(&mut self, sent: &bus::Sent) {
        let (message_id, channel) = (sent.message_id.clone(), format!("bus:{}", sent.path));
        let (entity, sequence_number) = (Some(sent.path.clone()), sent.number());
        push(&mut self.queue, Sent { message_id, channel, entity, sequence_number, ..Sent::default() });
    }

    pub fn sent(&mut self, message: &Message) {
        self.totals.messages += 1;
        let sent = Sent {
            message_id: message.message_id.clone(),
            rule: message.rule.clone().unwrap_or_default(),
            channel: message.channel.clone(),
            ..Sent::default()
        };
        match message.channel.as_str() {
            "queue" => push(&mut self.queue, sent),
            "ticket" => push(&mut self.tickets, sent),
            _ => push(&mut self.messages, sent),
        }
    }

    /// Notes what goes on the bus: each copy with its number, or that nobody takes it.
    pub fn on_bus(&mut self, rule: Option<&str>, entity: &str, prepared: &Prepared) {
        for sent in &prepared.sent {
            self.totals.messages += 1;
            push(
                &mut self.queue,
                Sent {
                    message_id: sent.message_id.clone(),
                    rule: rule.unwrap_or_default().to_owned(),
                    channel: "queue".to_owned(),
                    status: Some("sent".to_owned()),
                    entity: Some(sent.path.clone()),
                    sequence_number: sent.number(),
                    ..Sent::default()
                },
            );
        }
        if prepared.sent.is_empty() {
            let sent = Sent {
                rule: rule.unwrap_or_default().to_owned(),
                channel: "queue".to_owned(),
                status: Some("unwanted".to_owned()),
                entity: Some(entity.to_owned()),
                ..Sent::default()
            };
            push(&mut self.queue, sent);
        }
    }

    /// As JSON text of at most `most` bytes: where the whole does not fit beside its event, the totals do.
    #[must_use]
    pub fn to_text(&self, most: usize) -> String {
        let whole = serde_json::to_string(self).unwrap_or_default();
        if whole.len() <= most {
            return whole;
        }
        let brief = Self { totals: self.totals.clone(), fanout: self.fanout.clone(), ..Self::default() };
        serde_json::to_string(&brief).unwrap_or_default()
    }

    #[must_use]
    pub fn from_text(text: Option<&str>) -> Self {
        text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
    }
}

fn push<T>(list: &mut Vec<T>, entry: T) {
    if list.len() < OUTCOME_ENTRIES {
        list.push(entry);
    }
}
