//! `/tickets`: the seed's four calls, a fifth for those who work on tickets, and an import for administrators.

use axum::Extension;
use axum::extract::{Path, State};
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value, json};
use tidings_core::envelope::FieldError;
use tidings_core::time;
use tidings_store::query::cursor_of;
use tidings_store::{Error, Item, Write};
use uuid::Uuid;

use super::correlation::Found;
use super::record::{CALLERS, Comment, Ticket, table};
use super::{Origin, import, read};
use crate::app::Services;
use crate::audit::Action;
use crate::http::{
    CORRELATION_ALIAS, CorrelationId, IdempotencySeed, Json, JsonText, Param, Params, Problem, RequestIds, Route,
    correlation_param, paging,
};
use crate::tokens::{Caller, Scope};

/// A page's tickets have about so many bytes at the most, so that a voice desk need not wait: a longer list goes on by
/// its cursor (S004-46).
const PAGE_BYTES: usize = 60 * 1024;
/// Tickets in one import: they are one transaction with its entry in the audit log.
const IMPORTED: usize = 50;
const FIELDS: [&str; 7] =
    ["ticket_id", "caller_id", "issue_description", "status", "created_at", "updated_at", "comments"];

#[must_use]
pub fn routes() -> Vec<Route> {
    vec![
        Route::new(Method::POST, "/tickets", "Open a ticket", create)
            .scopes(&[Scope::Tickets])
            .body::<TicketBody>()
            .answer::<TicketView>(201, "The ticket; secrets in the description are replaced by [redacted]"),
        Route::new(Method::GET, "/tickets", "Tickets of a caller or a correlation id, newest first", list)
            .scopes(&[Scope::Tickets, Scope::Read])
            .params(&[
                Param("caller", "Whose tickets; a phone number finds its own"),
                Param("caller_id", "The same as `caller`"),
                Param(
                    "correlationId",
                    "Those that a request of this id opened, commented or moved; without it, `caller` is required",
                ),
                CORRELATION_ALIAS,
                Param("limit", "1 to 100, default 10; a page of large tickets is shorter"),
                Param("cursor", "Where the page before ended"),
            ])
            .answer::<TicketList>(200, "A page of tickets"),
        Route::new(Method::GET, "/tickets/{ticket_id}", "One ticket", get)
            .scopes(&[Scope::Tickets, Scope::Read])
            .params(&[Param("fields", "Only these attributes, separated by commas, as in `status`")])
            .answer::<TicketFields>(200, "The ticket, or those of its attributes"),
        Route::new(Method::POST, "/tickets/{ticket_id}/comments", "Add a comment to a ticket", comment)
            .scopes(&[Scope::Tickets])
            .body::<CommentBody>()
            .answer::<TicketView>(201, "The ticket with the comment at the end")
            .answer_empty(409, "The ticket would have more than 400 KB"),
        Route::new(Method::PATCH, "/tickets/{ticket_id}", "Change a ticket's status", patch)
            .scopes(&[Scope::Operate])
            .body::<StatusBody>()
            .answer::<TicketView>(200, "The ticket; the status it has already changes nothing")
            .answer_empty(409, "That status does not follow on the one it has"),
        Route::new(
            Method::POST,
            "/admin/tickets/import",
            "Take over tickets as they are, plain or as DynamoDB has them",
            take_over,
        )
        .body::<ImportBody>()
        .answer::<ImportAnswer>(200, "How many are new; those that are there already stay as they are"),
    ]
}

#[derive(JsonSchema)]
#[expect(dead_code, reason = "describes the body, which is read field by field to name every mistake")]
struct TicketBody {
    /// A session's id. A phone number is stored only as a keyed hash.
    caller_id: String,
    /// What is wrong, at most 10,000 characters.
    issue_description: String,
}

#[derive(JsonSchema)]
#[expect(dead_code, reason = "describes the body, which is read field by field to name every mistake")]
struct CommentBody {
    /// At most 4,000 characters.
    comment_text: String,
}

#[derive(JsonSchema)]
#[expect(dead_code, reason = "describes the body, which is read field by field to name every mistake")]
struct StatusBody {
    /// `open`, `in_progress`, `resolved` or `closed`.
    status: String,
}

