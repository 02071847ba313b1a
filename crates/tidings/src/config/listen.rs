//! Addresses to listen on.

use std::fmt;
use std::net::SocketAddr;

use serde::de::{Deserialize, Deserializer, Error};
use serde::{Serialize, Serializer};

use super::problem::quote;

/// An address to listen on, or `""`: not at all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Listen(Option<SocketAddr>);

impl Listen {
    #[must_use]
    pub const fn on(address: SocketAddr) -> Self {
        Self(Some(address))
    }

    #[must_use]
    pub const fn off() -> Self {
        Self(None)
    }

    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        self.0
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |address| address.fmt(formatter))
    }
}

impl Serialize for Listen {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Listen {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        if text.is_empty() { Ok(Self::off()) } else { parse(&text).map(Self::on).map_err(D::Error::custom) }
    }
}

/// For the main listener, which cannot be off.
pub(super) fn required<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SocketAddr, D::Error> {
    parse(&String::deserialize(deserializer)?).map_err(D::Error::custom)
}

/// An address that somebody wrote, in the file or on the command line.
///
/// # Errors
///
/// The rest of a sentence that begins with where it stands.
pub fn parse(text: &str) -> Result<SocketAddr, String> {
    // `localhost` is the one name that needs no resolver.
    let numeric = text.strip_prefix("localhost:").map(|port| format!("127.0.0.1:{port}"));
    numeric.as_deref().unwrap_or(text).parse().map_err(|_| {
        let hint = match text.strip_prefix(':') {
            Some(port) => format!("; for every interface write \"0.0.0.0:{port}\""),
            None => String::new(),
        };
        format!("must be an IP address and a port like \"127.0.0.1:8787\" or \"[::]:8787\", not {}{hint}", quote(text))
    })
}
