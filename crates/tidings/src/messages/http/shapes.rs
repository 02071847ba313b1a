//! What goes in and comes out, as the OpenAPI description has it.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};
use tidings_core::envelope::FieldError;

use super::view::MessageView;

/// A message to make.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "describes the body, which is read field by field to name every mistake")]
pub(super) struct NewMessageBody {
    /// One of `GET /api/message-types`.
    message_type: String,
    /// What the type's schema says; `topic` names another ntfy topic than the configured one. At most 262,144 bytes of JSON
    /// in 24 levels.
    payload: Map<String, Value>,
    /// `dev`, `stage` or `prod`; default the installation's.
    pub(super) stage: Option<String>,
    /// Not before this time, which is within `retention.messages_days`. It is kept for a day at least from then on.
    deliver_at: Option<String>,
    /// Default: the request's.
    correlation_id: Option<String>,
    /// By which it can be cancelled, with all others of the same key: 1 to 128 characters.
    key: Option<String>,
}

#[derive(JsonSchema)]
#[expect(dead_code, reason = "describes the body, which is read field by field to name every mistake")]
pub(super) struct CancelBody {
    key: String,
}

#[derive(Serialize, JsonSchema)]
pub(super) struct CancelAnswer {
    /// Those that are not sent any more.
    pub(super) cancelled: Vec<String>,
    /// Those that were cancelled before, among the latest 100 that have ended.
    pub(super) already_cancelled: Vec<String>,
    /// Those that cannot be called back: sent, failed, or on their way this very moment. Of what has
    /// ended, the latest 100 are looked at.
    pub(super) too_late: Vec<String>,
    /// Whether there are more to be cancelled: one call cancels 10,000. Call again.
    pub(super) more: bool,
}

#[derive(JsonSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "describes the body, which is read field by field to name every mistake")]
pub(super) enum BatchBody {
    Named { messages: Vec<NewMessageBody> },
    List(Vec<NewMessageBody>),
}

#[derive(JsonSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "describes the body, which is read field by field to name every mistake")]
pub(super) enum IdsBody {
    Named { message_ids: Vec<String> },
    List(Vec<String>),
}

#[derive(Serialize, JsonSchema)]
pub(super) struct MessageList<'a> {
    pub(super) items: Vec<MessageView<'a>>,
    pub(super) cursor: Option<String>,
}

#[derive(Serialize, JsonSchema)]
pub(super) struct BatchAnswer<'a> {
    pub(super) created: usize,
    pub(super) rejected: usize,
    pub(super) items: Vec<BatchItem<'a>>,
}

/// What became of one entry of a batch: its message, or what is wrong with it.
#[derive(Serialize, JsonSchema)]
pub(super) struct BatchItem<'a> {
    /// 201 or 400.
    pub(super) status: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) message: Option<MessageView<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<Value>")]
    pub(super) errors: Vec<FieldError>,
}

#[derive(Serialize, JsonSchema)]
pub(super) struct BatchGetAnswer<'a> {
    pub(super) items: Vec<MessageView<'a>>,
    pub(super) not_found: Vec<String>,
}

#[derive(Serialize, JsonSchema)]
pub(super) struct MetricsAnswer<'a> {
    pub(super) stage: String,
    /// Messages in each state. One that has expired is counted until the end of that day (UTC).
    pub(super) counts: std::collections::BTreeMap<&'static str, i64>,
    /// Completed in the last 24 hours.
    #[serde(rename = "CompletedCount")]
    pub(super) completed_count: i64,
    /// Failed in the last 24 hours; a cancelled message is a failed one.
    #[serde(rename = "FailedCount")]
    pub(super) failed_count: i64,
    /// Completed of all that ended in the last 24 hours, from 0 to 1; null if nothing did.
    #[serde(rename = "SuccessRate")]
    pub(super) success_rate: Option<f64>,
    /// The 10 latest.
    pub(super) recent: Vec<MessageView<'a>>,
    /// Failed ones, the latest 100.
    pub(super) failed: Vec<MessageView<'a>>,
}

#[derive(Serialize, JsonSchema)]
pub(super) struct TypeList {
    pub(super) items: Vec<TypeView>,
    pub(super) cursor: Option<String>,
}

#[derive(Serialize, JsonSchema)]
pub(super) struct TypeView {
    pub(super) name: String,
    pub(super) schema: Value,
}
