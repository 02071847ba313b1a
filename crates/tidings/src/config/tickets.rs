//! `[tickets]`: the service desk's tickets.

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Tickets {
    /// Their table is for a trial, as its name says; stage `prod` takes tickets only if this is set.
    pub in_prod: bool,
}
