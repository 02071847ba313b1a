//! `GET /bus`, and making, changing and deleting entities.

use axum::extract::State;
use axum::http::{Method, StatusCode};
use axum::response::IntoResponse;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value, json};
use tidings_core::envelope::FieldError;
use tidings_core::time;
use tidings_store::Error;

use super::Place;
use crate::app::Services;
use crate::audit::Action;
use crate::bus::declared;
use crate::bus::definition::{Definition, Kind};
use crate::bus::entity::{Body, Entity, Origin, Record, Subscription};
use crate::bus::figures::Figures;
use crate::bus::line::Line;
use crate::bus::path::{NAME_CHARS, Path, SUBSCRIPTION_CHARS, check_name};
use crate::http::{CorrelationId, Json, JsonText, Problem, Route};
use crate::mask;
use crate::tokens::{Caller, Scope};

/// A writer that meets another one tries so often.
const TRIES: usize = 5;

#[must_use]
pub fn routes() -> Vec<Route> {
    let subscription = "/bus/{entity}/subscriptions/{subscription}";
    vec![
        Route::new(Method::GET, "/bus", "All queues, topics and subscriptions with their counts", list)
            .scopes(&[Scope::Read])
            .answer::<EntityList>(200, "Queues and topics in the order of their names"),
        Route::new(Method::GET, "/bus/{entity}", "One queue or topic", get)
            .at_owner()
            .scopes(&[Scope::Read])
            .answer::<EntityView>(200, "The entity"),
        Route::new(Method::PUT, "/bus/{entity}", "Make or change a queue or topic", put)
            .at_owner()
            .scopes(&[Scope::Operate])
            .body::<EntityBody>()
            .answer::<EntityView>(200, "It was changed; its messages stay")
            .answer::<EntityView>(201, "It was made")
            .answer_empty(409, "It is in the configuration file, or of the other kind"),
        Route::new(Method::DELETE, "/bus/{entity}", "Delete a queue or topic with its messages", delete)
            .at_owner()
            .scopes(&[Scope::Operate])
            .answer_empty(204, "It is deleted")
            .answer_empty(409, "It is in the configuration file, or declared from the start"),
        Route::new(Method::GET, "/bus/{entity}/subscriptions", "The subscriptions of a topic", subscriptions)
            .at_owner()
            .scopes(&[Scope::Read])
            .answer::<SubscriptionList>(200, "In the order of their names"),
        Route::new(Method::GET, subscription, "One subscription", get)
            .at_owner()
            .scopes(&[Scope::Read])
            .answer::<EntityView>(200, "The subscription"),
        Route::new(Method::PUT, subscription, "Make or change a subscription", put)
            .at_owner()
            .scopes(&[Scope::Operate])
            .body::<EntityBody>()
            .answer::<EntityView>(200, "It was changed; its messages stay")
            .answer::<EntityView>(201, "It was made; it gets what is sent from now on")
            .answer_empty(409, "It is in the configuration file, or its topic has as many as there can be"),
        Route::new(Method::DELETE, subscription, "Delete a subscription with its messages", delete)
            .at_owner()
            .scopes(&[Scope::Operate])
            .answer_empty(204, "It is deleted")
            .answer_empty(409, "It is in the configuration file, or declared from the start"),
    ]
}

