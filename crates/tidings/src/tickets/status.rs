//! The states of a ticket. The seed shows `open` alone; the others are for those who work on it (S004-09).

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    Open,
    InProgress,
    Resolved,
    Closed,
}

impl Status {
    pub const ALL: [Self; 4] = [Self::Open, Self::InProgress, Self::Resolved, Self::Closed];

    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::InProgress => "in_progress",
            Self::Resolved => "resolved",
            Self::Closed => "closed",
        }
    }

    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == text)
    }

    /// Whether a ticket may go from here to `next`. Staying is no move.
    #[must_use]
    pub const fn leads_to(self, next: Self) -> bool {
        matches!(
            (self, next),
            (Self::Open, Self::InProgress | Self::Closed)
                | (Self::InProgress, Self::Resolved | Self::Closed)
                | (Self::Resolved, Self::Closed | Self::Open)
        )
    }

    /// Whether somebody still has it on the desk: what happens again belongs to it.
    #[must_use]
    pub const fn is_active(self) -> bool {
        matches!(self, Self::Open | Self::InProgress)
    }
}

#[cfg(test)]
mod tests {
    use super::Status::{Closed, InProgress, Open, Resolved};
    use super::*;

    // S004-09
    #[test]
    fn every_pair_of_states_is_decided() {
        let allowed = [
            (Open, InProgress),
            (InProgress, Resolved),
            (Resolved, Closed),
            (Open, Closed),
            (InProgress, Closed),
            (Resolved, Open),
        ];
        for from in Status::ALL {
            for to in Status::ALL {
                assert_eq!(from.leads_to(to), allowed.contains(&(from, to)), "{from:?} to {to:?}");
            }
            assert_eq!(Status::parse(from.as_str()), Some(from));
        }
        assert_eq!(Status::parse("Open"), None);
    }
}
