//! `[delivery]`: how messages leave, and when what failed is tried again; `[[quiet_hours]]`: when they wait.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidings_core::retry::{Policy, Strategy};

use super::check::Check;
use crate::messages::record::CHANNELS;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Delivery {
    /// Off: this process takes messages, another one on the same store sends them.
    pub enabled: bool,
    /// Tries after the first one.
    pub max_retries: u32,
    pub strategy: Strategy,
    pub base_seconds: f64,
    pub factor: f64,
    /// No wait is longer, not even one the other side asks for.
    pub cap_seconds: f64,
    /// Waits are anything from nothing to the whole, so that what failed together does not come back together.
    pub jitter: bool,
    /// For one whole try.
    pub timeout_seconds: f64,
    /// Answer codes to try again after, whatever the channel thinks of them …
    pub retry_on: Vec<u16>,
    /// … and to give up at.
    pub fail_on: Vec<u16>,
    /// Other policies for some channels or message types.
    pub overrides: Vec<Override>,
    /// Attempts at the same time on one channel …
    pub concurrency: u32,
    /// … and to one webhook's host.
    pub concurrency_per_host: u32,
}

/// What is different for a channel, a message type, or a type on a channel (SX-06). What it leaves out is as in
/// `[delivery]`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Override {
    pub channel: Option<String>,
    pub message_type: Option<String>,
    pub max_retries: Option<u32>,
    pub strategy: Option<Strategy>,
    pub base_seconds: Option<f64>,
    pub factor: Option<f64>,
    pub cap_seconds: Option<f64>,
    pub jitter: Option<bool>,
    pub timeout_seconds: Option<f64>,
    pub retry_on: Option<Vec<u16>>,
    pub fail_on: Option<Vec<u16>>,
}

impl Default for Delivery {
    fn default() -> Self {
        let policy = Policy::default();
        Self {
            enabled: true,
            max_retries: policy.max_retries,
            strategy: policy.strategy,
            base_seconds: policy.base.as_secs_f64(),
            factor: policy.factor,
            cap_seconds: policy.cap.as_secs_f64(),
            jitter: policy.jitter,
            timeout_seconds: policy.timeout.as_secs_f64(),
            retry_on: Vec::new(),
            fail_on: Vec::new(),
            overrides: Vec::new(),
            concurrency: 512,
            concurrency_per_host: 4,
        }
    }
}

fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or_default()
}

impl Delivery {
    /// The policy where no override says otherwise.
    #[must_use]
    pub fn policy(&self) -> Policy {
        Policy {
            max_retries: self.max_retries,
            strategy: self.strategy,
            base: seconds(self.base_seconds),
            factor: self.factor,
            cap: seconds(self.cap_seconds),
            jitter: self.jitter,
            timeout: seconds(self.timeout_seconds),
            retry_on: self.retry_on.clone(),
            fail_on: self.fail_on.clone(),
        }
    }

    pub(super) fn check(&self, check: &mut Check<'_>) {
        check_values(
            check,
            Some(self.max_retries),
            [Some(self.base_seconds), Some(self.factor), Some(self.cap_seconds), Some(self.timeout_seconds)],
            [&self.retry_on, &self.fail_on],
        );
        check.key("concurrency").range(self.concurrency, 1..=10_000);
        check.key("concurrency_per_host").range(self.concurrency_per_host, 1..=1000);
        let mut overrides = check.key("overrides");
        for (index, one) in self.overrides.iter().enumerate() {
            let mut entry = overrides.item(index);
            if one.channel.is_none() && one.message_type.is_none() {
                entry.problem("needs a `channel`, a `message_type` or both");
            }
            if let Some(channel) = &one.channel {
                check_channel(channel, &mut entry.key("channel"));
            }
            if let Some(message_type) = &one.message_type {
                entry.key("message_type").name(message_type);
            }
            let same = |other: &&Override| (&other.channel, &other.message_type) == (&one.channel, &one.message_type);
            if self.overrides.iter().take(index).any(|other| same(&other)) {
                entry.problem("is for the same channel and message type as one before it");
            }
            check_values(
                &mut entry,
                one.max_retries,
                [one.base_seconds, one.factor, one.cap_seconds, one.timeout_seconds],
                [one.retry_on.as_deref().unwrap_or_default(), one.fail_on.as_deref().unwrap_or_default()],
            );
        }
    }
}

