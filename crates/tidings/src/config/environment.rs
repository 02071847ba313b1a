//! Environment variables laid over the file: `TIDINGS__SECTION__KEY`, in any case.
//!
//! A value is read as TOML and, where it is none, taken as a string. Lists are set as a whole. `TIDINGS_URL` and
//! `TIDINGS_TOKEN`, with one underscore, belong to the client commands and are not looked at.

use std::collections::BTreeMap;

use super::problem::{Place, Problem};
use super::tree::{Entry, Node, Value, join};

const PREFIX: &str = "tidings__";

/// The process's environment; variables that are not Unicode cannot be ours and are left out.
pub fn process_environment() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
}

/// Replaces in `root` what the variables name.
pub(super) fn overlay(root: &mut Node, variables: &BTreeMap<String, String>, problems: &mut Vec<Problem>) {
    // By path, so that a whole section comes before its keys, however the names are written.
    let mut given: BTreeMap<Vec<String>, (&str, &str)> = BTreeMap::new();
    for (name, text) in variables {
        let lower = name.to_lowercase();
        let Some(path) = lower.strip_prefix(PREFIX) else { continue };
        let steps: Vec<String> = path.split("__").map(str::to_owned).collect();
        if steps.iter().any(String::is_empty) {
            problems.push(at(name, "", "names no key; variables look like `TIDINGS__SECTION__KEY`".to_owned()));
        } else if let Some((other, _)) = given.get(&steps) {
            problems.push(at(name, &steps.join("."), format!("sets the same key as `{other}`; keep one of them")));
        } else {
            given.insert(steps, (name, text));
        }
    }
    let mut ids = root.last_id();
    for (steps, (name, text)) in given {
        let node = Node::from_variable(name, text, &steps.join("."), &mut ids);
        if let Err(problem) = set(root, name, &steps, node, &mut ids) {
            problems.push(*problem);
        }
    }
}

fn set(root: &mut Node, name: &str, steps: &[String], node: Node, ids: &mut usize) -> Result<(), Box<Problem>> {
    let Some((last, sections)) = steps.split_last() else { return Ok(()) };
    let mut here = root;
    for step in sections {
        let path = join(&here.path, step);
        let entries = table(here, name)?;
        here = match entries.iter().position(|entry| entry.key == *step) {
            Some(index) => &mut entries.get_mut(index).expect("position() found it").node,
            None => {
                *ids += 1;
                let place = Some(Place::Variable(name.to_owned()));
                let section = Node { id: *ids, path, place: place.clone(), value: Value::Table(Vec::new()), raw: None };
                entries.push(Entry { key: step.clone(), place, node: section });
                &mut entries.last_mut().expect("just pushed").node
            }
        };
    }
    let whole_section = sections.is_empty();
    let entries = table(here, name)?;
    let Some(entry) = entries.iter_mut().find(|entry| entry.key == *last) else {
        entries.push(Entry { key: last.clone(), place: node.place.clone(), node });
        return Ok(());
    };
    match (&mut entry.node.value, node.value) {
        // A section given as one value changes the keys that it names and leaves the file's others alone.
        (Value::Table(old), Value::Table(new)) if whole_section => {
            for entry in new {
                old.retain(|other| other.key != entry.key);
                old.push(entry);
            }
        }
        (_, value) => {
            entry.place = node.place.clone();
            entry.node = Node { value, ..node };
        }
    }
    Ok(())
}

fn table<'a>(node: &'a mut Node, name: &str) -> Result<&'a mut Vec<Entry>, Box<Problem>> {
    let path = node.path.clone();
    match &mut node.value {
        Value::Table(entries) => Ok(entries),
        Value::Array(_) => {
            let whole = format!("TIDINGS__{}", path.to_uppercase().replace('.', "__"));
            Err(Box::new(at(name, &path, format!("reaches into a list; set the list as a whole: `{whole}=[…]`"))))
        }
        _ => Err(Box::new(at(name, &path, format!("takes `{path}` for a section, but it is a single value")))),
    }
}

fn at(name: &str, key: &str, message: String) -> Problem {
    Problem::new(Some(&Place::Variable(name.to_owned())), key, message)
}
