//! The door before every page: who is there, may they come in, with which parameters, is the form one of ours. On the
//! way out it turns problems into pages and puts on the headers that keep a browser from doing harm.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{FromRequestParts, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::MethodRouter;
use bytes::Bytes;

use super::layout;
use super::parts::encode;
use super::session::{self, Session, read_cookie};
use crate::app::Services;
use crate::http::{CorrelationId, FailedLogins, Params, Passed, Problem, not_text, read_body, see_through};
use crate::tokens::{Caller, Scope};

/// Scripts, styles and pictures of our own only; nothing inline, nothing from elsewhere, no frames.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      form-action 'self'; base-uri 'none'; frame-ancestors 'none'";
const THEME: &str = "tidings_theme";

/// One page, or what belongs to one.
pub struct Page {
    pub path: &'static str,
    pub access: Access,
    pub params: &'static [&'static str],
    /// Answered by the node that has the entity of the bus which its address or its form names.
    pub at_owner: bool,
    pub handler: MethodRouter<Services>,
}

/// Who may see a page.
#[derive(Debug, Clone, Copy)]
pub enum Access {
    /// Everybody, signed in or not.
    Public,
    /// Everybody who is signed in, whatever their token allows.
    Anyone,
    /// Whoever has any of these scopes; `admin` always may.
    Scopes(&'static [Scope]),
}

impl Page {
    pub fn new(path: &'static str, scopes: &'static [Scope], handler: MethodRouter<Services>) -> Self {
        Self { path, access: Access::Scopes(scopes), params: &[], at_owner: false, handler }
    }

    pub fn anyone(path: &'static str, handler: MethodRouter<Services>) -> Self {
        Self { path, access: Access::Anyone, params: &[], at_owner: false, handler }
    }

    pub fn public(path: &'static str, handler: MethodRouter<Services>) -> Self {
        Self { path, access: Access::Public, params: &[], at_owner: false, handler }
    }

    #[must_use]
    pub fn params(mut self, params: &'static [&'static str]) -> Self {
        self.params = params;
        self
    }

    #[must_use]
    pub fn at_owner(mut self) -> Self {
        self.at_owner = true;
        self
    }
}

/// What all doors share.
pub struct Doors {
    services: Services,
    guesses: Arc<FailedLogins>,
}

pub struct Door {
    services: Services,
    guesses: Arc<FailedLogins>,
    path: &'static str,
    access: Access,
    params: &'static [&'static str],
    at_owner: bool,
}

/// Unknown tokens, counted by address.
#[derive(Clone)]
pub struct Guesses(pub Arc<FailedLogins>);

/// Who looks at a page.
#[derive(Clone)]
pub struct Visitor {
    pub session: Session,
    pub theme: Theme,
    /// The address of the page, to come back to.
    pub here: String,
}

/// Light, dark, or whatever the system says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Theme {
    #[default]
    System,
    Light,
    Dark,
}

/// The fields of a form; of several with one name, all.
#[derive(Debug, Clone, Default)]
pub struct Form(HashMap<String, Vec<String>>);

impl Doors {
    #[must_use]
    pub fn new(services: Services) -> Self {
        let limits = &services.config.limits;
        let window = Duration::from_secs(limits.failed_auth_window_seconds);
        let guesses = Arc::new(FailedLogins::new(limits.failed_auth_attempts, window));
        Self { services, guesses }
    }

    #[must_use]
    pub fn for_page(&self, page: &Page) -> Door {
        let (services, guesses) = (self.services.clone(), Arc::clone(&self.guesses));
        let Page { path, access, params, at_owner, .. } = *page;
        Door { services, guesses, path, access, params, at_owner }
    }
}

/// Lets a request through to its page, or answers it.
pub async fn pass(State(door): State<Arc<Door>>, request: Request, next: Next) -> Response {
    let services = &door.services;
    let correlation = CorrelationId::of(request.headers(), &*services.ids, services.clock.now());
    let theme = Theme::of(request.headers());
    let visitor = match session::of(services, request.headers()).await {
        Ok(session) => session.map(|session| Visitor { session, theme, here: here(&request) }),
        Err(error) => return finish(layout::problem(None, theme, &error.into(), &correlation), &correlation),
    };
    let known = visitor.clone();
    let response = door.enter(request, visitor, theme, &correlation, next).await;
    let response = response.unwrap_or_else(IntoResponse::into_response);
    let unsaid = plain_refusal(&response);
    let response = match response.extensions().get::<Problem>().or(unsaid.as_ref()) {
        Some(problem) => layout::problem(known.as_ref(), theme, problem, &correlation),
        None => response,
    };
    finish(response, &correlation)
}

