//! `[email]`: how mail leaves.

use serde::{Deserialize, Serialize};

use super::check::Check;
use super::secret::Secret;
use super::store::check_region;
use crate::channel::email::SmtpServer;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Email {
    pub transport: Transport,
    pub from: String,
    /// `smtp://user:password@host:587?tls=required`, `smtps://host:465`, `smtp://host:25?tls=none`. A secret, for its
    /// password.
    pub smtp_url: Option<Secret>,
    /// SES: absent means the AWS environment's.
    pub region: Option<String>,
    /// SES: absent means Amazon's own for the region.
    pub endpoint: Option<String>,
    /// SES: absent means the AWS environment's.
    pub access_key_id: Option<String>,
    pub secret_access_key: Option<Secret>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// `.eml` files in the data directory's `outbox`.
    #[default]
    File,
    Smtp,
    Ses,
}

impl Default for Email {
    fn default() -> Self {
        Self {
            transport: Transport::File,
            from: "tidings@localhost".to_owned(),
            smtp_url: None,
            region: None,
            endpoint: None,
            access_key_id: None,
            secret_access_key: None,
        }
    }
}

impl Email {
    pub(super) fn check(&self, check: &mut Check<'_>) {
        check.key("from").mailbox(&self.from);
        match &self.smtp_url {
            Some(url) if !url.expose().is_empty() => check_smtp_url(url.expose(), &mut check.key("smtp_url")),
            // A reference that could not be resolved is reported by then.
            Some(_) => {}
            None if self.transport == Transport::Smtp => {
                check.key("smtp_url").problem("is missing, and `email.transport` = \"smtp\" needs it");
            }
            None => {}
        }
        if let Some(region) = &self.region {
            check_region(region, &mut check.key("region"));
        }
        if let Some(endpoint) = &self.endpoint {
            check.key("endpoint").url(endpoint, &["http", "https"]);
        }
        match (&self.access_key_id, &self.secret_access_key) {
            (Some(id), _) if id.is_empty() || !id.bytes().all(|byte| byte.is_ascii_alphanumeric()) => {
                check.key("access_key_id").problem("must be letters and digits, as in `AKIAIOSFODNN7EXAMPLE`");
            }
            (Some(_), None) => check.key("access_key_id").problem("needs `email.secret_access_key` beside it"),
            (None, Some(_)) => check.key("secret_access_key").problem("needs `email.access_key_id` beside it"),
            _ => {}
        }
    }

    /// What is not wrong and will not work either, if the server's environment is as `variable` says.
    #[must_use]
    pub fn warning(&self, variable: impl Fn(&str) -> Option<String>) -> Option<String> {
        let is_known = self.region.is_some()
            || ["AWS_REGION", "AWS_DEFAULT_REGION"]
                .into_iter()
                .any(|name| variable(name).is_some_and(|it| !it.is_empty()));
        (self.transport == Transport::Ses && !is_known).then(|| {
            "`email.transport` = \"ses\" has no region, and every mail will be refused: set `email.region`, or AWS_REGION \
             where the server runs"
                .to_owned()
        })
    }

    pub(super) fn secrets<'a>(&'a mut self, secrets: &mut Vec<(String, &'a mut Secret)>) {
        secrets.extend(self.smtp_url.as_mut().map(|secret| ("email.smtp_url".to_owned(), secret)));
        let key = self.secret_access_key.as_mut();
        secrets.extend(key.map(|secret| ("email.secret_access_key".to_owned(), secret)));
    }
}

fn check_smtp_url(url: &str, check: &mut Check<'_>) {
    let before = check.count();
    check.url(url, &["smtp", "smtps"]);
    let query = url.split_once('?').map_or("", |(_, query)| query);
    for option in query.split('&').filter(|option| !option.is_empty()) {
        if !matches!(option, "tls=required" | "tls=opportunistic" | "tls=none") {
            return check.problem("may be followed by `?tls=required`, `?tls=opportunistic` or `?tls=none` only");
        }
    }
    // The channel's own judgement, so that nothing that passes here fails there.
    if check.count() == before
        && let Err(why) = SmtpServer::parse(url)
    {
        let own = why.strip_prefix("`email.smtp_url` ");
        check.problem(own.map_or_else(|| format!("cannot be used: {why}"), ToOwned::to_owned));
    }
}
