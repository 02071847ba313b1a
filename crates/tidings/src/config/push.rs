//! `[push]`: the built-in push server.

use std::net::{Ipv4Addr, SocketAddr};

use serde::{Deserialize, Serialize};

use super::check::Check;
use super::listen::Listen;
use super::values;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Push {
    /// `""` switches it off.
    pub listen: Listen,
    /// How long a message can be fetched with `since`.
    pub keep_hours: u64,
    /// Topics that need no token: names, or the start of one followed by `*`.
    pub open_topics: Vec<String>,
    /// Tokens that are for certain topics only.
    pub access: Vec<Grant>,
}

/// What a token may do on the push server, instead of what its scopes allow.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Grant {
    /// The token's name or id.
    pub token: String,
    /// Names, or the start of one followed by `*`.
    pub topics: Vec<String>,
    pub allow: Right,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Right {
    #[default]
    Read,
    Write,
    Both,
}

impl Default for Push {
    fn default() -> Self {
        Self {
            listen: Listen::on(SocketAddr::from((Ipv4Addr::LOCALHOST, 8788))),
            keep_hours: 12,
            open_topics: Vec::new(),
            access: Vec::new(),
        }
    }
}

impl Push {
    pub(super) fn check(&self, check: &mut Check<'_>) {
        check.key("keep_hours").range(self.keep_hours, 1..=8760);
        check_patterns(&self.open_topics, &mut check.key("open_topics"));
        let mut access = check.key("access");
        for (index, grant) in self.access.iter().enumerate() {
            let mut entry = access.item(index);
            if grant.token.is_empty() {
                entry.key("token").problem("is empty; name the token");
            }
            check_patterns(&grant.topics, &mut entry.key("topics"));
        }
    }
}

fn check_patterns(patterns: &[String], check: &mut Check<'_>) {
    for (index, pattern) in patterns.iter().enumerate() {
        let judged = match pattern.strip_suffix('*') {
            // Alone, it is every topic.
            Some("") => Ok(()),
            Some(start) => values::topic_start(start),
            None => values::topic(pattern),
        };
        if let Err(why) = judged {
            check.item(index).problem(why);
        }
    }
}
