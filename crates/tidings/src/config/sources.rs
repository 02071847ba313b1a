//! `[[sources]]`: places that are asked for events, besides those that send them.

use serde::{Deserialize, Serialize};

use super::check::Check;
use super::problem::quote;
use super::secret::Secret;
use super::store::check_region;

const EXAMPLE: &str = "arn:aws:dynamodb:us-east-1:123456789012:table/scores/stream/2026-01-01T00:00:00.000";

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Source {
    pub name: String,
    pub kind: Option<Kind>,
    pub enabled: bool,
    pub poll_seconds: u64,
    /// azure-devops: the organization whose audit log is read.
    pub organization: Option<String>,
    /// azure-devops: a personal access token with scope `vso.auditlog`.
    pub token: Option<Secret>,
    /// dynamodb-stream: a table's name, or …
    pub table: Option<String>,
    /// … the stream itself.
    pub stream_arn: Option<String>,
    pub region: Option<String>,
    /// Absent: the vendor's own.
    pub endpoint: Option<String>,
    /// Where to begin without a checkpoint. An audit log goes back 90 days.
    pub start: Start,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    #[serde(rename = "azure-devops")]
    AzureDevOps,
    #[serde(rename = "dynamodb-stream")]
    DynamoDbStream,
}

impl Kind {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::AzureDevOps => "azure-devops",
            Self::DynamoDbStream => "dynamodb-stream",
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Start {
    #[default]
    Oldest,
    Latest,
}

impl Default for Source {
    fn default() -> Self {
        Self {
            name: String::new(),
            kind: None,
            enabled: true,
            poll_seconds: 10,
            organization: None,
            token: None,
            table: None,
            stream_arn: None,
            region: None,
            endpoint: None,
            start: Start::Oldest,
        }
    }
}

impl Source {
    pub(super) fn check(&self, check: &mut Check<'_>) {
        check.key("poll_seconds").range(self.poll_seconds, 1..=86_400);
        match self.kind {
            None => check.key("kind").problem("is missing; it is \"azure-devops\" or \"dynamodb-stream\""),
            Some(Kind::AzureDevOps) => {
                check.key("organization").name(self.organization.as_deref().unwrap_or_default());
                if self.token.is_none() {
                    check.key("token").problem("is missing; Azure DevOps shows its audit log to nobody without one");
                }
                self.refuse_keys(
                    &[("table", &self.table), ("stream_arn", &self.stream_arn), ("region", &self.region)],
                    check,
                );
            }
            Some(Kind::DynamoDbStream) => {
                if self.table.is_some() == self.stream_arn.is_some() {
                    check.problem("needs either `table` or `stream_arn`");
                }
                if self.table.as_deref().is_some_and(|table| !is_table(table)) {
                    check.key("table").problem("must be a table's name: 3 to 255 letters, digits, `_`, `-` or `.`");
                }
                if let Some(arn) = self.stream_arn.as_deref().filter(|arn| !is_stream(arn)) {
                    check
                        .key("stream_arn")
                        .problem(format_args!("must be a stream's like \"{EXAMPLE}\", not {}", quote(arn)));
                }
                let token = self.token.as_ref().map(|_| String::new());
                self.refuse_keys(&[("organization", &self.organization), ("token", &token)], check);
            }
        }
        if let Some(region) = &self.region {
            check_region(region, &mut check.key("region"));
        }
        if let Some(endpoint) = &self.endpoint {
            check.key("endpoint").url(endpoint, &["http", "https"]);
        }
    }

    /// What belongs to the other kind is a mistake: of the key, or of the kind.
    fn refuse_keys(&self, keys: &[(&str, &Option<String>)], check: &mut Check<'_>) {
        let kind = self.kind.map_or("", Kind::as_str);
        for (key, _) in keys.iter().filter(|(_, value)| value.is_some()) {
            check.key(key).problem(format_args!("is not for a source of kind \"{kind}\""));
        }
    }

    pub(super) fn secrets<'a>(&'a mut self, path: &str, secrets: &mut Vec<(String, &'a mut Secret)>) {
        secrets.extend(self.token.as_mut().map(|secret| (format!("{path}.token"), secret)));
    }
}

fn is_table(name: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    (3..=255).contains(&name.len()) && name.chars().all(allowed)
}

/// `arn:aws:dynamodb:REGION:ACCOUNT:table/NAME/stream/LABEL`
fn is_stream(arn: &str) -> bool {
    let parts: Vec<&str> = arn.splitn(6, ':').collect();
    let [arn, _, service, region, _, resource] = parts.as_slice() else { return false };
    let named = resource.strip_prefix("table/").and_then(|rest| rest.split_once("/stream/"));
    *arn == "arn"
        && *service == "dynamodb"
        && !region.is_empty()
        && named.is_some_and(|(table, label)| is_table(table) && !label.is_empty())
}
