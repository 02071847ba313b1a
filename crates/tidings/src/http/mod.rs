//! HTTP in general: what every call has in common. A request passes the `gate` (correlation, token, scope,
//! parameters, body, idempotency) before its handler sees it; routes are declared in `route`, and everything else
//! that is said about them follows from there.

pub(crate) mod body;
pub mod collector;
mod content;
pub mod correlation;
pub mod csv;
mod cursor;
mod extract;
mod finish;
mod gate;
mod health;
mod idempotency;
mod kept;
mod metrics;
mod openapi;
pub mod paging;
mod params;
mod problem;
mod route;
mod server;
mod throttle;
mod unread;

pub use body::read as read_body;
pub use content::Content;
pub use correlation::{
    ALIAS as CORRELATION_ALIAS, CorrelationId, HEADER as CORRELATION_HEADER, param as correlation_param,
};
pub use cursor::Sealer;
pub use extract::{Json, JsonText, Passed, Whole, json, json_text, media_type};
pub use finish::see_through;
pub use gate::{Gatekeeper, Peer, bearer_of, check_head};
pub use idempotency::{
    Claim, HEADER as IDEMPOTENCY_KEY, Idempotency, IdempotencySeed, RequestIds, table as idempotency_table,
};
pub use metrics::{CommitMetrics, Metrics};
pub use params::{End, Params, not_text};
pub use problem::Problem;
pub use route::{Access, BodyRule, OneOrMany, Param, Route};
pub use server::{Server, connections_within_file_limit, raise_file_limit};
pub use throttle::{FailedLogins, Rates};

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use axum::routing::{MethodFilter, on_service};
use tower_service::Service;

use crate::app::Services;

/// Everything the API offers.
#[must_use]
pub fn routes() -> Vec<Route> {
    let mut routes = health::routes();
    routes.extend(crate::events::http::routes());
    routes.extend(crate::rules::http::routes());
    routes.extend(crate::trace::http::routes());
    routes.extend(crate::messages::http::routes());
    routes.extend(crate::centre::http::routes());
    routes.extend(crate::inbox::http::routes());
    routes.extend(crate::alerts::http::routes());
    routes.extend(crate::audit::http::routes());
    routes.extend(crate::tokens::http::routes());
    routes.extend(crate::schedules::http::routes());
    routes.extend(crate::sources::http::routes());
    routes.extend(crate::bus::http::routes());
    routes.extend(crate::incidents::http::routes());
    routes.extend(crate::tickets::http::routes());
    routes.extend(crate::business::routes());
    routes.extend(crate::admin::routes());
    routes.extend(crate::nodes::http::routes());
    routes
}

/// The description of the whole API.
#[must_use]
pub fn openapi() -> serde_json::Value {
    openapi::describe(&routes())
}

/// The router over `routes`, each behind its gate.
pub fn router(services: Services, routes: Vec<Route>) -> Router {
    let gatekeeper = Arc::new(Gatekeeper::new(services.clone()));
    let mut router = Router::new();
    for route in routes {
        let method = MethodFilter::try_from(route.method.clone()).expect("routes use ordinary methods");
        let gate = gate::Gate::new(Arc::clone(&gatekeeper), &route);
        router = router.route(route.path, on_service(method, gate::Gated(Arc::new(gate))));
    }
    let (not_found, not_allowed) = (Arc::clone(&gatekeeper), gatekeeper);
    let router = router
        .method_not_allowed_fallback(move |request| async move { not_allowed.refuse(&request, gate::Refusal::Method) });
    let respelt = router.clone().with_state(services.clone());
    router
        .fallback(move |request: Request| {
            let (not_found, respelt) = (Arc::clone(&not_found), respelt.clone());
            async move { elsewhere(request, &not_found, respelt).await }
        })
        .with_state(services)
}

/// A request that no route takes as it is spelt: on the bus, the case of some words does not count.
async fn elsewhere(mut request: Request, keeper: &Gatekeeper, mut respelt: Router) -> Response {
    let Some(uri) = crate::bus::http::respell(request.uri()) else {
        return keeper.refuse(&request, gate::Refusal::NotFound);
    };
    let mut asked = Request::new(Body::empty());
    (*asked.uri_mut(), *asked.headers_mut()) = (uri.clone(), request.headers().clone());
    *request.uri_mut() = uri;
    let answer = respelt.call(request).await.unwrap_or_else(|never| match never {});
    // Whatever passed a gate has a correlation id.
    let nowhere = !answer.headers().contains_key(&correlation::HEADER);
    if nowhere { keeper.refuse(&asked, gate::Refusal::NotFound) } else { answer }
}
