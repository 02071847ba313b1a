//! `/transfers`: make, answer, look at.

use axum::Extension;
use axum::extract::{Path, State};
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;

use super::{Answer, NewTransfer, Transfer};
use crate::app::Services;
use crate::business::origin::{Origin, Reader, path_id, request_ids};
use crate::http::{CorrelationId, IdempotencySeed, Json, JsonText, Problem, Route};
use crate::tokens::{Caller, Scope};

const ID: &str = "transferRequestId";
const MAY_WRITE: &[Scope] = &[Scope::Ingest, Scope::Operate];

#[must_use]
pub fn routes() -> Vec<Route> {
    vec![
        Route::new(Method::POST, "/transfers", "Offer a product to another user", create)
            .scopes(MAY_WRITE)
            .body::<TransferBody>()
            .answer::<Transfer>(201, "The transfer, which is pending until it is answered or expires"),
        Route::new(Method::GET, "/transfers/{transferRequestId}", "One transfer", get)
            .scopes(&[Scope::Read, Scope::Operate, Scope::Ingest])
            .answer::<Transfer>(200, "The transfer"),
        ended(Route::new(Method::POST, "/transfers/{transferRequestId}/accept", "Accept a transfer", accept)),
        ended(Route::new(Method::POST, "/transfers/{transferRequestId}/reject", "Reject a transfer", reject)),
        ended(Route::new(Method::POST, "/transfers/{transferRequestId}/cancel", "Withdraw a transfer", cancel)),
    ]
}

fn ended(route: Route) -> Route {
    route
        .scopes(MAY_WRITE)
        .answer::<Transfer>(200, "The transfer; the same answer again changes nothing")
        .answer_empty(409, "The transfer has ended in another way")
}

#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "describes the body, which is read field by field to name every mistake")]
struct TransferBody {
    /// A UUID.
    product_id: String,
    /// A UUID.
    from_user_id: String,
    /// A UUID, of somebody else.
    to_user_id: String,
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
    let new = NewTransfer {
        product_id: reader.guid("productId"),
        from_user_id: reader.guid("fromUserId"),
        to_user_id: reader.guid("toUserId"),
    };
    if !new.to_user_id.is_empty() && new.from_user_id == new.to_user_id {
        reader.wrong("toUserId", "must be another user than fromUserId");
    }
    reader.leave_out(&[ID, "status", "expiresAt", "createdAt"]);
    reader.finish()?;
    let ids = request_ids(&services, seed);
    let by = caller.name();
    let origin = Origin::of(&by, &correlation);
    let transfer = services.business.transfers.create(new, origin, (ids.uuid(0), ids.uuid(1))).await?;
    let location = HeaderValue::from_str(&format!("/transfers/{}", transfer.transfer_request_id)).ok();
    let mut response = Json(StatusCode::CREATED, transfer).into_response();
    response.headers_mut().extend(location.map(|location| (header::LOCATION, location)));
    Ok(response)
}

async fn get(State(services): State<Services>, Path(id): Path<String>) -> Result<impl IntoResponse, Problem> {
    let transfer = services.business.transfers.get(&path_id(ID, &id)?).await?;
    Ok(Json(StatusCode::OK, transfer.ok_or_else(super::not_found)?))
}

/// The three answers differ in one word.
macro_rules! answers {
    ($($name:ident => $answer:expr;)*) => {$(
        async fn $name(
            State(services): State<Services>,
            caller: Caller,
            correlation: CorrelationId,
            seed: Option<Extension<IdempotencySeed>>,
            Path(id): Path<String>,
        ) -> Result<impl IntoResponse, Problem> {
            let id = path_id(ID, &id)?;
            let event_id = request_ids(&services, seed).uuid(0);
            let by = caller.name();
            let origin = Origin::of(&by, &correlation);
            Ok(Json(StatusCode::OK, services.business.transfers.answer(&id, $answer, origin, event_id).await?))
        }
    )*};
}

answers! {
    accept => Answer::Accept;
    reject => Answer::Reject;
    cancel => Answer::Cancel;
}