/// What can be said of an entity; the rest has defaults. A topic has no locks and no rules, and a queue no rules.
#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "describes the body, which is read field by field to name every mistake")]
struct EntityBody {
    /// `queue` or `topic`. Default `queue`, or what it is.
    kind: Option<String>,
    /// 1 to 2000, default 6.
    max_delivery_count: Option<u64>,
    /// 5 to 300, default 60.
    lock_seconds: Option<u64>,
    /// Waits between deliveries: `strategy` (exponential or fixed), `baseSeconds` 1, `factor` 2, `maxSeconds` 3600,
    /// `jitter` true. Absent: an abandoned message can be received again at once.
    retry: Option<RetryBody>,
    /// Default 0, messages do not expire.
    default_ttl_seconds: Option<u64>,
    /// Whether messages that expire go to the dead letters. Default false: they vanish.
    dead_letter_on_expiration: Option<bool>,
    /// Bytes of dead letters beyond which nothing more is taken in (403); they never expire. 0: no limit. Default 1 GiB.
    dead_letter_max_bytes: Option<u64>,
    /// How long message ids are remembered, 0 to 604800. Default 0: no duplicate detection.
    duplicate_window_seconds: Option<u64>,
    /// One message of a session at a time, in order. Fixed when the entity is made.
    ordered: Option<bool>,
    /// Whether what became of each message is kept for 90 days, for `/trace`. Default true.
    history: Option<bool>,
    /// Of a subscription; none: it takes everything. Each has a `name`, exactly one of `sql`, `correlation`, `pattern`
    /// and `key`, and perhaps an `action`.
    rules: Option<Vec<crate::bus::definition::RuleDefinition>>,
    /// Of a subscription: an endpoint that each message is delivered to.
    push: Option<crate::bus::definition::Push>,
}

#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "describes the body")]
struct RetryBody {
    /// `exponential` or `fixed`.
    strategy: Option<String>,
    base_seconds: Option<f64>,
    factor: Option<f64>,
    max_seconds: Option<f64>,
    jitter: Option<bool>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct EntityView {
    name: String,
    /// Under which it is received from.
    path: String,
    #[serde(flatten)]
    definition: Map<String, Value>,
    /// `built-in`, `file` or `api`.
    origin: &'static str,
    updated_at: String,
    updated_by: String,
    /// Of a queue or subscription.
    #[serde(skip_serializing_if = "Option::is_none")]
    counts: Option<CountsView>,
    /// Of a topic.
    #[serde(skip_serializing_if = "Option::is_none")]
    subscriptions: Option<Vec<EntityView>>,
}

/// What is in a queue or subscription.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CountsView {
    /// Can be received now.
    active: u64,
    /// Wait for their time or their next delivery.
    scheduled: u64,
    /// Received, and not settled yet.
    locked: u64,
    deferred: u64,
    dead_lettered: u64,
    dead_lettered_bytes: u64,
    /// Messages that ever came in.
    incoming: u64,
    /// Messages that were ever completed.
    outgoing: u64,
    /// Seconds since the oldest message was enqueued, of those that are active or locked.
    oldest_age_seconds: Option<f64>,
}

#[derive(Serialize, JsonSchema)]
struct EntityList {
    items: Vec<EntityView>,
    cursor: Option<String>,
}

#[derive(Serialize, JsonSchema)]
struct SubscriptionList {
    items: Vec<EntityView>,
    cursor: Option<String>,
}

impl From<Figures> for CountsView {
    fn from(figures: Figures) -> Self {
        Self {
            active: figures.active,
            scheduled: figures.scheduled,
            locked: figures.locked,
            deferred: figures.deferred,
            dead_lettered: figures.dead_lettered,
            dead_lettered_bytes: figures.dead_lettered_bytes,
            incoming: figures.incoming,
            outgoing: figures.outgoing,
            oldest_age_seconds: figures.oldest_age.map(|age| age.as_secs_f64()),
        }
    }
}

impl EntityView {
    fn new(name: &str, record: &Record, line: Option<&std::sync::Arc<Line>>, caller: &Caller) -> Self {
        let mut definition = match serde_json::to_value(record.shown(caller.may(&[Scope::Operate]))) {
            Ok(Value::Object(fields)) => fields,
            _ => Map::new(),
        };
        let unused: &[&str] = match record.definition.kind {
            Kind::Topic => &[
                "maxDeliveryCount",
                "lockSeconds",
                "retry",
                "deadLetterOnExpiration",
                "deadLetterMaxBytes",
                "ordered",
                "history",
            ],
            Kind::Subscription => &["duplicateWindowSeconds"],
            Kind::Queue => &[],
        };
        definition.retain(|field, _| !unused.contains(&field.as_str()));
        if record.definition.kind == Kind::Subscription {
            definition.entry("rules").or_insert_with(|| json!([]));
        }
        Self {
            name: name.to_owned(),
            path: record.path.clone(),
            definition,
            origin: record.origin.as_str(),
            updated_at: time::iso_micros(record.updated_at),
            updated_by: record.updated_by.clone(),
            counts: line.map(|line| line.figures().into()),
            subscriptions: None,
        }
    }

