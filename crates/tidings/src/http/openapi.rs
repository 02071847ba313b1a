//! The OpenAPI 3.1 description, made from the routes themselves.

use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};
use tidings_core::limits::CORRELATION_CHARS;

use super::collector::Said;
use super::route::{Access, BodyRule, Route};

const PROBLEM: &str = "application/problem+json";
const SCHEMAS: &str = "#/components/schemas/";
const PARAMETERS: &str = "#/components/parameters/";

/// The description of `routes`.
#[must_use]
pub fn describe(routes: &[Route]) -> Value {
    let settings = || {
        let mut settings = SchemaSettings::draft2020_12();
        settings.definitions_path = "/components/schemas".into();
        settings.meta_schema = None;
        settings
    };
    // What may be left out when it is sent need not be what is left out when it is answered.
    let mut schemas =
        Schemas { sent: settings().into_generator(), answered: settings().for_serialize().into_generator() };
    let mut paths: Map<String, Value> = Map::new();
    for route in routes {
        let operation = operation(route, &mut schemas);
        let path = paths.entry(route.path.replace("{*", "{")).or_insert_with(|| json!({}));
        if let Some(path) = path.as_object_mut() {
            path.insert(route.method.as_str().to_lowercase(), operation);
        }
    }
    let schemas = schemas.into_components(&mut paths);
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
            "parameters": headers(),
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } },
            "responses": { "Problem": {
                "description": "What is wrong, in RFC 9457's form",
                "content": { PROBLEM: { "schema": { "$ref": format!("{SCHEMAS}Problem") } } }
            } }
        }
    })
}

/// The schemas of what is sent, and of what is answered.
struct Schemas {
    sent: SchemaGenerator,
    answered: SchemaGenerator,
}

impl Schemas {
    /// All of them by name. Where one type is sent and answered in two forms, the one that is sent gets a name of its own.
    fn into_components(mut self, paths: &mut Map<String, Value>) -> Map<String, Value> {
        let mut all = self.answered.take_definitions(true);
        let mut sent = self.sent.take_definitions(true);
        let differing: Vec<String> = sent
            .iter()
            .filter(|(name, schema)| all.get(*name).is_some_and(|other| other != *schema))
            .map(|(name, _)| name.clone())
            .collect();
        let bodies = paths.values_mut().filter_map(Value::as_object_mut).flat_map(|path| path.values_mut());
        for schema in sent.values_mut().chain(bodies.filter_map(|operation| operation.get_mut("requestBody"))) {
            rename(schema, &differing);
        }
        for (name, schema) in sent {
            let name = if differing.contains(&name) { format!("{name}Sent") } else { name };
            all.insert(name, schema);
        }
        all.insert("Problem".to_owned(), problem_schema());
        all
    }
}

/// Lets references to these schemas lead to those that are sent.
fn rename(schema: &mut Value, names: &[String]) {
    match schema {
        Value::Object(fields) => {
            if let Some(Value::String(reference)) = fields.get_mut("$ref")
                && reference.strip_prefix(SCHEMAS).is_some_and(|name| names.iter().any(|known| known == name))
            {
                reference.push_str("Sent");
            }
            fields.values_mut().for_each(|value| rename(value, names));
        }
        Value::Array(values) => values.iter_mut().for_each(|value| rename(value, names)),
        _ => {}
    }
}

fn operation(route: &Route, schemas: &mut Schemas) -> Value {
    let mut operation = json!({
        "summary": route.summary,
        "tags": [route.tag],
        "operationId": operation_id(route),
        "parameters": parameters(route),
        "responses": responses(route, &mut schemas.answered),
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
    let forms = route.body.iter().chain(&route.other_bodies);
    let content: Map<String, Value> = forms
        .map(|(media_type, schema)| ((*media_type).to_owned(), json!({ "schema": schema(&mut schemas.sent) })))
        .collect();
    if !content.is_empty() {
        fields.insert("requestBody".to_owned(), json!({ "required": true, "content": content }));
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
            "description": "The same key and body within 24 h replay the first answer; another body, query, content type, or other \
                headers that are part of a message (`ce-…`, `BrokerProperties`, properties of a message of the bus) are \
                refused with 422. \
                After a refusal (4xx) the key is free. If the server dies before its answer is kept, the request sent \
                again makes and sends nothing twice; what can be done only once (an alert's mail, a dead letter of \
                the bus, a lock) may then be said to be under way or gone (404, 409, 410), and a channel's test is sent again."
        }));
    }
    // What every call takes.
    let packed = (route.body.is_some() && route.body_rule == BodyRule::Document).then_some("ContentEncoding");
    let common = ["CorrelationId", "TraceParent"].into_iter().chain(packed);
    all.extend(common.map(|name| json!({ "$ref": format!("{PARAMETERS}{name}") })));
    Value::Array(all)
}

/// The headers that many calls take.
fn headers() -> Value {
    json!({
        "CorrelationId": {
            "name": "X-Correlation-ID", "in": "header",
            "schema": { "type": "string", "minLength": 1, "maxLength": CORRELATION_CHARS },
            "description": "Printable ASCII: the id of everything that follows from the call. Made if absent, and in \
                every answer. GET /trace/{correlationId} shows what shares it."
        },
        "TraceParent": {
            "name": "traceparent", "in": "header", "schema": { "type": "string" },
            "description": "W3C trace context. Passed on, and without X-Correlation-ID its trace id is the correlation id."
        },
        "ContentEncoding": {
            "name": "Content-Encoding", "in": "header", "schema": { "enum": ["gzip", "identity"] },
            "description": "gzip: the body is packed; limits count what it becomes."
        }
    })
}

fn responses(route: &Route, generator: &mut SchemaGenerator) -> Value {
    let mut responses = Map::new();
    for (status, meaning, content) in &route.answers {
        let response = responses.entry(status.to_string()).or_insert_with(|| json!({ "description": meaning }));
        let (media_type, schema) = match content {
            Some((media_type, schema)) => (*media_type, schema(generator).to_value()),
            None if *status >= 400 => (PROBLEM, json!({ "$ref": format!("{SCHEMAS}Problem") })),
            None => continue,
        };
        // One status may have several forms.
        if let Some(fields) = response.as_object_mut()
            && let Some(forms) = fields.entry("content").or_insert_with(|| json!({})).as_object_mut()
        {
            forms.insert(media_type.to_owned(), json!({ "schema": schema }));
        }
    }
    let default = if route.as_collector {
        let said = generator.subschema_for::<Said>();
        json!({ "description": "What is wrong", "content": { "application/json": { "schema": said } } })
    } else {
        json!({ "$ref": "#/components/responses/Problem" })
    };
    responses.insert("default".to_owned(), default);
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
