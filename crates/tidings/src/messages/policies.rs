//! Which retry policy a message has: the most exact of those that fit it (SX-06).

use tidings_core::retry::Policy;

use crate::config::delivery::{Delivery, Override};

/// The policy of `[delivery]`, and what overrides it.
#[derive(Debug, Clone)]
pub struct Policies {
    default: Policy,
    /// The most exact first.
    overrides: Vec<(Override, Policy)>,
}

impl Policies {
    #[must_use]
    pub fn new(config: &Delivery) -> Self {
        let default = config.policy();
        let mut sorted = config.overrides.clone();
        sorted.sort_by_key(exactness);
        // A type on a channel has what its channel and its type have, where it does not say otherwise itself.
        let policy = |one: &Override| {
            let broader = sorted.iter().rev().filter(|other| exactness(other) > exactness(one) && covers(other, one));
            one.over(&broader.fold(default.clone(), |policy, other| other.over(&policy)))
        };
        let overrides = sorted.iter().map(|one| (one.clone(), policy(one))).collect();
        Self { default, overrides }
    }

    #[must_use]
    pub fn of(&self, channel: &str, message_type: &str) -> &Policy {
        let fits = |wanted: &Option<String>, is: &str| wanted.as_deref().is_none_or(|wanted| wanted == is);
        let found =
            self.overrides.iter().find(|(one, _)| fits(&one.channel, channel) && fits(&one.message_type, message_type));
        found.map_or(&self.default, |(_, policy)| policy)
    }
}

/// A type on a channel, then a type, then a channel.
fn exactness(one: &Override) -> u8 {
    match (&one.message_type, &one.channel) {
        (Some(_), Some(_)) => 0,
        (Some(_), None) => 1,
        (None, _) => 2,
    }
}

/// Whether everything that `one` is for is also what `broader` is for.
fn covers(broader: &Override, one: &Override) -> bool {
    let within = |broad: &Option<String>, narrow: &Option<String>| broad.is_none() || broad == narrow;
    within(&broader.channel, &one.channel) && within(&broader.message_type, &one.message_type)
}

#[cfg(test)]
mod tests {
    use super::*;

    // SX-06
    #[test]
    fn the_most_exact_policy_wins_and_keeps_what_it_does_not_say() {
        let channel = Override { channel: Some("webhook".into()), max_retries: Some(8), ..Default::default() };
        let kind = Override { message_type: Some("reminder".into()), jitter: Some(false), ..Default::default() };
        let both = Override {
            channel: Some("webhook".into()),
            message_type: Some("reminder".into()),
            factor: Some(3.0),
            ..Default::default()
        };
        let config = Delivery { overrides: vec![channel, both, kind], ..Delivery::default() };
        let policies = Policies::new(&config);
        let of = |channel, kind| {
            let policy = policies.of(channel, kind);
            (policy.max_retries, policy.jitter, policy.factor)
        };
        assert_eq!(of("ntfy", "other"), (5, true, 2.0));
        assert_eq!(of("webhook", "other"), (8, true, 2.0));
        assert_eq!(of("ntfy", "reminder"), (5, false, 2.0));
        assert_eq!(of("webhook", "reminder"), (8, false, 3.0));
    }
}
