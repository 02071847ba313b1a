//! `/service-requests`: make, change, look at.

use axum::Extension;
use axum::extract::{Path, State};
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;

use super::ServiceRequest;
use crate::app::Services;
use crate::business::origin::{Origin, Reader, path_id, request_ids};
use crate::http::{CorrelationId, IdempotencySeed, Json, JsonText, Problem, Route};
use crate::tokens::{Caller, Scope};

const ID: &str = "serviceRequestId";

#[must_use]
pub fn routes() -> Vec<Route> {
    vec![
        Route::new(Method::POST, "/service-requests", "Make a service request of a user", create)
            .scopes(&[Scope::Ingest, Scope::Operate])
            .body::<RequestBody>()
            .answer::<ServiceRequest>(201, "The service request, which is open"),
        Route::new(Method::GET, "/service-requests/{serviceRequestId}", "One service request", get)
            .scopes(&[Scope::Read, Scope::Operate, Scope::Ingest])
            .answer::<ServiceRequest>(200, "The service request"),
        Route::new(
            Method::PATCH,
            "/service-requests/{serviceRequestId}",
            "Change the status; its user hears of it",
            patch,
        )
        .scopes(&[Scope::Operate, Scope::Ingest])
        .body::<StatusBody>()
        .answer::<ServiceRequest>(200, "The service request; the status it has already changes nothing"),
    ]
}

#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "describes the body, which is read field by field to name every mistake")]
struct RequestBody {
    /// A UUID.
    user_id: String,
    description: String,
}

#[derive(JsonSchema)]
#[expect(dead_code, reason = "describes the body, which is read field by field to name every mistake")]
struct StatusBody {
    /// Any name of at most 256 characters.
    status: String,
}

async fn create(
    State(services): State<Services>,
    caller: Caller,
    correlation: CorrelationId,
    seed: Option<Extension<IdempotencySeed>>,
    body: JsonText,
) -> Result<Response, Problem> {
    let fields = body.object()?;
    let mut reader = Reader::new(&fields);
    let (user_id, description) = (reader.guid("userId"), reader.words("description"));
    reader.leave_out(&[ID, "status", "createdAt", "updatedAt"]);
    reader.finish()?;
    let ids = request_ids(&services, seed);
    let by = caller.name();
    let origin = Origin::of(&by, &correlation);
    let request =
        services.business.service_requests.create(user_id, description, origin, (ids.uuid(0), ids.uuid(1))).await?;
    let location = HeaderValue::from_str(&format!("/service-requests/{}", request.service_request_id)).ok();
    let mut response = Json(StatusCode::CREATED, request).into_response();
    response.headers_mut().extend(location.map(|location| (header::LOCATION, location)));
    Ok(response)
}

async fn get(State(services): State<Services>, Path(id): Path<String>) -> Result<impl IntoResponse, Problem> {
    let request = services.business.service_requests.get(&path_id(ID, &id)?).await?;
    Ok(Json(StatusCode::OK, request.ok_or_else(super::not_found)?))
}

async fn patch(
    State(services): State<Services>,
    caller: Caller,
    correlation: CorrelationId,
    Path(id): Path<String>,
    body: JsonText,
) -> Result<impl IntoResponse, Problem> {
    let fields = body.object()?;
    let mut reader = Reader::new(&fields);
    let id = reader.path_id(ID, &id);
    let status = reader.name("status");
    reader.finish()?;
    let by = caller.name();
    let origin = Origin::of(&by, &correlation);
    let event_id = services.ids.uuid(services.clock.now());
    let request = services.business.service_requests.set_status(&id, &status, origin, event_id).await?;
    Ok(Json(StatusCode::OK, request))
}
