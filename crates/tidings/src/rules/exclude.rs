//! Exclude rules: where one matches, other rules tell nobody, and the reason is recorded (SX-12). Reads nothing but its
//! arguments.

use std::sync::Arc;

use super::limits::REASON_CHARS;
use super::rule::{Exclusion, Rule};
use super::template::Fields;

/// The exclude rules among those that an event matches.
pub struct Exclusions<'a>(Vec<KeptBack<'a>>);

/// By which rule, and why.
pub struct KeptBack<'a> {
    pub by: &'a str,
    pub reason: String,
    /// What was wrong with the reason's template.
    pub error: Option<String>,
    exclusion: &'a Exclusion,
}

impl<'a> Exclusions<'a> {
    /// Of these rules, in their order.
    #[must_use]
    pub fn among(rules: &'a [Arc<Rule>], fields: &Fields) -> Self {
        let excluding = rules.iter().filter_map(|rule| Some((rule, rule.exclusion.as_ref()?)));
        Self(excluding.map(|(rule, exclusion)| KeptBack::new(&rule.name, exclusion, fields)).collect())
    }

    /// What is recorded of the exclude rule itself, if the rule is one.
    #[must_use]
    pub fn is_one(&self, rule: &Rule) -> Option<&KeptBack<'a>> {
        rule.exclusion.as_ref().and_then(|_| self.0.iter().find(|kept| kept.by == rule.name))
    }

    /// Whether a rule is kept from telling anybody: the first exclude rule that covers it says why.
    #[must_use]
    pub fn covers(&self, rule: &str) -> Option<&KeptBack<'a>> {
        self.0.iter().find(|kept| kept.exclusion.covers(rule))
    }
}

impl<'a> KeptBack<'a> {
    fn new(by: &'a str, exclusion: &'a Exclusion, fields: &Fields) -> Self {
        let rendered = exclusion.reason.line(fields);
        let error = rendered.as_ref().err().map(|why| format!("reason: {why}"));
        let reason: String = rendered.unwrap_or_default().chars().take(REASON_CHARS).collect();
        // A template may have nothing to say of this event; that it was excluded is still a reason.
        let reason = if reason.is_empty() { format!("excluded by the rule {by}") } else { reason };
        Self { by, reason, error, exclusion }
    }
}
