//! `[ntfy]`: where push messages go.

use serde::{Deserialize, Serialize};

use super::check::Check;
use super::secret::Secret;
use super::values;
use crate::outbound;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Ntfy {
    /// For messages that name no topic.
    pub topic: String,
    /// Absent: the built-in push server.
    pub server: Option<String>,
    pub token: Option<Secret>,
}

impl Default for Ntfy {
    fn default() -> Self {
        Self { topic: "tidings".to_owned(), server: None, token: None }
    }
}

impl Ntfy {
    pub(super) fn check(&self, check: &mut Check<'_>) {
        check_topic(&self.topic, &mut check.key("topic"));
        if let Some(server) = &self.server {
            check.key("server").url(server, &["http", "https"]);
            // What would fail each time is said before, unless it is said already.
            if let Err(outbound::Error::Url(why)) = outbound::read(server)
                && values::url(server, &["http", "https"]).is_ok()
            {
                check.key("server").problem(why);
            }
        }
        if self.token.as_ref().is_some_and(|token| http::HeaderValue::from_str(token.expose()).is_err()) {
            check.key("token").problem("must be on one line and have no control characters");
        }
    }

    pub(super) fn secrets<'a>(&'a mut self, secrets: &mut Vec<(String, &'a mut Secret)>) {
        secrets.extend(self.token.as_mut().map(|secret| ("ntfy.token".to_owned(), secret)));
    }
}

pub(super) fn check_topic(topic: &str, check: &mut Check<'_>) {
    if let Err(why) = values::topic(topic) {
        check.problem(why);
    }
}
