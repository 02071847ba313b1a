//! What is to be sent, the same for every channel.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use tidings_core::time::Timestamp;
use uuid::Uuid;

/// A message as the channels see it. All of it stays the same from attempt to attempt; what the message says as it is, it
/// says itself.
#[derive(Clone, Debug, PartialEq)]
pub struct Notice<'a> {
    /// Stable, so that the other side can recognise a second copy.
    pub message_id: Uuid,
    pub correlation_id: Cow<'a, str>,
    /// The W3C trace it belongs to, if that is not the correlation id's.
    pub trace_id: Option<Cow<'a, str>>,
    pub message_type: Cow<'a, str>,
    pub created_at: Timestamp,
    pub title: Cow<'a, str>,
    pub text: Cow<'a, str>,
    /// For e-mail; absent: made from the text.
    pub html: Option<Cow<'a, str>>,
    pub priority: Priority,
    pub tags: Vec<Cow<'a, str>>,
    /// Where a click on the notice leads.
    pub click_url: Option<Cow<'a, str>>,
    /// The notice in our dashboard.
    pub link: Option<String>,
    /// What a webhook posts beside the text.
    pub payload: Value,
}

/// ntfy's five priorities. S002-61
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Priority {
    Min,
    Low,
    #[default]
    Default,
    High,
    Max,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be min, low, default, high, max (or urgent) or a number from 1 to 5")]
pub struct UnknownPriority;

impl Priority {
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::Min => 1,
            Self::Low => 2,
            Self::Default => 3,
            Self::High => 4,
            Self::Max => 5,
        }
    }

    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Min => "min",
            Self::Low => "low",
            Self::Default => "default",
            Self::High => "high",
            Self::Max => "max",
        }
    }

    /// # Errors
    ///
    /// Anything but 1 to 5.
    pub const fn from_number(number: u64) -> Result<Self, UnknownPriority> {
        Ok(match number {
            1 => Self::Min,
            2 => Self::Low,
            3 => Self::Default,
            4 => Self::High,
            5 => Self::Max,
            _ => return Err(UnknownPriority),
        })
    }
}

impl fmt::Display for Priority {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

impl FromStr for Priority {
    type Err = UnknownPriority;

    fn from_str(text: &str) -> Result<Self, UnknownPriority> {
        Ok(match text {
            "min" => Self::Min,
            "low" => Self::Low,
            "default" => Self::Default,
            "high" => Self::High,
            "max" | "urgent" => Self::Max,
            _ => return Self::from_number(text.parse().map_err(|_| UnknownPriority)?),
        })
    }
}

impl Serialize for Priority {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Priority {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Either {
            Name(String),
            Number(u64),
        }
        match Either::deserialize(deserializer).map_err(|_| serde::de::Error::custom(UnknownPriority))? {
            Either::Name(name) => name.parse(),
            Either::Number(number) => Self::from_number(number),
        }
        .map_err(serde::de::Error::custom)
    }
}