impl Door {
    async fn enter(
        &self,
        request: Request,
        visitor: Option<Visitor>,
        theme: Theme,
        correlation: &CorrelationId,
        next: Next,
    ) -> Result<Response, Problem> {
        let (mut parts, body) = request.into_parts();
        match (self.access, &visitor) {
            (Access::Public, _) | (Access::Anyone, Some(_)) => {}
            (_, None) => return Ok(to_login(&parts)),
            (Access::Scopes(scopes), Some(visitor)) if visitor.may(scopes) => {}
            (Access::Scopes(scopes), Some(_)) => {
                let wanted: Vec<_> = scopes.iter().map(ToString::to_string).chain(["admin".to_owned()]).collect();
                let detail = format!("your token does not allow this; it needs the scope {}", wanted.join(" or "));
                return Err(Problem::new(StatusCode::FORBIDDEN, "forbidden", detail));
            }
        }
        let is_write = parts.method != Method::GET && parts.method != Method::HEAD;
        let mut body = body;
        if is_write {
            refuse_others(&parts.headers)?;
            let limits = &self.services.limits;
            let bytes = read_body(&parts.headers, body, limits.body_bytes(), limits.timeout()).await?;
            let form = Form::read(&bytes)?;
            if !matches!(self.access, Access::Public) {
                let ours = visitor.as_ref().is_some_and(|visitor| visitor.session.is_form_token(form.text("form")));
                if !ours {
                    let detail = "the form is not one of this session's; go back, load the page anew and try again";
                    return Err(Problem::new(StatusCode::FORBIDDEN, "forbidden", detail));
                }
            }
            if self.at_owner
                && let Some(answer) = self.elsewhere(&mut parts, &form, &bytes, correlation).await?
            {
                return Ok(answer);
            }
            parts.extensions.insert(form);
            body = Body::empty();
        }
        let params = Params::read(parts.uri.query(), self.params)?;
        let caller = visitor.as_ref().map(|visitor| visitor.caller().clone());
        let passed = Passed { correlation: correlation.clone(), params, caller, path: self.path };
        parts.extensions.insert(passed);
        parts.extensions.insert(theme);
        parts.extensions.insert(Guesses(Arc::clone(&self.guesses)));
        if let Some(visitor) = visitor {
            parts.extensions.insert(visitor);
        }
        let page = next.run(Request::from_parts(parts, body));
        Ok(if is_write { see_through(Box::pin(page)).await } else { page.await })
    }
}

impl Door {
    /// The answer of the node that has what a form is about; `None` if that is this one.
    async fn elsewhere(
        &self,
        parts: &mut Parts,
        form: &Form,
        body: &Bytes,
        correlation: &CorrelationId,
    ) -> Result<Option<Response>, Problem> {
        // Its page is about a queue that the form names, or about a dead letter that its address does.
        match form.text("path") {
            "" => self.services.forward(parts, body, correlation).await,
            path => match crate::bus::Path::parse(path) {
                Some(path) => self.services.forward_for(&path, parts, body, correlation).await,
                None => Ok(None),
            },
        }
    }
}

/// What the router refuses by itself, in words of its own or in none.
fn plain_refusal(response: &Response) -> Option<Problem> {
    let is_page =
        response.headers().get(header::CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"text/html"));
    let (kind, detail) = match response.status() {
        _ if is_page => return None,
        StatusCode::BAD_REQUEST => ("invalid-request", "this address cannot be read; it is not UTF-8"),
        StatusCode::METHOD_NOT_ALLOWED => ("method-not-allowed", "there is nothing to be seen or done here that way"),
        _ => return None,
    };
    Some(Problem::new(response.status(), kind, detail))
}

/// A form that another site had the browser send is refused whatever it carries.
fn refuse_others(headers: &HeaderMap) -> Result<(), Problem> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let site = text("sec-fetch-site").is_none_or(|site| site == "same-origin");
    let origin = text("origin").is_none_or(|origin| {
        let host = origin.split_once("://").map(|(_, host)| host);
        host.is_some() && host == text("host")
    });
    if site && origin {
        return Ok(());
    }
    Err(Problem::new(StatusCode::FORBIDDEN, "forbidden", "the form comes from another site"))
}

