//! `/channels/{name}/test`: sends a test notice and says what the other side answered (SX-14); and the webhook targets
//! that asked not to be called any more.

use axum::extract::{Path, State};
use axum::http::{Method, StatusCode};
use axum::response::IntoResponse;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value, json};
use tidings_core::envelope::FieldError;
use tidings_core::time::Timestamp;
use tidings_store::Error;

use crate::app::Services;
use crate::audit::Action;
use crate::channel::webhook::signature::{Key, SECRET_FORM};
use crate::channel::{Notice, Outcome, Priority, webhook};
use crate::config::{Secret, values};
use crate::http::paging::Asked;
use crate::http::{CorrelationId, Json, JsonText, Param, Params, Problem, Route};
use crate::inbox::record as inbox;
use crate::messages::dead::edit::read_target;
use crate::messages::deliver::targets;
use crate::messages::{Message, NewMessage};
use crate::rules::notice::is_user;
use crate::tokens::{Caller, Scope};

/// Recipients of one test.
const MOST_RECIPIENTS: usize = 10;

#[must_use]
pub fn routes() -> Vec<Route> {
    vec![
        Route::new(
            Method::POST,
            "/channels/{name}/test",
            "Send a test notice over inbox, email, ntfy, webhook, queue or ticket",
            test,
        )
        .scopes(&[Scope::Operate])
        .body::<TestBody>()
        .answer::<TestAnswer>(200, "What the other side answered, whether it took it or not"),
        Route::new(Method::GET, "/channels/webhook/disabled", "Webhook targets that are not called any more", disabled)
            .scopes(&[Scope::Read])
            .params(&[Param("limit", "1 to 100, default 50"), Param("cursor", "Where the page before ended")])
            .answer::<DisabledList>(200, "A page of targets"),
        Route::new(Method::DELETE, "/channels/webhook/disabled/{id}", "Call a webhook target again", enable)
            .scopes(&[Scope::Operate])
            .answer_empty(204, "It is called again"),
    ]
}

/// Where the test goes.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "describes the body, which is read field by field to name every mistake")]
struct TestBody {
    /// email: addresses, 1 to 10.
    to: Option<Vec<String>>,
    /// ntfy: a topic; default the configured one.
    topic: Option<String>,
    /// webhook
    url: Option<String>,
    /// webhook: signs the call.
    secret: Option<String>,
    /// inbox
    user: Option<String>,
    /// queue
    entity: Option<String>,
    /// ticket
    caller: Option<String>,
}

#[derive(Serialize, JsonSchema)]
struct TestAnswer {
    channel: String,
    delivered: bool,
    /// What the other side answered.
    detail: String,
    /// The answer's code, if it refused.
    code: Option<u16>,
    /// Whether trying again may help.
    transient: bool,
    /// What the other side calls it.
    notification_id: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    recipients: Vec<RecipientAnswer>,
}

#[derive(Serialize, JsonSchema)]
struct RecipientAnswer {
    recipient: String,
    delivered: bool,
    detail: String,
}

#[derive(Serialize, JsonSchema)]
struct DisabledList {
    items: Vec<DisabledTarget>,
    cursor: Option<String>,
}

#[derive(Serialize, JsonSchema)]
struct DisabledTarget {
    id: String,
    /// Scheme, host and port; the rest of a URL may be secret.
    destination: String,
    reason: String,
    since: String,
    /// The message to which it answered so.
    message_id: String,
}

