//! The push server's routes: ntfy's paths, with our tokens.

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{FromRequestParts, Path, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use bytes::Bytes;
use futures_util::stream::unfold;
use http_body_util::{BodyExt, LengthLimitError, Limited};

use super::access::{self, Wish};
use super::params::Params;
use super::publish::{self, Draft, JSON_BYTES, MESSAGE_BYTES};
use super::refusal::Refusal;
use super::subscribe::{self, Format, Subscription, Wanted};
use super::{Message, Push};
use crate::app::Services;
use crate::http::{CorrelationId, FailedLogins, Peer, Rates, check_head};
use crate::tokens::{Token, while_held};

/// What the handlers share.
struct Desk {
    services: Services,
    push: Arc<Push>,
    failed_logins: FailedLogins,
    rates: Rates,
}

type Shared = State<Arc<Desk>>;

/// The routes of the push server.
pub fn router(services: Services, push: Arc<Push>) -> Router {
    let limits = &services.config.limits;
    let window = Duration::from_secs(limits.failed_auth_window_seconds);
    let failed_logins = FailedLogins::new(limits.failed_auth_attempts, window);
    let rates = Rates::new(limits.requests_per_second);
    let desk = Arc::new(Desk { services, push, failed_logins, rates });
    // `get` takes HEAD, too: whoever only looks at a link must not publish by it.
    let trigger = || get(publish_text).post(publish_text).put(publish_text).head(no_trigger).fallback(no_trigger);
    Router::new()
        .route("/", post(publish_json).put(publish_json))
        .route("/v1/health", get(health))
        .route("/{topic}", post(publish_text).put(publish_text))
        .route("/{topic}/publish", trigger())
        .route("/{topic}/send", trigger())
        .route("/{topic}/trigger", trigger())
        .route("/{topic}/auth", get(auth))
        .route("/{topic}/json", get(|desk, topic, request| listen(desk, topic, request, Format::Json)))
        .route("/{topic}/sse", get(|desk, topic, request| listen(desk, topic, request, Format::Sse)))
        .route("/{topic}/raw", get(|desk, topic, request| listen(desk, topic, request, Format::Raw)))
        .fallback(|| async { Refusal::not_found() })
        .method_not_allowed_fallback(|| async { Refusal::method() })
        .layer(from_fn_with_state(Arc::clone(&desk), around))
        .with_state(desk)
}

/// Before and after every request: who follows what, and that pages of other sites may ask, as ntfy lets them. They have
/// no token unless somebody gave them one.
async fn around(State(desk): Shared, mut request: Request, next: Next) -> Response {
    let services = &desk.services;
    let correlation = CorrelationId::of(request.headers(), &*services.ids, services.clock.now());
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    request.extensions_mut().insert(correlation.clone());
    let preflight = method == Method::OPTIONS;
    let (parts, body) = request.into_parts();
    let mut response = match check_head(&parts) {
        Err(problem) => Refusal::head_too_large(&problem.detail).into_response(),
        Ok(()) if preflight => StatusCode::OK.into_response(),
        Ok(()) => next.run(Request::from_parts(parts, body)).await,
    };
    let headers = response.headers_mut();
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
    if preflight {
        headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, PUT, POST"));
        headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static("Authorization, *"));
    }
    if let Ok(value) = HeaderValue::from_str(&correlation.0) {
        headers.insert("x-correlation-id", value);
    }
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    let status = response.status().as_u16();
    tracing::debug!(%method, path, status, correlation_id = correlation.0, "push server answered");
    response
}

async fn health() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/json")], r#"{"healthy":true}"#)
}

/// The topics in a path, as they stand there.
struct Topics(String);

impl<S: Send + Sync> FromRequestParts<S> for Topics {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refusal> {
        // All that can be wrong with one text in a path.
        let not_text = |_| Refusal::topic("it must be UTF-8");
        Path::from_request_parts(parts, state).await.map(|Path(topics)| Self(topics)).map_err(not_text)
    }
}

/// Says what the path takes; the router would count HEAD among it.
async fn no_trigger() -> impl IntoResponse {
    ([(header::ALLOW, "GET,POST,PUT")], Refusal::method())
}

async fn publish_text(State(desk): Shared, Topics(topic): Topics, request: Request) -> Result<Response, Refusal> {
    let asked = Asked::by(&desk, request, Refusal::message_too_large(MESSAGE_BYTES), MESSAGE_BYTES).await?;
    desk.publish(&asked, publish::from_text(&topic, &asked.params, &asked.body)).await
}

async fn publish_json(State(desk): Shared, request: Request) -> Result<Response, Refusal> {
    let asked = Asked::by(&desk, request, Refusal::json_too_large(JSON_BYTES), JSON_BYTES).await?;
    desk.publish(&asked, publish::from_json(&asked.params, &asked.body)).await
}

