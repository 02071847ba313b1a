//! The buttons of a message: read, judged, and written as ntfy's apps know them. Pure.

use serde_json::{Map, Value as Json};

use super::publish::in_any_case;
use super::refusal::Refusal;

const MOST: usize = 3;
/// The parts of an action, which has no others for ntfy; here those stay as they are.
const NAMES: [&str; 11] =
    ["id", "action", "label", "clear", "url", "method", "headers", "body", "intent", "extras", "value"];

/// Actions as JSON; ntfy's short form for headers is not read, and such actions are left out.
pub(super) fn actions(given: Option<Vec<Json>>, header: Option<&str>) -> Result<Vec<Json>, Refusal> {
    let actions: Vec<Json> = match (given, header.filter(|text| text.starts_with('['))) {
        (Some(actions), _) if !actions.is_empty() => actions,
        (_, Some(text)) => serde_json::from_str(text).map_err(|error| Refusal::actions(&error.to_string()))?,
        _ => return Ok(Vec::new()),
    };
    if actions.len() > MOST {
        return Err(Refusal::actions(&format!("only {MOST} actions allowed")));
    }
    actions.into_iter().map(|action| read(action).map(Json::Object)).collect()
}

fn read(action: Json) -> Result<Map<String, Json>, Refusal> {
    let Json::Object(action) = action else { return Err(Refusal::actions("each must be an object")) };
    let mut action = in_any_case(action, &NAMES);
    // Go takes `null` for what is not said.
    action.retain(|_, value| !value.is_null());
    for (name, value) in &action {
        if let Some(expected) = expected(name, value) {
            return Err(Refusal::actions(&format!("parameter '{name}' must be {expected}")));
        }
    }
    let text = |name: &str| action.get(name).and_then(Json::as_str).unwrap_or_default();
    match text("action") {
        "view" | "http" if text("url").is_empty() => return Err(Refusal::actions("parameter 'url' is required")),
        "view" | "http" | "broadcast" | "copy" => {}
        other => return Err(Refusal::actions(&format!("action '{other}' unknown"))),
    }
    if text("label").is_empty() {
        return Err(Refusal::actions("parameter 'label' must not be empty"));
    }
    Ok(action)
}

/// What a part must be, if it is something else: an app that reads a message with such a part could read none of it.
fn expected(name: &str, value: &Json) -> Option<&'static str> {
    let is_text_list = || value.as_object().is_some_and(|texts| texts.values().all(Json::is_string));
    match name {
        "clear" => (!value.is_boolean()).then_some("true or false"),
        "headers" | "extras" => (!is_text_list()).then_some("an object of strings"),
        name if NAMES.contains(&name) => (!value.is_string()).then_some("a string"),
        _ => None,
    }
}