async fn test(
    State(services): State<Services>,
    caller: Caller,
    correlation: CorrelationId,
    Path(name): Path<String>,
    body: JsonText,
) -> Result<impl IntoResponse, Problem> {
    let fields = if body.0.is_empty() { Map::new() } else { body.object()? };
    let now = services.clock.now();
    let notice = notice(&services, &correlation.0, now);
    // A test has the time that a message would have.
    let timeout = services.messages.policies.of(&name, &notice.message_type).timeout;
    let answer = match name.as_str() {
        "email" => {
            let to = recipients(&fields)?;
            let report = services.senders.copies(&notice, &to, timeout, now).await;
            let mut answer = TestAnswer::of(&name, report.outcome());
            answer.recipients = report
                .recipients
                .into_iter()
                .map(|(recipient, outcome)| RecipientAnswer {
                    recipient,
                    delivered: outcome.is_delivered(),
                    detail: outcome.text().to_owned(),
                })
                .collect();
            answer
        }
        "ntfy" => {
            let topic = text(&fields, "topic")?.unwrap_or(&services.config.ntfy.topic);
            values::topic(topic).map_err(|why| Problem::invalid_field("topic", why))?;
            TestAnswer::of(&name, services.senders.push(&notice, topic, timeout, now).await)
        }
        "webhook" => {
            let url = text(&fields, "url")?.ok_or_else(|| Problem::invalid_field("url", "is required"))?.to_owned();
            values::callable(&url).map_err(|why| Problem::invalid_field("url", why))?;
            let secret = text(&fields, "secret")?;
            if secret.is_some_and(|secret| Key::parse(secret).is_err()) {
                return Err(Problem::invalid_field("secret", SECRET_FORM));
            }
            let secrets = secret.map(Secret::new).into_iter().collect();
            let target = webhook::Target { url, secrets };
            TestAnswer::of(&name, services.senders.call(&notice, &target, timeout, now).await)
        }
        "inbox" => {
            let user = text(&fields, "user")?.ok_or_else(|| Problem::invalid_field("user", "is required"))?;
            inbox_entry(&services, user, &notice, now).await?
        }
        "queue" | "ticket" => {
            let (target, _) = read_target(&name, &fields).map_err(bare)?;
            let message = message(&services, &name, target, &notice, now);
            let sent = services.senders.attempt(&message, timeout, now, &services.workers.stopping()).await;
            TestAnswer::of(&name, sent.outcome)
        }
        _ => {
            let detail =
                "there is no such channel; those that can be tested are inbox, email, ntfy, webhook, queue, ticket";
            return Err(Problem::not_found(detail));
        }
    };
    let action = Action::new("channel.test", "channel", &name)
        .details(json!({ "delivered": answer.delivered, "detail": answer.detail }));
    services.audit.record_with(&caller.name(), &correlation.0, action, Vec::new()).await?;
    Ok(Json(StatusCode::OK, answer))
}

/// In a body that is the target itself, fields have no `target` before them.
fn bare(errors: Vec<FieldError>) -> Problem {
    let bare = |error: FieldError| {
        let field = error.field.strip_prefix("target.").unwrap_or(&error.field).to_owned();
        FieldError::new(field, error.message)
    };
    Problem::invalid(errors.into_iter().map(bare).collect())
}

/// An entry in a user's inbox, which has no other side that could refuse it.
async fn inbox_entry(
    services: &Services,
    user: &str,
    notice: &Notice<'_>,
    now: Timestamp,
) -> Result<TestAnswer, Problem> {
    if !is_user(user) {
        return Err(Problem::invalid_field("user", "is no name of a user"));
    }
    let id = notice.message_id.to_string();
    let days = i64::try_from(services.config.retention.notifications_days).unwrap_or(i64::MAX);
    let entry = inbox::Entry {
        user: user.to_owned(),
        time: inbox::time_of(now, &id, None),
        kind: inbox::Kind::Notice,
        status: inbox::Status::Unread,
        title: notice.title.clone().into_owned(),
        text: notice.text.clone().into_owned(),
        about: inbox::About::default(),
        event_id: id.clone(),
        rule: "test".to_owned(),
        correlation_id: notice.correlation_id.clone().into_owned(),
        created_at: now,
        read_at: None,
        ttl: now.as_second().saturating_add(days.saturating_mul(86_400)),
    };
    services.store.transact(Vec::from(entry.writes()?)).await?;
    Ok(TestAnswer::of("inbox", Outcome::Delivered { id: Some(id), detail: format!("it is in the inbox of {user}") }))
}

