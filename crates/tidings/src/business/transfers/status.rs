//! The states of a transfer: pending, then one of four ends. Pure.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    Pending,
    Accepted,
    Rejected,
    Cancelled,
    Expired,
}

/// What somebody says to a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    Accept,
    Reject,
    Cancel,
}

impl Status {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Accepted => "accepted",
            Self::Rejected => "rejected",
            Self::Cancelled => "cancelled",
            Self::Expired => "expired",
        }
    }

    /// Whether it may become `next`: what has ended has ended.
    #[must_use]
    pub fn may_become(self, next: Self) -> bool {
        self == Self::Pending && next != Self::Pending
    }
}

impl Answer {
    #[must_use]
    pub const fn leads_to(self) -> Status {
        match self {
            Self::Accept => Status::Accepted,
            Self::Reject => Status::Rejected,
            Self::Cancel => Status::Cancelled,
        }
    }

    #[must_use]
    pub const fn event_type(self) -> &'static str {
        match self {
            Self::Accept => "transfer.accepted",
            Self::Reject => "transfer.rejected",
            Self::Cancel => "transfer.cancelled",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_pending_can_change() {
        use Status::{Accepted, Cancelled, Expired, Pending, Rejected};
        let ends = [Accepted, Rejected, Cancelled, Expired];
        for end in ends {
            assert!(Pending.may_become(end));
            assert!(!end.may_become(Pending) && ends.iter().all(|other| !end.may_become(*other)), "{end:?}");
            assert_eq!(serde_json::json!(end), end.as_str());
        }
        assert!(!Pending.may_become(Pending));
    }
}