    fn of_subscription(subscription: &Subscription, caller: &Caller) -> Self {
        Self::new(&subscription.name, &subscription.record, Some(&subscription.pair.main), caller)
    }

    fn of(entity: &Entity, caller: &Caller) -> Self {
        let name = &entity.record.path;
        match &entity.body {
            Body::Queue(pair) => Self::new(name, &entity.record, Some(&pair.main), caller),
            Body::Topic(subscriptions) => {
                let subscriptions = subscriptions.values().map(|found| Self::of_subscription(found, caller));
                Self { subscriptions: Some(subscriptions.collect()), ..Self::new(name, &entity.record, None, caller) }
            }
        }
    }

    fn find(services: &Services, path: &Path, caller: &Caller) -> Result<Self, Problem> {
        let bus = &services.bus;
        let found = match &path.subscription {
            Some(name) => bus.subscription(&path.entity, name).map(|found| Self::of_subscription(&found, caller)),
            None => bus.entity(&path.entity).map(|found| Self::of(&found, caller)),
        };
        found.map_err(|_| Problem::not_found(format!("there is no entity {path} on the bus")))
    }
}

async fn list(State(services): State<Services>, caller: Caller) -> Result<impl IntoResponse, Problem> {
    services.bus.refresh().await?;
    let items = services.bus.entities().iter().map(|entity| EntityView::of(entity, &caller)).collect();
    Ok(Json(StatusCode::OK, EntityList { items, cursor: None }))
}

async fn get(State(services): State<Services>, caller: Caller, place: Place) -> Result<impl IntoResponse, Problem> {
    services.bus.know_entities().await?;
    Ok(Json(StatusCode::OK, EntityView::find(&services, &place.path, &caller)?))
}

async fn subscriptions(
    State(services): State<Services>,
    caller: Caller,
    place: Place,
) -> Result<impl IntoResponse, Problem> {
    services.bus.know_entities().await?;
    let entity = services.bus.entity(&place.path.entity);
    let entity = entity.map_err(|_| Problem::not_found(format!("there is no topic {}", place.path)))?;
    let Body::Topic(subscriptions) = &entity.body else {
        return Err(Problem::not_found(format!("{} is a queue, which has no subscriptions", place.path)));
    };
    let items = subscriptions.values().map(|found| EntityView::of_subscription(found, &caller)).collect();
    Ok(Json(StatusCode::OK, SubscriptionList { items, cursor: None }))
}