/// A message that is sent once and not kept.
fn message(
    services: &Services,
    channel: &str,
    target: Map<String, Value>,
    notice: &Notice<'_>,
    now: Timestamp,
) -> Message {
    let payload = json!({ "title": notice.title, "text": notice.text });
    let new = NewMessage {
        message_id: notice.message_id,
        created_by: "test".to_owned(),
        stage: services.messages.stage(),
        message_type: "test",
        payload: payload.as_object().cloned().unwrap_or_default(),
        correlation_id: &notice.correlation_id,
        channel,
        target,
        secret: None,
        event_id: None,
        rule: None,
        deliver_at: None,
        keep_seconds: services.messages.keep_seconds(),
    };
    Message::new(new, now)
}

fn notice(services: &Services, correlation_id: &str, now: Timestamp) -> Notice<'static> {
    Notice {
        message_id: services.ids.uuid(now),
        correlation_id: correlation_id.to_owned().into(),
        trace_id: None,
        message_type: "test".into(),
        created_at: now,
        title: "Test notice".into(),
        text: "This is a test: notices from Tidings arrive here.".into(),
        html: None,
        priority: Priority::Default,
        tags: Vec::new(),
        click_url: None,
        link: Some(services.config.public_url.clone()),
        payload: json!({}),
    }
}

fn text<'a>(fields: &'a Map<String, Value>, name: &str) -> Result<Option<&'a str>, Problem> {
    match fields.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(Problem::invalid_field(name, "must be a string")),
    }
}

fn recipients(fields: &Map<String, Value>) -> Result<Vec<String>, Problem> {
    let list = fields.get("to").and_then(Value::as_array);
    let list = list.filter(|list| (1..=MOST_RECIPIENTS).contains(&list.len()));
    let list = list.and_then(|list| list.iter().map(|to| to.as_str().map(ToOwned::to_owned)).collect());
    let bad = || Problem::invalid_field("to", format!("must be a list of 1 to {MOST_RECIPIENTS} addresses"));
    let list: Vec<String> = list.ok_or_else(bad)?;
    let wrong = list.iter().enumerate().filter(|(_, to)| !values::is_mailbox(to));
    let wrong: Vec<_> = wrong.map(|(n, _)| FieldError::new(format!("to[{n}]"), "is no e-mail address")).collect();
    if wrong.is_empty() { Ok(list) } else { Err(Problem::invalid(wrong)) }
}

impl TestAnswer {
    fn of(channel: &str, outcome: Outcome) -> Self {
        let detail = outcome.text().to_owned();
        let (code, transient, notification_id) = match &outcome {
            Outcome::Delivered { id, .. } => (None, false, id.clone()),
            Outcome::Retry { code, .. } => (*code, true, None),
            Outcome::Reject { code, .. } => (*code, false, None),
        };
        let delivered = outcome.is_delivered();
        Self {
            channel: channel.to_owned(),
            delivered,
            detail,
            code,
            transient,
            notification_id,
            recipients: Vec::new(),
        }
    }
}

async fn disabled(
    State(services): State<Services>,
    caller: Caller,
    params: Params,
) -> Result<impl IntoResponse, Problem> {
    let mut asked = Asked::read(&services.sealer, &caller, "/channels/webhook/disabled", &(), params)?;
    let (found, next) = targets::list(&*services.store, asked.limit, asked.after.take()).await?;
    let items = found.iter().map(|item| {
        let text = |name: &str| item.str(name).unwrap_or_default().to_owned();
        DisabledTarget {
            id: text("id"),
            destination: text("destination"),
            reason: text("reason"),
            since: text("since"),
            message_id: text("message_id"),
        }
    });
    let cursor = asked.cursor(&services.sealer, next.as_ref());
    Ok(Json(StatusCode::OK, DisabledList { items: items.collect(), cursor }))
}

async fn enable(
    State(services): State<Services>,
    caller: Caller,
    correlation: CorrelationId,
    Path(id): Path<String>,
) -> Result<impl IntoResponse, Problem> {
    let unknown = || Problem::not_found("there is no disabled target of this id");
    if id.is_empty() || id.len() > 64 {
        return Err(unknown());
    }
    let action = Action::new("target.enable", "target", &id);
    match services.audit.record_with(&caller.name(), &correlation.0, action, vec![targets::enable(&id)]).await {
        Ok(_) => Ok(StatusCode::NO_CONTENT),
        Err(Error::Conflict { .. }) => Err(unknown()),
        Err(error) => Err(error.into()),
    }
}