impl Override {
    /// `policy` with what is different.
    #[must_use]
    pub fn over(&self, policy: &Policy) -> Policy {
        Policy {
            max_retries: self.max_retries.unwrap_or(policy.max_retries),
            strategy: self.strategy.unwrap_or(policy.strategy),
            base: self.base_seconds.map_or(policy.base, seconds),
            factor: self.factor.unwrap_or(policy.factor),
            cap: self.cap_seconds.map_or(policy.cap, seconds),
            jitter: self.jitter.unwrap_or(policy.jitter),
            timeout: self.timeout_seconds.map_or(policy.timeout, seconds),
            retry_on: self.retry_on.clone().unwrap_or_else(|| policy.retry_on.clone()),
            fail_on: self.fail_on.clone().unwrap_or_else(|| policy.fail_on.clone()),
        }
    }
}

fn check_values(
    check: &mut Check<'_>,
    max_retries: Option<u32>,
    [base, factor, cap, timeout]: [Option<f64>; 4],
    [retry_on, fail_on]: [&[u16]; 2],
) {
    if let Some(max_retries) = max_retries {
        check.key("max_retries").range(max_retries, 0..=100);
    }
    for (name, value, range) in [
        ("base_seconds", base, 0.0..=86_400.0),
        ("factor", factor, 1.0..=100.0),
        ("cap_seconds", cap, 0.0..=604_800.0),
        ("timeout_seconds", timeout, 0.1..=300.0),
    ] {
        if let Some(value) = value {
            check.key(name).range(value, range);
        }
    }
    for (name, codes) in [("retry_on", retry_on), ("fail_on", fail_on)] {
        let mut list = check.key(name);
        for (index, code) in codes.iter().enumerate() {
            list.item(index).range(*code, 300..=599);
        }
    }
}

fn check_channel(channel: &str, check: &mut Check<'_>) {
    if !CHANNELS.contains(&channel) {
        check.problem(format_args!("must be one of {}", CHANNELS.join(", ")));
    }
}

/// A time of day at which messages wait (SX-15). Nothing is dropped: they leave when it ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct QuietHours {
    pub name: String,
    /// Of which channels; none given: of all.
    pub channels: Vec<String>,
    /// Topics, addresses or URLs, or the start of one followed by `*`; none given: all.
    pub targets: Vec<String>,
    /// `mon` to `sun`: the days on which it begins; none given: every day.
    pub days: Vec<Day>,
    /// From this time of day …
    pub start: String,
    /// … to this one, the next day if that is earlier. `24:00` is midnight.
    pub end: String,
    /// IANA name.
    pub timezone: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Day {
    Mon,
    Tue,
    Wed,
    Thu,
    Fri,
    Sat,
    Sun,
}

impl Default for QuietHours {
    fn default() -> Self {
        Self {
            name: String::new(),
            channels: Vec::new(),
            targets: Vec::new(),
            days: Vec::new(),
            start: String::new(),
            end: String::new(),
            timezone: "UTC".to_owned(),
        }
    }
}

impl QuietHours {
    pub(super) fn check(&self, check: &mut Check<'_>) {
        let mut channels = check.key("channels");
        for (index, channel) in self.channels.iter().enumerate() {
            check_channel(channel, &mut channels.item(index));
        }
        check.key("targets").not_blank(&self.targets);
        // The judgement of those who use it, so that nothing that passes here fails there.
        for (key, why) in crate::messages::quiet::Hours::read(self).err().unwrap_or_default() {
            check.key(key).problem(why);
        }
    }
}
