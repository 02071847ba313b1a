//! The HTTP face of the bus: the shape of the Service Bus REST API, batches, and management.

pub mod broker_properties;
pub mod desk;
mod manage;
mod receive;
pub mod resubmit;
mod send;
mod settle;
pub mod view;

pub use receive::WAIT_SECONDS;

use axum::extract::{FromRequestParts, RawPathParams};
use axum::http::request::Parts;
use axum::http::{StatusCode, Uri};
use percent_encoding::percent_decode_str;

use super::BusError;
use super::line::LineError;
use super::path::{DEAD_LETTERS, Path};
use crate::http::{Passed, Problem, Route};
use crate::nodes::forward::UNKNOWN;

#[must_use]
pub fn routes() -> Vec<Route> {
    let mut routes = manage::routes();
    routes.extend(send::routes());
    routes.extend(receive::routes());
    routes.extend(settle::routes());
    routes.extend(desk::routes());
    routes.extend(resubmit::routes());
    routes
}

/// The same path in each of the four places messages are received from.
macro_rules! paths {
    ($rest:literal) => {
        [
            concat!("/bus/{entity}", $rest),
            concat!("/bus/{entity}/$deadletterqueue", $rest),
            concat!("/bus/{entity}/subscriptions/{subscription}", $rest),
            concat!("/bus/{entity}/subscriptions/{subscription}/$deadletterqueue", $rest),
        ]
    };
}
pub(crate) use paths;

/// The address with the words of the bus as the routes spell them, if it spells them otherwise: `Subscriptions` and
/// `$DeadLetterQueue` are what many clients write.
#[must_use]
pub fn respell(uri: &Uri) -> Option<Uri> {
    let path = uri.path();
    path.strip_prefix("/bus/")?;
    let words = ["subscriptions", DEAD_LETTERS];
    let parts: Vec<&str> = path
        .split('/')
        // The third part is a queue's or topic's name, whatever it is.
        .enumerate()
        .map(|(place, part)| {
            // Many write the dollar as %24.
            let decoded = percent_decode_str(part).decode_utf8_lossy();
            let known = words.iter().find(|word| place > 2 && decoded.eq_ignore_ascii_case(word));
            known.copied().unwrap_or(part)
        })
        .collect();
    let respelt = parts.join("/");
    if respelt == path {
        return None;
    }
    let query = uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    format!("{respelt}{query}").parse().ok()
}

/// What the path of a request names.
pub struct Place {
    pub path: Path,
    params: RawPathParams,
}

impl Place {
    /// Another part of the path.
    pub fn part(&self, name: &str) -> &str {
        named(&self.params, name).unwrap_or_default()
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Place {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let dead = parts.extensions.get::<Passed>().is_some_and(|passed| passed.path.contains(DEAD_LETTERS));
        let params = RawPathParams::from_request_parts(parts, state).await;
        let params = params.map_err(|_| Problem::bad_request("the path cannot be read"))?;
        let part = |name: &str| named(&params, name).map(ToOwned::to_owned);
        let path = Path { entity: part("entity").unwrap_or_default(), subscription: part("subscription"), dead };
        Ok(Self { path, params })
    }
}

fn named<'a>(params: &'a RawPathParams, name: &str) -> Option<&'a str> {
    params.iter().find(|(known, _)| *known == name).map(|(_, value)| value)
}

impl From<BusError> for Problem {
    fn from(error: BusError) -> Self {
        let detail = error.to_string();
        match error {
            // As Service Bus answers when there is no such entity.
            BusError::NoEntity(_) => Self::new(StatusCode::GONE, "gone", detail),
            BusError::OtherKind(_) | BusError::TooMany(_) | BusError::Ambiguous(_) => Self::conflict(detail),
            BusError::WrongKind(_) => Self::bad_request(detail),
            BusError::TooLarge(_) => Self::too_large(detail),
            // As Service Bus answers when a quota is exceeded.
            BusError::Full(_) => Self::new(StatusCode::FORBIDDEN, "quota-exceeded", detail),
            BusError::Invalid(errors) => Self::invalid(errors),
            BusError::Line(error) => error.into(),
            BusError::Store(error) => error.into(),
        }
    }
}

impl From<LineError> for Problem {
    fn from(error: LineError) -> Self {
        let detail = error.to_string();
        match error {
            LineError::Gone => Self::new(StatusCode::GONE, "gone", detail),
            LineError::Elsewhere => Self::new(StatusCode::SERVICE_UNAVAILABLE, "elsewhere", detail).retry_after(1),
            LineError::Unknown => Self::new(StatusCode::SERVICE_UNAVAILABLE, UNKNOWN, detail),
            LineError::LockLost => Self::new(StatusCode::NOT_FOUND, "lock-lost", detail),
            LineError::AlreadyDead | LineError::NotDeferred => Self::conflict(detail),
            LineError::Store(error) => error.into(),
        }
    }
}