fn here(request: &Request) -> String {
    let is_page = request.method() == Method::GET;
    let path = request.uri().path_and_query().filter(|_| is_page);
    path.map_or_else(|| "/ui/".to_owned(), ToString::to_string)
}

/// To the login, and from there back to the page. A page that was asked for by a script is refused instead.
fn to_login(parts: &Parts) -> Response {
    let here = parts.uri.path_and_query().filter(|_| parts.method == Method::GET).map(ToString::to_string);
    let location = match here.filter(|here| here != "/ui/") {
        Some(here) => format!("/ui/login?next={}", encode(&here)),
        None => "/ui/login".to_owned(),
    };
    see_other(&location)
}

/// Sends the browser on to another page.
#[must_use]
pub fn see_other(location: &str) -> Response {
    (StatusCode::SEE_OTHER, [(header::LOCATION, location)]).into_response()
}

fn finish(mut response: Response, correlation: &CorrelationId) -> Response {
    let headers = response.headers_mut();
    if let Ok(value) = HeaderValue::from_str(&correlation.0) {
        headers.insert("x-correlation-id", value);
    }
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    // Not `no-referrer`: with it, browsers send forms without their origin.
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("same-origin"));
    headers.insert("cross-origin-opener-policy", HeaderValue::from_static("same-origin"));
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

impl Visitor {
    #[must_use]
    pub fn caller(&self) -> &Caller {
        &self.session.caller
    }

    #[must_use]
    pub fn may(&self, scopes: &[Scope]) -> bool {
        self.caller().may(scopes)
    }

    /// Whether they may change what others made: retry, cancel, edit.
    #[must_use]
    pub fn operates(&self) -> bool {
        self.may(&[Scope::Operate])
    }

    #[must_use]
    pub fn reads(&self) -> bool {
        self.may(&[Scope::Read])
    }
}

impl Theme {
    pub const ALL: [Self; 3] = [Self::System, Self::Light, Self::Dark];

    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::Light => "light",
            Self::Dark => "dark",
        }
    }

    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|theme| theme.name() == text)
    }

    /// The next one, for a button that goes round.
    #[must_use]
    pub const fn next(self) -> Self {
        match self {
            Self::System => Self::Light,
            Self::Light => Self::Dark,
            Self::Dark => Self::System,
        }
    }

    fn of(headers: &HeaderMap) -> Self {
        read_cookie(headers, THEME).and_then(Self::parse).unwrap_or_default()
    }

    #[must_use]
    pub fn cookie(self) -> HeaderValue {
        let text = format!("{THEME}={}; Path=/ui; HttpOnly; SameSite=Strict; Max-Age=31536000", self.name());
        HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static(""))
    }
}

impl Form {
    /// Every field that is no text is refused: with something else in its place it would be another one.
    fn read(bytes: &[u8]) -> Result<Self, Problem> {
        let errors = not_text(bytes);
        if !errors.is_empty() {
            return Err(Problem::invalid(errors));
        }
        let mut fields: HashMap<String, Vec<String>> = HashMap::new();
        for (name, value) in form_urlencoded::parse(bytes) {
            fields.entry(name.into_owned()).or_default().push(value.into_owned());
        }
        Ok(Self(fields))
    }

    /// A field's text; an absent one is empty.
    #[must_use]
    pub fn text(&self, name: &str) -> &str {
        self.0.get(name).and_then(|all| all.first()).map(String::as_str).unwrap_or_default()
    }

    #[must_use]
    pub fn all(&self, name: &str) -> &[String] {
        self.0.get(name).map(Vec::as_slice).unwrap_or_default()
    }

    /// A ticked box.
    #[must_use]
    pub fn is_set(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }
}

/// Takes what the door left in the request.
macro_rules! from_door {
    ($($type:ty),*) => {$(
        impl<S: Send + Sync> FromRequestParts<S> for $type {
            type Rejection = Problem;

            async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Problem> {
                parts.extensions.get::<Self>().cloned().ok_or_else(|| {
                    Problem::new(StatusCode::UNAUTHORIZED, "unauthorized", "please sign in")
                })
            }
        }
    )*};
}

from_door!(Visitor, Theme, Form, Guesses);