async fn put(
    State(services): State<Services>,
    caller: Caller,
    correlation: CorrelationId,
    place: Place,
    body: JsonText,
) -> Result<impl IntoResponse, Problem> {
    let fields = body.object()?;
    let path = &place.path;
    services.bus.know_entities().await?;
    let mut wrong = Vec::new();
    let mut name =
        |name: &str, most| wrong.extend(check_name(name, most).err().map(|why| FieldError::new("name", why)));
    name(&path.entity, NAME_CHARS);
    if let Some(subscription) = &path.subscription {
        name(subscription, SUBSCRIPTION_CHARS);
    }
    if path.subscription.is_some() && wrong.is_empty() {
        services
            .bus
            .entity(&path.entity)
            .map_err(|_| Problem::not_found(format!("there is no topic {}", path.entity)))?;
    }
    for _ in 0..TRIES {
        let before = services.bus.record(path);
        refuse_file(before.as_ref())?;
        let mut wrong = wrong.clone();
        let kind = kind(path, &fields, before.as_ref(), &mut wrong);
        let definition = before.as_ref().map(|before| &before.definition);
        let definition = match Definition::read(kind, &fields, definition.filter(|before| before.kind == kind)) {
            Ok(definition) if wrong.is_empty() => definition,
            read => return Err(Problem::invalid(wrong.into_iter().chain(read.err().into_iter().flatten()).collect())),
        };
        let by = caller.name();
        let planned = services.bus.plan_put(path, definition, Origin::Api, &by).await?;
        let action =
            Action::new("bus.put", "entity", path.to_string()).details(json!({ "definition": hidden(&fields) }));
        match services.audit.record_with(&by, &correlation.0, action, planned.writes.clone()).await {
            Ok(_) => {
                let status = if planned.created { StatusCode::CREATED } else { StatusCode::OK };
                services.bus.carried_out(planned).await?;
                return Ok(Json(status, EntityView::find(&services, path, &caller)?));
            }
            // Another node may have changed it.
            Err(Error::Conflict { .. }) => services.bus.sync_entities().await?,
            Err(error) => return Err(error.into()),
        }
    }
    Err(Error::Throttled("the entity is contended".to_owned()).into())
}

/// What it is or is to be. If that cannot be read, what it is or a queue: so the rest is read, too.
fn kind(path: &Path, fields: &Map<String, Value>, before: Option<&Record>, wrong: &mut Vec<FieldError>) -> Kind {
    if path.subscription.is_some() {
        return Kind::Subscription;
    }
    let present = before.map_or(Kind::Queue, |before| before.definition.kind);
    match fields.get("kind").filter(|kind| !kind.is_null()).map(|kind| kind.as_str().unwrap_or_default()) {
        None => present,
        Some("queue") => Kind::Queue,
        Some("topic") => Kind::Topic,
        Some(_) => {
            wrong.push(FieldError::new("kind", "must be queue or topic"));
            present
        }
    }
}

/// The body as the audit log may have it.
fn hidden(fields: &Map<String, Value>) -> Value {
    let mut fields = fields.clone();
    if let Some(Value::Object(push)) = fields.get_mut("push") {
        if push.contains_key("secret") {
            push.insert("secret".to_owned(), mask::HIDDEN.into());
        }
        if let Some(url) = push.get("url").and_then(Value::as_str).map(mask::url) {
            push.insert("url".to_owned(), url.into());
        }
    }
    Value::Object(fields)
}

fn refuse_file(record: Option<&Record>) -> Result<(), Problem> {
    match record.map(|record| record.origin) {
        Some(Origin::File) => {
            Err(Problem::conflict("this entity is in the configuration file; change it there and start again"))
        }
        _ => Ok(()),
    }
}

async fn delete(
    State(services): State<Services>,
    caller: Caller,
    correlation: CorrelationId,
    place: Place,
) -> Result<impl IntoResponse, Problem> {
    let path = &place.path;
    services.bus.know_entities().await?;
    for _ in 0..TRIES {
        let record = services.bus.record(path);
        let Some(record) = record else {
            return Err(Problem::not_found(format!("there is no entity {path} on the bus")));
        };
        refuse_file(Some(&record))?;
        if declared::is_seed(path) {
            return Err(Problem::conflict("this entity is declared from the start and cannot be deleted; purge it"));
        }
        let planned = services.bus.plan_delete(path)?;
        let action = Action::new("bus.delete", "entity", path.to_string());
        match services.audit.record_with(&caller.name(), &correlation.0, action, planned.writes.clone()).await {
            Ok(_) => {
                services.bus.carried_out(planned).await?;
                return Ok(StatusCode::NO_CONTENT);
            }
            Err(Error::Conflict { .. }) => services.bus.sync_entities().await?,
            Err(error) => return Err(error.into()),
        }
    }
    Err(Error::Throttled("the entity is contended".to_owned()).into())
}