/// Whether one may listen to the topics.
async fn auth(State(desk): Shared, Topics(topics): Topics, request: Request) -> Result<Response, Refusal> {
    let asked = Asked::by(&desk, request, Refusal::not_found(), 0).await?;
    for topic in subscribe::topics(&topics)? {
        desk.permit(Wish::Subscribe, &topic, &asked)?;
    }
    Ok(([(header::CONTENT_TYPE, "application/json")], r#"{"success":true}"#).into_response())
}

async fn listen(
    State(desk): Shared,
    Topics(topics): Topics,
    request: Request,
    format: Format,
) -> Result<Response, Refusal> {
    let asked = Asked::by(&desk, request, Refusal::not_found(), 0).await?;
    let topics = subscribe::topics(&topics)?;
    for topic in &topics {
        desk.permit(Wish::Subscribe, topic, &asked)?;
    }
    let wanted = Wanted::read(topics, format, &asked.params, desk.services.clock.now())?;
    let stop = desk.services.workers.stopping();
    let subscription = Subscription::start(Arc::clone(&desk.push), wanted, stop).await?;
    let pieces = unfold(subscription, |mut subscription| async move {
        let piece = subscription.next().await?;
        Some((Ok::<_, Infallible>(piece), subscription))
    });
    // Who needed no token to listen cannot lose it.
    let body = match &asked.token {
        Some(token) => Body::from_stream(while_held(&desk.services, &token.id, pieces)),
        None => Body::from_stream(pieces),
    };
    Ok(([(header::CONTENT_TYPE, format.content_type())], body).into_response())
}

impl Desk {
    async fn publish(&self, asked: &Asked, draft: Result<Draft, Refusal>) -> Result<Response, Refusal> {
        // A stranger learns nothing about what would be wrong with the message.
        if asked.token.is_none() && self.services.config.push.open_topics.is_empty() {
            return Err(Refusal::unauthorized());
        }
        let draft = draft?;
        self.permit(Wish::Publish, &draft.topic, asked)?;
        let message = self.push.publish(self.push.new_id(), draft, &asked.correlation.0).await?;
        Ok(answer(&message))
    }

    fn permit(&self, wish: Wish, topic: &str, asked: &Asked) -> Result<(), Refusal> {
        let config = &self.services.config.push;
        if access::may(wish, topic, asked.token.as_deref(), &config.open_topics, &config.access) {
            return Ok(());
        }
        Err(if asked.token.is_some() { Refusal::forbidden() } else { Refusal::unauthorized() })
    }

    /// The token of the request; `None` if there is none. One that is not good is refused even where none is needed.
    async fn recognise(
        &self,
        headers: &HeaderMap,
        params: &Params,
        peer: Option<IpAddr>,
    ) -> Result<Option<Arc<Token>>, Refusal> {
        let header = headers.get(header::AUTHORIZATION).map(HeaderValue::as_bytes);
        let Some(given) = access::token_of(header, params.get(&["auth"])) else { return Ok(None) };
        let caller = match given {
            Some(given) => self.services.tokens.recognise(&given).await?,
            None => None,
        };
        let now = self.services.clock.monotonic();
        match (caller, peer) {
            (Some(caller), _) if self.rates.allow(&caller.token.id, now) => Ok(Some(caller.token)),
            (Some(_), _) => Err(Refusal::too_many_requests()),
            (None, None) => Err(Refusal::unauthorized()),
            (None, Some(peer)) => match self.failed_logins.blocked(peer, now) {
                Some(seconds) => Err(Refusal::too_many_failures(seconds)),
                None => {
                    self.failed_logins.note(peer, now);
                    Err(Refusal::unauthorized())
                }
            },
        }
    }
}

/// A request that was read.
struct Asked {
    params: Params,
    token: Option<Arc<Token>>,
    correlation: CorrelationId,
    body: Bytes,
}

impl Asked {
    /// Reads it; a body of more than `most` bytes is answered with `too_large`.
    async fn by(desk: &Desk, request: Request, too_large: Refusal, most: usize) -> Result<Self, Refusal> {
        let (parts, body) = request.into_parts();
        let params = Params::read(&parts.headers, parts.uri.query())?;
        let peer = parts.extensions.get::<Peer>().map(|peer| peer.0.ip());
        let token = desk.recognise(&parts.headers, &params, peer).await?;
        let correlation =
            parts.extensions.get::<CorrelationId>().cloned().unwrap_or(CorrelationId::alone(String::new()));
        let body = if most == 0 {
            Bytes::new()
        } else {
            let patience = Duration::from_secs(desk.services.config.limits.request_timeout_seconds);
            match tokio::time::timeout(patience, Limited::new(body, most).collect()).await {
                Ok(Ok(body)) => body.to_bytes(),
                Ok(Err(error)) if error.is::<LengthLimitError>() => return Err(too_large),
                Ok(Err(_)) | Err(_) => return Err(Refusal::timed_out()),
            }
        };
        Ok(Self { params, token, correlation, body })
    }
}

fn answer(message: &Message) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], format!("{}\n", message.to_json())).into_response()
}
