//! A route is declared once: the router, the access rules, the known parameters, the metrics and the OpenAPI
//! description all come from the same declaration.

use std::pin::Pin;
use std::sync::Arc;

use axum::extract::Request;
use axum::handler::Handler;
use axum::http::Method;
use axum::response::Response;
use schemars::{JsonSchema, Schema, SchemaGenerator};

use crate::app::Services;
use crate::tokens::Scope;

/// Who may call a route.
#[derive(Debug, Clone)]
pub enum Access {
    Public,
    /// Any of these scopes; `admin` always may.
    Scopes(&'static [Scope]),
}

/// What a route takes as its body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyRule {
    /// Up to the configured size for documents.
    Document,
    /// The handler reads the body itself, up to the configured size for uploads.
    Upload,
    /// The same, a form in several parts. Its bytes are others each time it is sent, so the handler also sees to its
    /// `Idempotency-Key`, by what the parts hold.
    Parts,
}

/// A query parameter and what it means.
#[derive(Debug, Clone, Copy)]
pub struct Param(pub &'static str, pub &'static str);

type SchemaOf = fn(&mut SchemaGenerator) -> Schema;
/// A media type, and the schema of what it holds.
type Content = (&'static str, SchemaOf);

/// What a request that has passed the gate is given to.
pub type Answer = Arc<dyn Fn(Request, Services) -> Answering + Send + Sync>;
/// An answer under way.
pub type Answering = Pin<Box<dyn Future<Output = Response> + Send>>;

/// A body that is one thing or a list of them.
#[derive(JsonSchema)]
#[serde(untagged)]
pub enum OneOrMany<T> {
    One(T),
    Many(Vec<T>),
}

/// One operation of the API.
#[derive(Clone)]
pub struct Route {
    pub method: Method,
    pub path: &'static str,
    pub access: Access,
    pub summary: &'static str,
    pub tag: &'static str,
    pub params: &'static [Param],
    /// Callers that can send no header may put their token into the URL.
    pub key_in_url: bool,
    /// Answered by the node that has the entity of the bus which the path names.
    pub at_owner: bool,
    /// Waits for something to come, for whoever asked and nobody else.
    pub waits: bool,
    /// Whether refusals are told as Splunk's collector tells them.
    pub as_collector: bool,
    /// Which headers are part of what a request says, by their names, beside those that are so everywhere.
    pub said_in_headers: fn(&str) -> bool,
    pub body_rule: BodyRule,
    pub body: Option<Content>,
    /// Other forms in which the body may come.
    pub other_bodies: Vec<Content>,
    pub answers: Vec<(u16, &'static str, Option<Content>)>,
    pub handler: Answer,
}

impl Route {
    /// A route with its handler; without more, only `admin` may call it.
    pub fn new<H, T>(method: Method, path: &'static str, summary: &'static str, handler: H) -> Self
    where
        H: Handler<T, Services, Future = Answering>,
        T: 'static,
    {
        let tag = path.split('/').find(|part| !part.is_empty()).unwrap_or("general");
        Self {
            method,
            path,
            access: Access::Scopes(&[]),
            summary,
            tag,
            params: &[],
            key_in_url: false,
            at_owner: false,
            waits: false,
            as_collector: false,
            said_in_headers: |_| false,
            body_rule: BodyRule::Document,
            body: None,
            other_bodies: Vec::new(),
            answers: Vec::new(),
            handler: Arc::new(move |request, services| handler.clone().call(request, services)),
        }
    }

    #[must_use]
    pub fn public(mut self) -> Self {
        self.access = Access::Public;
        self
    }

    #[must_use]
    pub fn scopes(mut self, scopes: &'static [Scope]) -> Self {
        self.access = Access::Scopes(scopes);
        self
    }

    #[must_use]
    pub fn params(mut self, params: &'static [Param]) -> Self {
        self.params = params;
        self
    }

    #[must_use]
    pub fn key_in_url(mut self) -> Self {
        self.key_in_url = true;
        self
    }

    #[must_use]
    pub fn at_owner(mut self) -> Self {
        self.at_owner = true;
        self
    }

    /// If the caller goes away, so does the call: whatever comes later is somebody else's.
    #[must_use]
    pub fn waits(mut self) -> Self {
        self.waits = true;
        self
    }

    #[must_use]
    pub fn as_collector(mut self) -> Self {
        self.as_collector = true;
        self
    }

    #[must_use]
    pub fn said_in_headers(mut self, names: fn(&str) -> bool) -> Self {
        self.said_in_headers = names;
        self
    }

    #[must_use]
    pub fn upload(mut self) -> Self {
        self.body_rule = BodyRule::Upload;
        self
    }

    #[must_use]
    pub fn parts(mut self) -> Self {
        self.body_rule = BodyRule::Parts;
        self
    }

    /// Documents the body as a `T` in JSON.
    #[must_use]
    pub fn body<T: JsonSchema>(self) -> Self {
        self.body_as::<T>("application/json")
    }

    #[must_use]
    pub fn body_as<T: JsonSchema>(mut self, media_type: &'static str) -> Self {
        self.body = Some((media_type, |generator| generator.subschema_for::<T>()));
        self
    }

    /// Documents another form of the body.
    #[must_use]
    pub fn or_body_as<T: JsonSchema>(mut self, media_type: &'static str) -> Self {
        self.other_bodies.push((media_type, |generator| generator.subschema_for::<T>()));
        self
    }

    /// Documents an answer that has a `T` in JSON.
    #[must_use]
    pub fn answer<T: JsonSchema>(self, status: u16, meaning: &'static str) -> Self {
        self.answer_as::<T>(status, meaning, "application/json")
    }

    #[must_use]
    pub fn answer_as<T: JsonSchema>(mut self, status: u16, meaning: &'static str, media_type: &'static str) -> Self {
        self.answers.push((status, meaning, Some((media_type, |generator| generator.subschema_for::<T>()))));
        self
    }

    /// Documents an answer without a body worth describing.
    #[must_use]
    pub fn answer_empty(mut self, status: u16, meaning: &'static str) -> Self {
        self.answers.push((status, meaning, None));
        self
    }
}
