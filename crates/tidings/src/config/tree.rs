//! The configuration as a tree of values that remember where they were written.
//!
//! `toml` parses the file and keeps spans; this is the same tree with line and column instead of bytes, open for the
//! values that `environment` lays over it. `read` turns it into the typed `Config`, `check` finds places in it.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::problem::{Place, Problem};

#[derive(Clone, Debug)]
pub(super) struct Node {
    /// Unique in its tree, so that a faulty value can be left out without losing the others' places.
    pub(super) id: usize,
    pub(super) path: String,
    /// Nowhere for the root alone.
    pub(super) place: Option<Place>,
    pub(super) value: Value,
    /// The text of an environment variable: a key that wants a string takes it as it is, whatever it looks like.
    pub(super) raw: Option<String>,
}

#[derive(Clone, Debug)]
pub(super) enum Value {
    String(String),
    Integer(i64),
    /// An integer that does not fit into 64 bits.
    Huge(String),
    Float(f64),
    Boolean(bool),
    Datetime(String),
    Array(Vec<Node>),
    Table(Vec<Entry>),
}

#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) key: String,
    pub(super) place: Option<Place>,
    pub(super) node: Node,
}

impl Node {
    /// Reads a whole TOML file; every syntax error with its line.
    pub(super) fn from_toml(text: &str) -> Result<Node, Vec<Problem>> {
        let lines = Lines::of(text);
        let (table, errors) = DeTable::parse_recoverable(text);
        if !errors.is_empty() {
            return Err(errors.iter().map(|error| syntax_problem(error, &lines)).collect());
        }
        let mut ids = 0;
        let value = build_table(table.get_ref(), "", &Places::Text(lines), &mut ids);
        Ok(Node { id: 0, path: String::new(), place: None, value, raw: None })
    }

    pub(super) fn has(&self, key: &str) -> bool {
        matches!(&self.value, Value::Table(entries) if entries.iter().any(|entry| entry.key == key))
    }

    /// Reads an environment variable: a TOML value, or else the text itself.
    pub(super) fn from_variable(name: &str, text: &str, path: &str, ids: &mut usize) -> Node {
        let place = Place::Variable(name.to_owned());
        let mut node = match DeValue::parse(text) {
            Ok(value) => build(&value, path, &Places::Variable(place), ids),
            Err(_) => {
                *ids += 1;
                let value = Value::String(text.to_owned());
                Node { id: *ids, path: path.to_owned(), place: Some(place), value, raw: None }
            }
        };
        if !matches!(node.value, Value::String(_) | Value::Array(_) | Value::Table(_)) {
            node.raw = Some(text.to_owned());
        }
        node
    }

    /// The highest id in use, from which new nodes are numbered.
    pub(super) fn last_id(&self) -> usize {
        let below = match &self.value {
            Value::Array(items) => items.iter().map(Node::last_id).max(),
            Value::Table(entries) => entries.iter().map(|entry| entry.node.last_id()).max(),
            _ => None,
        };
        below.unwrap_or(0).max(self.id)
    }
}

/// How the parser's byte spans become places.
enum Places<'a> {
    Text(Lines<'a>),
    Variable(Place),
}

impl Places<'_> {
    fn at(&self, span: &std::ops::Range<usize>) -> Place {
        match self {
            Places::Text(lines) => lines.place(span.start),
            Places::Variable(place) => place.clone(),
        }
    }
}

struct Lines<'a> {
    text: &'a str,
    starts: Vec<usize>,
}

impl<'a> Lines<'a> {
    fn of(text: &'a str) -> Self {
        let starts = std::iter::once(0).chain(text.match_indices('\n').map(|(index, _)| index + 1)).collect();
        Self { text, starts }
    }

    fn place(&self, offset: usize) -> Place {
        let line = self.starts.partition_point(|start| *start <= offset);
        let start = self.starts.get(line.saturating_sub(1)).copied().unwrap_or(0);
        let before = self.text.get(start..offset).unwrap_or("");
        // A byte order mark takes no column in any editor.
        Place::File { line, column: before.trim_start_matches('\u{feff}').chars().count() + 1 }
    }
}

fn syntax_problem(error: &toml::de::Error, lines: &Lines<'_>) -> Problem {
    let offset = error.span().map_or(lines.text.len(), |span| span.start);
    // Only the parser's own words: its longer form quotes the line, which may hold a password.
    let message = format!("not valid TOML: {}", error.message());
    Problem::new(Some(&lines.place(offset)), "", message)
}

fn build(value: &Spanned<DeValue<'_>>, path: &str, places: &Places<'_>, ids: &mut usize) -> Node {
    *ids += 1;
    let id = *ids;
    let place = Some(places.at(&value.span()));
    let value = match value.get_ref() {
        DeValue::String(text) => Value::String(text.to_string()),
        DeValue::Integer(integer) => match i64::from_str_radix(integer.as_str(), integer.radix()) {
            Ok(integer) => Value::Integer(integer),
            Err(_) => Value::Huge(integer.to_string()),
        },
        // The grammar was checked; what is left to fail is magnitude, which becomes infinity and is refused later.
        DeValue::Float(float) => Value::Float(float.as_str().parse().unwrap_or(f64::INFINITY)),
        DeValue::Boolean(boolean) => Value::Boolean(*boolean),
        DeValue::Datetime(datetime) => Value::Datetime(datetime.to_string()),
        DeValue::Array(items) => Value::Array(
            items
                .iter()
                .enumerate()
                .map(|(index, item)| build(item, &format!("{path}[{index}]"), places, ids))
                .collect(),
        ),
        DeValue::Table(table) => build_table(table, path, places, ids),
    };
    Node { id, path: path.to_owned(), place, value, raw: None }
}

fn build_table(table: &DeTable<'_>, path: &str, places: &Places<'_>, ids: &mut usize) -> Value {
    let entries = table.iter().map(|(key, value)| {
        let node = build(value, &join(path, key.get_ref()), places, ids);
        Entry { key: key.get_ref().to_string(), place: Some(places.at(&key.span())), node }
    });
    Value::Table(entries.collect())
}

/// `limits` and `body_bytes` make `limits.body_bytes`.
pub(super) fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}
