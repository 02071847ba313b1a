//! Holds every call of every test against the OpenAPI description: what is sent and taken, and what comes back, must be what
//! it says.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, PoisonError};

use reqwest::Request;
use serde_json::{Value, json};

use super::client::Answer;

/// The description, and what has been compiled of it.
struct Described {
    document: Value,
    validators: Mutex<HashMap<String, jsonschema::Validator>>,
}

static DESCRIBED: LazyLock<Described> =
    LazyLock::new(|| Described { document: tidings::http::openapi(), validators: Mutex::default() });

/// Panics if the description says something else than what happened.
pub fn check(request: &Request, answer: &Answer) {
    let method = request.method().as_str();
    let Some(template) = DESCRIBED.template(method, request.url().path()) else { return };
    let operation = format!("/paths/{}/{}", template.replace('~', "~0").replace('/', "~1"), method.to_lowercase());
    let call = format!("{method} {template}");
    DESCRIBED.check_answer(&operation, &call, answer);
    let body = request.body().and_then(reqwest::Body::as_bytes);
    let sent = request.headers().get("content-type").and_then(|value| value.to_str().ok()).unwrap_or_default();
    // Some entries of a list may be bad, and are said to be.
    let rejected = |answer: Value| answer["rejected"].as_u64().unwrap_or(0);
    let taken = answer.status < 300
        && media_type(sent) == "application/json"
        // Packed, or only the data of an event whose rest is in headers.
        && !["content-encoding", "ce-specversion"].iter().any(|name| request.headers().contains_key(*name))
        && serde_json::from_slice(&answer.body).is_ok_and(|answer| rejected(answer) == 0);
    if let (true, Some(body)) = (taken, body) {
        DESCRIBED.check_body(&operation, &call, body);
    }
}

impl Described {
    /// The path of the description that a request's path belongs to: of several the one with most words of its own.
    fn template(&self, method: &str, path: &str) -> Option<String> {
        let paths = self.document["paths"].as_object()?;
        let fitting = paths
            .iter()
            .filter(|(template, operations)| operations.get(method.to_lowercase()).is_some() && fits(template, path));
        let own_words = |template: &str| template.split('/').filter(|part| !part.starts_with('{')).count();
        fitting.map(|(template, _)| template.clone()).max_by_key(|template| own_words(template))
    }

    fn check_answer(&self, operation: &str, call: &str, answer: &Answer) {
        let responses = &self.document.pointer(operation).unwrap()["responses"];
        let declared = &responses[answer.status.to_string()];
        let status = answer.status;
        assert!(status >= 400 || !declared.is_null(), "{call}: {status} is not described");
        let key = if declared.is_null() { "default".to_owned() } else { status.to_string() };
        let place = match responses[&key]["$ref"].as_str() {
            Some(reference) => reference.trim_start_matches('#').to_owned(),
            None => format!("{operation}/responses/{key}"),
        };
        let content = &self.document.pointer(&place).unwrap()["content"];
        if answer.body.is_empty() {
            return;
        }
        let media_type = media_type(answer.header("content-type"));
        if content.get("*/*").is_some() {
            return;
        }
        let Some(content) = content.get(media_type) else {
            panic!("{call}: {status} has {media_type}, which is not described: {}", answer.text());
        };
        if ["application/json", "application/problem+json"].contains(&media_type) && content["schema"].is_object() {
            let place = format!("{place}/content/{}/schema", media_type.replace('/', "~1"));
            self.validate(&place, &format!("the answer {status} of {call}"), &answer.json());
        }
    }

    fn check_body(&self, operation: &str, call: &str, body: &[u8]) {
        let place = format!("{operation}/requestBody/content/application~1json/schema");
        let (Some(_), Ok(body)) = (self.document.pointer(&place), serde_json::from_slice(body)) else { return };
        self.validate(&place, &format!("the body of {call}"), &body);
    }

    fn validate(&self, place: &str, what: &str, value: &Value) {
        let mut validators = self.validators.lock().unwrap_or_else(PoisonError::into_inner);
        let validator = validators.entry(place.to_owned()).or_insert_with(|| {
            let mut schema = self.document.pointer(place).unwrap().clone();
            schema["components"] = json!({ "schemas": self.document["components"]["schemas"] });
            jsonschema::validator_for(&schema).unwrap_or_else(|error| panic!("{place}: {error}"))
        });
        let errors: Vec<String> =
            validator.iter_errors(value).map(|error| format!("{}: {error}", error.instance_path())).collect();
        assert!(errors.is_empty(), "{what} is not what is described: {errors:#?}\n{value:#}");
    }
}

fn fits(template: &str, path: &str) -> bool {
    let (mut parts, mut words) = (template.split('/'), path.split('/'));
    loop {
        match (parts.next(), words.next()) {
            (None, None) => return true,
            (Some(part), Some(word)) if part == word || (part.starts_with('{') && !word.is_empty()) => {}
            _ => return false,
        }
    }
}

fn media_type(content_type: &str) -> &str {
    content_type.split(';').next().unwrap_or_default().trim()
}
