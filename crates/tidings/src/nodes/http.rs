//! `GET /nodes`: who works on this store, and who has what.

use axum::extract::State;
use axum::http::{Method, StatusCode};
use axum::response::IntoResponse;
use schemars::JsonSchema;
use serde::Serialize;

use crate::app::Services;
use crate::http::{Json, Route};
use crate::tokens::Scope;

#[must_use]
pub fn routes() -> Vec<Route> {
    vec![
        Route::new(Method::GET, "/nodes", "The servers that share this store, and what each of them has", list)
            .scopes(&[Scope::Read])
            .answer::<NodeList>(200, "As this node sees them; on the embedded store it is the only one"),
    ]
}

#[derive(Serialize, JsonSchema)]
struct NodeList {
    items: Vec<NodeView>,
    cursor: Option<String>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct NodeView {
    id: String,
    address: String,
    /// The one that answers.
    here: bool,
    /// Queues and subscriptions whose messages it hands out.
    entities: Vec<String>,
    /// What it does for all: monitors, sources.
    work: Vec<String>,
}

async fn list(State(services): State<Services>) -> impl IntoResponse {
    let mut named: Vec<(String, String)> = Vec::new();
    for line in services.bus.lines().iter().filter(|line| !line.is_of_dead_letters()) {
        named.push((crate::bus::fence::Fence::lease(&line.entity), line.path.clone()));
    }
    let items = match &services.nodes {
        None => vec![NodeView {
            id: "embedded".to_owned(),
            address: services.config.public_url.clone(),
            here: true,
            entities: named.into_iter().map(|(_, path)| path).collect(),
            work: Vec::new(),
        }],
        Some(nodes) => {
            let has =
                |id: &str, lease: &str| nodes.lease_of(lease).is_some_and(|lease| lease.owner.as_deref() == Some(id));
            let alive = nodes.alive().into_iter().map(|(id, address)| NodeView {
                here: id == nodes.me,
                entities: named.iter().filter(|(lease, _)| has(&id, lease)).map(|(_, path)| path.clone()).collect(),
                work: nodes
                    .leases("work/")
                    .into_iter()
                    .filter(|lease| has(&id, lease))
                    .filter_map(|lease| lease.strip_prefix("work/").map(ToOwned::to_owned))
                    .collect(),
                id,
                address,
            });
            alive.collect()
        }
    };
    Json(StatusCode::OK, NodeList { items, cursor: None })
}
