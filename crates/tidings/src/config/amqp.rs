//! `[amqp]`: the door for Azure Service Bus clients, which is not there yet: it cannot be opened.

use serde::{Deserialize, Serialize};

use super::check::{Check, plain_name};
use super::listen::Listen;
use super::secret::Secret;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Amqp {
    /// `""`: off. Nothing else is taken so far.
    pub listen: Listen,
    /// Shared access keys.
    pub keys: Vec<SharedKey>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SharedKey {
    pub name: String,
    pub key: Option<Secret>,
}

impl Amqp {
    pub(super) fn check(&self, check: &mut Check<'_>) {
        if self.listen.address().is_some() {
            // Whoever asks for it must not believe that it is there.
            check
                .key("listen")
                .problem("must be \"\": AMQP is not there yet; use the bus over HTTP, `/bus` (docs/bus.md)");
        }
        let mut keys = check.key("keys");
        keys.names(self.keys.iter().map(|key| key.name.as_str()), plain_name);
        for (index, key) in self.keys.iter().enumerate() {
            if key.key.is_none() {
                keys.item(index).key("key").problem("is missing");
            }
        }
    }

    pub(super) fn secrets<'a>(&'a mut self, secrets: &mut Vec<(String, &'a mut Secret)>) {
        for (index, key) in self.keys.iter_mut().enumerate() {
            secrets.extend(key.key.as_mut().map(|secret| (format!("amqp.keys[{index}].key"), secret)));
        }
    }
}