#[derive(JsonSchema)]
#[expect(dead_code, reason = "describes the body, which is read field by field to name every mistake")]
struct ImportBody {
    /// 1 to 50 tickets with all their attributes.
    tickets: Vec<Map<String, Value>>,
}

#[derive(Serialize, JsonSchema)]
struct ImportAnswer {
    imported: usize,
    /// Ids that were there already.
    existing: Vec<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct TicketView {
    ticket_id: String,
    caller_id: String,
    issue_description: String,
    /// `open`, `in_progress`, `resolved` or `closed`.
    status: &'static str,
    created_at: String,
    updated_at: String,
    comments: Vec<CommentView>,
}

/// A ticket, or what was asked for of it.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "describes what is picked from the whole")]
struct TicketFields {
    #[schemars(skip_serializing_if = "Option::is_none")]
    ticket_id: Option<String>,
    #[schemars(skip_serializing_if = "Option::is_none")]
    caller_id: Option<String>,
    #[schemars(skip_serializing_if = "Option::is_none")]
    issue_description: Option<String>,
    #[schemars(skip_serializing_if = "Option::is_none")]
    status: Option<String>,
    #[schemars(skip_serializing_if = "Option::is_none")]
    created_at: Option<String>,
    #[schemars(skip_serializing_if = "Option::is_none")]
    updated_at: Option<String>,
    #[schemars(skip_serializing_if = "Option::is_none")]
    comments: Option<Vec<CommentView>>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct CommentView {
    comment_text: String,
    added_at: String,
    /// Whose credential it was.
    #[serde(skip_serializing_if = "Option::is_none")]
    author: Option<String>,
}

#[derive(Serialize, JsonSchema)]
struct TicketList {
    tickets: Vec<TicketView>,
    cursor: Option<String>,
}

impl From<Ticket> for TicketView {
    fn from(ticket: Ticket) -> Self {
        Self {
            ticket_id: ticket.ticket_id,
            caller_id: ticket.caller_id,
            issue_description: ticket.issue_description,
            status: ticket.status.as_str(),
            created_at: time::iso_micros(ticket.created_at),
            updated_at: time::iso_micros(ticket.updated_at),
            comments: ticket.comments.into_iter().map(CommentView::from).collect(),
        }
    }
}

impl From<Comment> for CommentView {
    fn from(comment: Comment) -> Self {
        let Comment { comment_text, added_at, author } = comment;
        Self { comment_text, added_at: time::iso_micros(added_at), author }
    }
}

async fn create(
    State(services): State<Services>,
    caller: Caller,
    correlation: CorrelationId,
    seed: Option<Extension<IdempotencySeed>>,
    body: JsonText,
) -> Result<Response, Problem> {
    let new = read::new_ticket(&body.object()?, services.tickets.callers()).map_err(Problem::invalid)?;
    let ids = request_ids(&services, seed);
    let by = caller.name();
    let origin = Origin::of(&by, &correlation);
    let ticket = services.tickets.create(new, origin, (ids.uuid(0), ids.uuid(1))).await?;
    let location = HeaderValue::from_str(&format!("/tickets/{}", ticket.ticket_id)).ok();
    let mut response = Json(StatusCode::CREATED, TicketView::from(ticket)).into_response();
    response.headers_mut().extend(location.map(|location| (header::LOCATION, location)));
    Ok(response)
}

async fn get(
    State(services): State<Services>,
    Path(ticket_id): Path<String>,
    mut params: Params,
) -> Result<Response, Problem> {
    let fields = wanted_fields(&mut params);
    params.finish()?;
    let ticket = services.tickets.get(&read_id(&ticket_id).map_err(Problem::invalid)?).await?;
    let view = TicketView::from(ticket.ok_or(super::Refused::Unknown)?);
    let Some(fields) = fields else { return Ok(Json(StatusCode::OK, view).into_response()) };
    let mut all = serde_json::to_value(view).unwrap_or_default();
    let some: Map<String, Value> =
        fields.into_iter().filter_map(|name| Some((name.to_owned(), all.get_mut(name)?.take()))).collect();
    Ok(Json(StatusCode::OK, some).into_response())
}

/// S004-19: a desk that only wants the status need not read the whole ticket.
fn wanted_fields(params: &mut Params) -> Option<Vec<&'static str>> {
    let text = params.text("fields")?.to_owned();
    let mut wanted = Vec::new();
    for name in text.split(',').map(str::trim) {
        match FIELDS.into_iter().find(|known| *known == name) {
            Some(known) if wanted.contains(&known) => {}
            Some(known) => wanted.push(known),
            None => params.refuse("fields", format!("`{name}` is no attribute of a ticket")),
        }
    }
    Some(wanted)
}

async fn comment(
    State(services): State<Services>,
    caller: Caller,
    correlation: CorrelationId,
    seed: Option<Extension<IdempotencySeed>>,
    Path(ticket_id): Path<String>,
    body: JsonText,
) -> Result<impl IntoResponse, Problem> {
    let (ticket_id, text) = both(read_id(&ticket_id), read::comment(&body.object()?))?;
    let event_id = request_ids(&services, seed).uuid(0);
    let by = caller.name();
    let origin = Origin::of(&by, &correlation);
    let ticket = services.tickets.comment(&ticket_id, &text, origin, event_id).await?;
    Ok(Json(StatusCode::CREATED, TicketView::from(ticket)))
}

async fn patch(
    State(services): State<Services>,
    caller: Caller,
    correlation: CorrelationId,
    Path(ticket_id): Path<String>,
    body: JsonText,
) -> Result<impl IntoResponse, Problem> {
    let (ticket_id, status) = both(read_id(&ticket_id), read::status(&body.object()?))?;
    let by = caller.name();
    let origin = Origin::of(&by, &correlation);
    let ticket = services.tickets.set_status(&services.audit, &ticket_id, status, origin).await?;
    Ok(Json(StatusCode::OK, TicketView::from(ticket)))
}

async fn list(
    State(services): State<Services>,
    caller: Caller,
    mut params: Params,
) -> Result<impl IntoResponse, Problem> {
    let is_found_otherwise = ["correlationId", "correlation_id"].iter().any(|name| params.text(name).is_some());
    let correlation_id = correlation_param(&mut params);
    let whose = whose(&services, &mut params, is_found_otherwise);
    let limit = params.number("limit", 1..=100, 10);
    let cursor = params.text("cursor").map(ToOwned::to_owned);
    params.finish()?;
    let context = match &correlation_id {
        None => paging::context(&caller, "/tickets", &whose),
        Some(id) => paging::context(&caller, "/tickets", &(&whose, id)),
    };
    let after = paging::open(&services.sealer, &context, cursor.as_deref())?;
    let (found, next) = match (&correlation_id, &whose) {
        (Some(id), whose) => services.tickets.of_correlation(id, whose.as_deref(), limit, after).await?,
        (None, Some(whose)) => of_caller(&services, whose, limit, after).await?,
        (None, None) => return Err(Problem::invalid_field("caller", "is required")),
    };
    let (tickets, end) = one_page(&found)?;
    let cursor = paging::seal(&services.sealer, &context, end.or(next).as_ref());
    Ok(Json(StatusCode::OK, TicketList { tickets, cursor }))
}

async fn of_caller(
    services: &Services,
    whose: &str,
    limit: usize,
    after: Option<Item>,
) -> Result<(Vec<Found>, Option<Item>), Error> {
    let (items, next) = services.tickets.of_caller(whose, limit, after).await?;
    let index = table().index_named(CALLERS)?;
    let found = |item: Item| Found { cursor: cursor_of(table(), Some(index), &item), item };
    Ok((items.into_iter().map(found).collect(), next))
}

/// S004-29, S004-30
fn whose(services: &Services, params: &mut Params, is_found_otherwise: bool) -> Option<String> {
    let read = |name: &'static str, params: &mut Params| {
        let id = services.tickets.callers().id(params.text(name)?);
        id.map_err(|why| params.refuse(name, why)).ok()
    };
    let (caller, alias) = (read("caller", params), read("caller_id", params));
    match (&caller, &alias) {
        (Some(caller), Some(alias)) if caller != alias => {
            params.refuse("caller_id", "names another caller than `caller`");
        }
        (None, None)
            if !is_found_otherwise && ["caller", "caller_id"].iter().all(|name| params.text(name).is_none()) =>
        {
            params.refuse("caller", "is required; it says whose tickets")
        }
        _ => {}
    }
    caller.or(alias)
}

