//! The OpenAPI 3.1 description, made from the routes themselves.

use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use super::route::{Access, Route};

/// The description of `routes`.
#[must_use]
pub fn describe(routes: &[Route]) -> Value {
    let mut settings = SchemaSettings::draft2020_12();
    settings.definitions_path = "/components/schemas".into();
    settings.meta_schema = None;
    let mut generator = settings.into_generator();
    let mut paths: Map<String, Value> = Map::new();
    for route in routes {
        let operation = operation(route, &mut generator);
        let path = paths.entry(route.path.replace("{*", "{")).or_insert_with(|| json!({}));
        if let Some(path) = path.as_object_mut() {
            path.insert(route.method.as_str().to_lowercase(), operation);
        }
    }
    let mut schemas = generator.take_definitions(true);
    schemas.insert("Problem".to_owned(), problem_schema());
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Tidings",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Turns events into the right notice to the right person, and can prove what became of every event.",
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" }
        },
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } },
            "responses": { "Problem": {
                "description": "What is wrong, in RFC 9457's form",
                "content": { "application/problem+json": { "schema": { "$ref": "#/components/schemas/Problem" } } }
            } }
        }
    })
}

fn operation(route: &Route, generator: &mut SchemaGenerator) -> Value {
    let mut operation = json!({
        "summary": route.summary,
        "tags": [route.tag],
        "operationId": operation_id(route),
        "parameters": parameters(route),
        "responses": responses(route, generator),
    });
    let Some(fields) = operation.as_object_mut() else { return operation };
    match &route.access {
        Access::Public => fields.insert("security".to_owned(), json!([])),
        Access::Scopes(scopes) => {
            let names: Vec<String> = scopes.iter().map(ToString::to_string).chain(["admin".to_owned()]).collect();
            fields.insert("description".to_owned(), json!(format!("Scope: {}.", names.join(" or "))));
            fields.insert("security".to_owned(), json!([{ "token": [] }]))
        }
    };
    if let Some((media_type, schema)) = route.body {
        let body = json!({ "required": true, "content": { media_type: { "schema": schema(generator) } } });
        fields.insert("requestBody".to_owned(), body);
    }
    operation
}

fn operation_id(route: &Route) -> String {
    let words = route.path.split(['/', '{', '}', '*', '-', '.', '$']).filter(|word| !word.is_empty());
    let mut id = route.method.as_str().to_lowercase();
    for word in words {
        id.push('_');
        id.push_str(word);
    }
    id
}

fn parameters(route: &Route) -> Value {
    let in_path = route.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let in_path = in_path.map(|name| {
        json!({ "name": name.trim_start_matches('*'), "in": "path", "required": true, "schema": { "type": "string" } })
    });
    let in_query = route
        .params
        .iter()
        .map(|param| json!({ "name": param.0, "in": "query", "description": param.1, "schema": { "type": "string" } }));
    let mut all: Vec<Value> = in_path.chain(in_query).collect();
    if route.method == axum::http::Method::POST && !matches!(route.access, Access::Public) {
        all.push(json!({
            "name": "Idempotency-Key", "in": "header", "schema": { "type": "string", "maxLength": 256 },
            "description": "The same key and body within 24 h replay the first answer; another body is refused with 422."
        }));
    }
    Value::Array(all)
}

fn responses(route: &Route, generator: &mut SchemaGenerator) -> Value {
    let mut responses = Map::new();
    for (status, meaning, content) in &route.answers {
        let mut response = json!({ "description": meaning });
        if let (Some((media_type, schema)), Some(fields)) = (content, response.as_object_mut()) {
            fields.insert("content".to_owned(), json!({ *media_type: { "schema": schema(generator) } }));
        }
        responses.insert(status.to_string(), response);
    }
    responses.insert("default".to_owned(), json!({ "$ref": "#/components/responses/Problem" }));
    Value::Object(responses)
}

fn problem_schema() -> Value {
    json!({
        "type": "object",
        "required": ["type", "title", "status", "detail", "correlationId"],
        "properties": {
            "type": { "type": "string" },
            "title": { "type": "string" },
            "status": { "type": "integer" },
            "detail": { "type": "string" },
            "correlationId": { "type": "string" },
            "errors": { "type": "array", "items": {
                "type": "object", "required": ["field", "message"],
                "properties": { "field": { "type": "string" }, "message": { "type": "string" } }
            } }
        }
    })
}
