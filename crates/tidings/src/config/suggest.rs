//! "Did you mean …?": the name nearest to a mistyped one.

use super::Config;
use super::tree::join;

/// The full path of the key that was probably meant: a neighbour with a similar name, or else a key of exactly this
/// name that lives in another section.
pub(super) fn key(path: &str, key: &str, neighbours: &[&str]) -> Option<String> {
    let parent = path.strip_suffix(key).unwrap_or("").trim_end_matches('.');
    if let Some(near) = nearest(key, neighbours) {
        return Some(join(parent, near));
    }
    let mut elsewhere = known_keys().into_iter().filter(|known| {
        let leaf = known.rsplit('.').next().unwrap_or(known);
        fold(leaf) == fold(key)
    });
    match (elsewhere.next(), elsewhere.next()) {
        (Some(only), None) => Some(only),
        _ => None,
    }
}

/// The candidate nearest to `name`, if one is near enough to be a slip of the fingers.
pub(crate) fn nearest<'a>(name: &str, candidates: &[&'a str]) -> Option<&'a str> {
    let name = fold(name);
    let allowed = (name.chars().count() / 3).max(1);
    candidates
        .iter()
        .map(|candidate| (strsim::damerau_levenshtein(&name, &fold(candidate)), *candidate))
        .filter(|(distance, _)| *distance <= allowed)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// `maxDeliveryCount`, `max_delivery_count` and `max-delivery-count` are the same slip.
fn fold(name: &str) -> String {
    name.chars().filter(|c| !matches!(c, '_' | '-')).flat_map(char::to_lowercase).take(64).collect()
}

/// The paths of all keys outside the lists.
fn known_keys() -> Vec<String> {
    let mut keys = Vec::new();
    if let Ok(serde_json::Value::Object(sections)) = serde_json::to_value(Config::default()) {
        for (section, value) in sections {
            if let serde_json::Value::Object(fields) = value {
                keys.extend(fields.keys().map(|field| join(&section, field)));
            } else {
                keys.push(section);
            }
        }
    }
    keys
}
