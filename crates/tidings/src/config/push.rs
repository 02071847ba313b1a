//! `[push]`: the built-in push server.

use std::net::{Ipv4Addr, SocketAddr};

use serde::{Deserialize, Serialize};

use super::listen::Listen;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Push {
    /// `""` switches it off.
    pub listen: Listen,
}

impl Default for Push {
    fn default() -> Self {
        Self { listen: Listen::on(SocketAddr::from((Ipv4Addr::LOCALHOST, 8788))) }
    }
}
