//! `[limits]`: a limit on everything that arrives.

use serde::{Deserialize, Serialize};

use super::check::Check;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Limits {
    /// A request's body, decompressed.
    pub body_bytes: u64,
    /// An uploaded file.
    pub upload_bytes: u64,
    /// One event. At most what leaves room for its keys in a DynamoDB item.
    pub event_bytes: u64,
    /// How far ahead of our clock an Azure DevOps audit event's time may be; other events may lie in the future.
    pub event_future_seconds: u64,
    /// Events in one request.
    pub batch_events: u64,
    /// The sources whose events are taken. Empty: any.
    pub event_sources: Vec<String>,
    /// Time to send the request's headers.
    pub header_timeout_seconds: u64,
    /// Time for the whole request.
    pub request_timeout_seconds: u64,
    /// Open connections.
    pub connections: u64,
    /// Per token. 0: unlimited.
    pub requests_per_second: u64,
    /// Wrong tokens from one address within the window before it is answered 429. 0: unlimited.
    pub failed_auth_attempts: u64,
    pub failed_auth_window_seconds: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body_bytes: 1_048_576,
            upload_bytes: 20_971_520,
            event_bytes: 262_144,
            event_future_seconds: 300,
            batch_events: 1000,
            event_sources: Vec::new(),
            header_timeout_seconds: 10,
            request_timeout_seconds: 30,
            connections: 4096,
            requests_per_second: 0,
            failed_auth_attempts: 100,
            failed_auth_window_seconds: 60,
        }
    }
}

impl Limits {
    pub(super) fn check(&self, check: &mut Check<'_>) {
        check.key("body_bytes").range(self.body_bytes, 1024..=67_108_864);
        check.key("upload_bytes").range(self.upload_bytes, 1024..=1_073_741_824);
        check.key("event_bytes").range(self.event_bytes, 1024..=389_120);
        check.key("event_future_seconds").range(self.event_future_seconds, 0..=86_400);
        check.key("batch_events").range(self.batch_events, 1..=100_000);
        check.key("header_timeout_seconds").range(self.header_timeout_seconds, 1..=300);
        check.key("request_timeout_seconds").range(self.request_timeout_seconds, 1..=3600);
        check.key("connections").range(self.connections, 1..=1_000_000);
        check.key("requests_per_second").range(self.requests_per_second, 0..=1_000_000);
        check.key("failed_auth_attempts").range(self.failed_auth_attempts, 0..=1_000_000);
        check.key("failed_auth_window_seconds").range(self.failed_auth_window_seconds, 1..=86_400);
    }
}
