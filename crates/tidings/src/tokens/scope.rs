//! What a token allows.

use std::fmt;
use std::str::FromStr;

/// One permission. `Admin` includes every other.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    Admin,
    /// All operational reads.
    Read,
    /// Acknowledge, resubmit, edit rules and maps.
    Operate,
    /// Events, `/ingest/*`, bus send.
    Ingest,
    /// Bus receive and settle.
    Consume,
    /// The four ticket calls.
    Tickets,
    /// One user's inbox. As a route's demand the name is empty: any user, and the handler compares.
    User(String),
}

/// A route for users: the handler compares the name.
pub const ANY_USER: Scope = Scope::User(String::new());

impl Scope {
    /// Whether a token with this scope meets a route's demand.
    #[must_use]
    pub fn meets(&self, demand: &Self) -> bool {
        match (self, demand) {
            (Self::Admin, _) | (Self::User(_), Self::User(_)) => true,
            (have, demand) => have == demand,
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Admin => f.write_str("admin"),
            Self::Read => f.write_str("read"),
            Self::Operate => f.write_str("operate"),
            Self::Ingest => f.write_str("ingest"),
            Self::Consume => f.write_str("consume"),
            Self::Tickets => f.write_str("tickets"),
            Self::User(user) if user.is_empty() => f.write_str("user:ID"),
            Self::User(user) => write!(f, "user:{user}"),
        }
    }
}

impl FromStr for Scope {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Ok(match text {
            "admin" => Self::Admin,
            "read" => Self::Read,
            "operate" => Self::Operate,
            "ingest" => Self::Ingest,
            "consume" => Self::Consume,
            "tickets" => Self::Tickets,
            _ => match text.strip_prefix("user:") {
                Some(user) => {
                    tidings_core::envelope::check_name(user, tidings_core::limits::NAME_CHARS)
                        .map_err(|why| format!("the user in `{text}` {why}"))?;
                    Self::User(user.to_owned())
                }
                None => {
                    return Err(format!(
                        "`{text}` is no scope; choose from admin, read, operate, ingest, consume, tickets, user:ID"
                    ));
                }
            },
        })
    }
}
