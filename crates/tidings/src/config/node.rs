//! `[node]`: this server among others on the same store. Only DynamoDB can be shared.

use serde::{Deserialize, Serialize};

use super::check::Check;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Node {
    /// Where other nodes reach this one; absent: `http://` and the listen address.
    pub advertise: Option<String>,
    /// After so long without a sign of life a node is taken for dead, and others take over its work.
    pub lease_seconds: u64,
}

impl Default for Node {
    fn default() -> Self {
        Self { advertise: None, lease_seconds: 10 }
    }
}

impl Node {
    pub(super) fn check(&self, check: &mut Check<'_>) {
        if let Some(advertise) = &self.advertise {
            check.key("advertise").url(advertise, &["http", "https"]);
        }
        check.key("lease_seconds").range(self.lease_seconds, 2..=300);
    }
}