/// The tickets that fit a page, and where the next begins if that is not all.
fn one_page(found: &[Found]) -> Result<(Vec<TicketView>, Option<Item>), Error> {
    let mut tickets = Vec::with_capacity(found.len());
    let mut bytes = 0;
    let mut last: Option<Item> = None;
    for Found { item, cursor } in found {
        bytes += item.size();
        if let (Some(last), true) = (last, bytes > PAGE_BYTES) {
            return Ok((tickets, Some(last)));
        }
        tickets.extend(Ticket::from_item(item)?.map(TicketView::from));
        last = Some(cursor.clone());
    }
    Ok((tickets, None))
}

async fn take_over(
    State(services): State<Services>,
    caller: Caller,
    correlation: CorrelationId,
    body: JsonText,
) -> Result<impl IntoResponse, Problem> {
    let fields = body.object()?;
    let list = fields.get("tickets").and_then(Value::as_array).filter(|list| (1..=IMPORTED).contains(&list.len()));
    let Some(list) = list else {
        return Err(Problem::invalid_field("tickets", format!("must be a list of 1 to {IMPORTED} tickets")));
    };
    let mut errors = Vec::new();
    let mut tickets: Vec<Ticket> = Vec::new();
    for (place, value) in list.iter().enumerate() {
        let at = format!("tickets[{place}]");
        match import::ticket(&at, value, services.tickets.callers()) {
            Ok(ticket) if tickets.iter().any(|known| known.ticket_id == ticket.ticket_id) => {
                errors.push(FieldError::new(format!("{at}.ticket_id"), "is there twice"));
            }
            Ok(ticket) => match table().check_item(&ticket.to_item()) {
                Ok(()) => tickets.push(ticket),
                Err(error) => errors.push(FieldError::new(at, error.to_string())),
            },
            Err(more) => errors.extend(more),
        }
    }
    if !errors.is_empty() {
        return Err(Problem::invalid(errors));
    }
    let mut existing = Vec::new();
    let mut writes = Vec::new();
    for ticket in tickets {
        if services.tickets.get(&ticket.ticket_id).await?.is_some() {
            existing.push(ticket.ticket_id);
        } else {
            writes.push(Write::insert(table(), services.tickets.taken_over(ticket).to_item()));
        }
    }
    let imported = writes.len();
    if imported > 0 {
        let action = Action::new("ticket.import", "ticket", "many").details(json!({ "imported": imported }));
        services.audit.record_with(&caller.name(), &correlation.0, action, writes).await?;
    }
    Ok(Json(StatusCode::OK, ImportAnswer { imported, existing }))
}

fn request_ids(services: &Services, seed: Option<Extension<IdempotencySeed>>) -> RequestIds<'_> {
    match seed {
        Some(Extension(seed)) => RequestIds::Seeded(seed),
        None => RequestIds::Fresh(&*services.ids, services.clock.now()),
    }
}

/// S004-20: whatever is no UUID is a mistake, not an unknown ticket.
fn read_id(text: &str) -> Result<String, Vec<FieldError>> {
    let id = Uuid::try_parse(text).ok().filter(|_| text.len() == 36);
    id.map(|id| id.to_string()).ok_or_else(|| vec![FieldError::new("ticket_id", "must be a UUID")])
}

/// What the path and the body say, or everything that is wrong with either.
fn both<T>(id: Result<String, Vec<FieldError>>, body: Result<T, Vec<FieldError>>) -> Result<(String, T), Problem> {
    match (id, body) {
        (Ok(id), Ok(body)) => Ok((id, body)),
        (id, body) => {
            let errors = [id.err(), body.err()];
            Err(Problem::invalid(errors.into_iter().flatten().flatten().collect()))
        }
    }
}
