//! `[transfers]`: ownership transfers.

use serde::{Deserialize, Serialize};

use super::check::Check;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Transfers {
    /// How long a request waits for its answer.
    pub expire_seconds: u64,
}

impl Default for Transfers {
    fn default() -> Self {
        // 72 hours (S003-29).
        Self { expire_seconds: 259_200 }
    }
}

impl Transfers {
    pub(super) fn check(&self, check: &mut Check<'_>) {
        check.key("expire_seconds").range(self.expire_seconds, 1..=31_536_000);
    }
}
