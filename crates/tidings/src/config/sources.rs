//! `[[sources]]`: places that are asked for events, besides those that send them.

use serde::{Deserialize, Serialize};

use super::check::Check;
use super::secret::Secret;
use super::store::check_region;

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
            }
            Some(Kind::DynamoDbStream) => {
                if self.table.is_some() == self.stream_arn.is_some() {
                    check.problem("needs either `table` or `stream_arn`");
                }
                if self.stream_arn.as_ref().is_some_and(|arn| !arn.starts_with("arn:")) {
                    check.key("stream_arn").problem("must begin with \"arn:\"");
                }
            }
        }
        if let Some(region) = &self.region {
            check_region(region, &mut check.key("region"));
        }
        if let Some(endpoint) = &self.endpoint {
            check.key("endpoint").url(endpoint, &["http", "https"]);
        }
    }

    pub(super) fn secrets<'a>(&'a mut self, path: &str, secrets: &mut Vec<(String, &'a mut Secret)>) {
        secrets.extend(self.token.as_mut().map(|secret| (format!("{path}.token"), secret)));
    }
}
