//! The dashboard: pages for people, made on the server, over the same functions that the API's handlers call.
//!
//! `door` stands before every page (session, scope, parameters, forms, headers); `layout` is what all pages share,
//! `parts` what many do; then one file for each subject. Nothing here needs a script to be read: `assets/app.js` only
//! makes times local, lists live and the rule editor talk back.

mod alerts;
mod assets;
mod audit;
mod bus;
mod chart;
mod dead;
mod door;
mod events;
mod find;
mod forms;
mod inbox;
mod incidents;
mod layout;
mod live;
mod login;
mod messages;
mod overview;
mod parts;
mod rules;
mod schedule_form;
mod schedules;
pub mod session;
mod steps;
mod tickets;
mod tokens;
mod trace;

use std::sync::Arc;

use axum::Router;
use axum::response::Response;
use axum::routing::{any, get};

use crate::app::Services;
use crate::http::{self, Problem, Route};

use door::{Doors, Page, see_other};

/// The API over `routes`, and the dashboard beside it.
pub fn with_pages(services: &Services, routes: Vec<Route>) -> Router {
    http::router(services.clone(), routes).merge(pages(services.clone()))
}

fn pages(services: Services) -> Router {
    let doors = Doors::new(services.clone());
    let mut router = Router::new();
    let pages = [
        vec![
            Page::public("/", get(to_dashboard)),
            Page::public("/ui", get(to_dashboard)),
            Page::public("/ui/{*page}", any(nowhere)),
        ],
        assets::pages(),
        login::pages(),
        overview::pages(),
        live::pages(),
        events::pages(),
        trace::pages(),
        find::pages(),
        messages::pages(),
        alerts::pages(),
        inbox::pages(),
        dead::pages(),
        bus::pages(),
        incidents::pages(),
        tickets::pages(),
        rules::pages(),
        schedules::pages(),
        tokens::pages(),
        audit::pages(),
    ];
    for page in pages.into_iter().flatten() {
        let handler = page.handler.clone();
        let door = Arc::new(doors.for_page(&page));
        router = router.route(page.path, handler.layer(axum::middleware::from_fn_with_state(door, door::pass)));
    }
    router.with_state(services)
}

async fn to_dashboard() -> Response {
    see_other("/ui/")
}

/// Whoever mistypes an address, or follows an old link, is told so on a page.
async fn nowhere() -> Problem {
    Problem::not_found("there is no page at this address; it may have moved, or been mistyped")
}
