//! `[audit]`: which actions of others go into the audit log.

use serde::{Deserialize, Serialize};

use super::check::Check;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Audit {
    /// Types of action that are critical: names, or beginnings followed by `*`. What is done here is always on record.
    pub critical_actions: Vec<String>,
}

impl Default for Audit {
    fn default() -> Self {
        Self { critical_actions: vec!["*".to_owned()] }
    }
}

impl Audit {
    pub(super) fn check(&self, check: &mut Check<'_>) {
        if self.critical_actions.iter().any(|action| action.trim().is_empty()) {
            check.key("critical_actions").problem("must not hold an empty name");
        }
    }
}
