//! From pattern text to fields and combinations.
//!
//! A pattern without `$or` has one combination: all its fields. Each `$or` multiplies, so that in the end a pattern
//! matches if all fields of any one combination do. The alternatives of a field are read in `operators`.

use std::fmt::Write as _;

use super::PatternError;
use super::changed;
use super::json::Json;
use super::limits::{MAX_COMBINATIONS, MAX_COMBINED_FIELDS, MAX_DEPTH, MAX_PATTERN_BYTES};
use super::operators::{self, OPERATORS};
use super::predicate::{Field, Test};

/// A compiled pattern: the fields, and the combinations as positions among them.
#[derive(Debug)]
pub(super) struct Compiled {
    pub(super) fields: Box<[Field]>,
    pub(super) combinations: Combinations,
}

#[derive(Debug)]
pub(super) enum Combinations {
    /// The one combination of all fields: nearly every pattern, and worth not keeping a list for.
    All,
    AnyOf(Box<[Box<[u16]>]>),
}

/// Where in a pattern the compiler stands; each step borrows the one before it.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    before: Option<&'a Place<'a>>,
    step: Step<'a>,
}

#[derive(Clone, Copy)]
enum Step<'a> {
    Top,
    Key(&'a str),
    Item(usize),
}

/// Counts what the limits bound.
#[derive(Default)]
pub(super) struct Budget {
    pub(super) values: usize,
    pub(super) stars: usize,
}

type Choices = Vec<Vec<u16>>;

/// As many mistakes as are worth naming at once.
const MAX_ERRORS: usize = 20;

struct Compiler {
    fields: Vec<Field>,
    path: Vec<Box<str>>,
    budget: Budget,
    /// What is wrong with the members read so far.
    errors: Vec<PatternError>,
}

/// Compiles a pattern, or names everything that is wrong with it, in the order it stands there.
pub(super) fn compile(text: &str) -> Result<Compiled, Vec<PatternError>> {
    let top = Place { before: None, step: Step::Top };
    if text.len() > MAX_PATTERN_BYTES {
        return Err(vec![top.error(format!("the pattern is longer than {MAX_PATTERN_BYTES} bytes"))]);
    }
    let json: Json = serde_json::from_str(text).map_err(|error| vec![top.error(format!("malformed JSON: {error}"))])?;
    let Json::Object(members) = &json else {
        return Err(vec![top.error(format!("a pattern must be an object, not {}", json.kind()))]);
    };
    let mut compiler = Compiler { fields: Vec::new(), path: Vec::new(), budget: Budget::default(), errors: Vec::new() };
    let mut choices = match compiler.object(members, top, 1, false) {
        Ok(choices) => choices,
        Err(error) => {
            compiler.errors.push(error);
            Choices::new()
        }
    };
    if !compiler.errors.is_empty() {
        return Err(compiler.errors);
    }
    // Cheap fields first: a candidate that fails should fail early.
    if choices.len() == 1 {
        compiler.fields.sort_by_key(weight);
        return Ok(Compiled { fields: compiler.fields.into_boxed_slice(), combinations: Combinations::All });
    }
    let weights: Vec<u32> = compiler.fields.iter().map(weight).collect();
    for choice in &mut choices {
        choice.sort_by_key(|&field| weights.get(usize::from(field)).copied());
    }
    let combinations = Combinations::AnyOf(choices.into_iter().map(Vec::into_boxed_slice).collect());
    Ok(Compiled { fields: compiler.fields.into_boxed_slice(), combinations })
}

impl Compiled {
    /// Whether any combination passes a test, given as positions of fields.
    pub(super) fn any(&self, mut test: impl FnMut(&mut dyn Iterator<Item = usize>) -> bool) -> bool {
        match &self.combinations {
            Combinations::All => test(&mut (0..self.fields.len())),
            Combinations::AnyOf(choices) => {
                choices.iter().any(|choice| test(&mut choice.iter().map(|&field| usize::from(field))))
            }
        }
    }
}

impl Compiler {
    fn object(
        &mut self,
        members: &[(String, Json)],
        place: Place<'_>,
        depth: usize,
        in_or: bool,
    ) -> Result<Choices, PatternError> {
        if members.is_empty() {
            return Err(place.error("an empty object is not allowed"));
        }
        if depth > MAX_DEPTH {
            return Err(place.error(format!("nested deeper than {MAX_DEPTH} objects")));
        }
        refuse_repeated_keys(members, place)?;
        let mut combinations = vec![Vec::new()];
        for (key, value) in members {
            let place = place.key(key);
            let level = self.path.len();
            let choices = if key == "$or" {
                self.or(value, place, depth)
            } else if in_or && OPERATORS.contains(&key.as_str()) {
                Err(place.error(format!("`{key}` is an operator and no field name inside `$or`")))
            } else {
                self.member(key, value, place, depth, in_or)
            };
            match choices {
                Ok(choices) => combinations = product(combinations, &choices, place)?,
                // The others are read all the same: whoever mends a pattern wants to know all that is wrong with it.
                Err(error) => {
                    self.path.truncate(level);
                    self.note(error)?;
                }
            }
        }
        Ok(combinations)
    }

    /// Keeps what is wrong with one member, until there is too much of it.
    fn note(&mut self, error: PatternError) -> Result<(), PatternError> {
        if self.errors.len() + 1 >= MAX_ERRORS {
            return Err(error);
        }
        self.errors.push(error);
        Ok(())
    }

    fn member(
        &mut self,
        key: &str,
        value: &Json,
        place: Place<'_>,
        depth: usize,
        in_or: bool,
    ) -> Result<Choices, PatternError> {
        self.path.push(key.into());
        let choices = match value {
            Json::Object(members) => self.object(members, place, depth + 1, in_or)?,
            Json::Array(items) => {
                let path = std::mem::take(&mut self.path);
                let positions = match from_and_to(items) {
                    Some(wanted) => self.changed(&path, wanted, place),
                    None => self.field(&path, items, place).map(|position| vec![position]),
                };
                self.path = path;
                vec![positions?]
            }
            other => {
                return Err(place.error(format!("must be an array of values or an object, not {}", other.kind())));
            }
        };
        self.path.pop();
        Ok(choices)
    }

    /// Adds a field; gives its position.
    fn field(&mut self, path: &[Box<str>], items: &[Json], place: Place<'_>) -> Result<u16, PatternError> {
        let field = operators::field(path, items, place, &mut self.budget)?;
        let position =
            u16::try_from(self.fields.len()).map_err(|_| place.error("the pattern has more than 65,536 fields"))?;
        self.fields.push(field);
        Ok(position)
    }

    /// `{"changed": {"from": […], "to": […]}}`: changed, and what the old and the new value must be, each a field of
    /// its own.
    fn changed(
        &mut self,
        path: &[Box<str>],
        wanted: &[(String, Json)],
        place: Place<'_>,
    ) -> Result<Vec<u16>, PatternError> {
        let differs = [Json::Object(vec![("changed".to_owned(), Json::Bool(true))])];
        let mut positions = vec![self.field(path, &differs, place)?];
        let item = place.item(0);
        let place = item.key("changed");
        let Some((old, new)) = changed::both_sides(path) else { return Ok(positions) };
        if wanted.is_empty() {
            return Err(place.error("needs `from`, `to`, or both; or write true"));
        }
        refuse_repeated_keys(wanted, place)?;
        for (key, value) in wanted {
            let place = place.key(key);
            let path = match key.as_str() {
                "from" => &old,
                "to" => &new,
                _ => return Err(place.error("is unknown; there are `from` and `to`")),
            };
            let Json::Array(items) = value else {
                return Err(place.error(format!("must be an array of values, not {}", value.kind())));
            };
            positions.push(self.field(path, items, place)?);
        }
        Ok(positions)
    }

    fn or(&mut self, value: &Json, place: Place<'_>, depth: usize) -> Result<Choices, PatternError> {
        let Json::Array(items) = value else {
            return Err(place.error(format!("`$or` must be an array of objects, not {}", value.kind())));
        };
        if items.len() < 2 {
            return Err(place.error("`$or` needs at least two objects"));
        }
        let mut choices = Vec::new();
        for (i, item) in items.iter().enumerate() {
            let place = place.item(i);
            let Json::Object(members) = item else {
                return Err(place.error(format!("`$or` takes objects only, not {}", item.kind())));
            };
            match self.object(members, place, depth + 1, true) {
                Ok(mut alternative) => choices.append(&mut alternative),
                Err(error) => self.note(error)?,
            }
            check_combinations(choices.len(), place)?;
        }
        Ok(choices)
    }
}

impl<'a> Place<'a> {
    pub(super) fn key(&'a self, key: &'a str) -> Place<'a> {
        Place { before: Some(self), step: Step::Key(key) }
    }

    pub(super) fn item(&'a self, position: usize) -> Place<'a> {
        Place { before: Some(self), step: Step::Item(position) }
    }

    pub(super) fn error(&self, message: impl Into<String>) -> PatternError {
        let mut path = String::new();
        self.write(&mut path);
        PatternError { path, message: message.into() }
    }

    fn write(&self, out: &mut String) {
        if let Some(before) = self.before {
            before.write(out);
        }
        let plain = |key: &str| !key.is_empty() && key.chars().all(|c| c.is_alphanumeric() || "_-$".contains(c));
        // Writing to a String cannot fail.
        let _ = match self.step {
            Step::Top => write!(out, "$"),
            Step::Key(key) if plain(key) => write!(out, ".{key}"),
            Step::Key(key) => write!(out, "[{key:?}]"),
            Step::Item(position) => write!(out, "[{position}]"),
        };
    }
}

/// What stands in a list that consists of `changed` with an object.
fn from_and_to(items: &[Json]) -> Option<&[(String, Json)]> {
    let [Json::Object(operator)] = items else { return None };
    match operator.as_slice() {
        [(name, Json::Object(wanted))] if name == "changed" => Some(wanted),
        _ => None,
    }
}

/// Every key that is repeated in its object, at any depth.
pub(super) fn repeated_keys(text: &str) -> Vec<PatternError> {
    fn look(json: &Json, place: Place<'_>, found: &mut Vec<PatternError>) {
        match json {
            Json::Object(members) => {
                found.extend(refuse_repeated_keys(members, place).err());
                members.iter().for_each(|(key, value)| look(value, place.key(key), found));
            }
            Json::Array(items) => items.iter().enumerate().for_each(|(i, item)| look(item, place.item(i), found)),
            _ => {}
        }
    }
    let mut found = Vec::new();
    // What cannot be read at all is somebody else's to say.
    if let Ok(json) = serde_json::from_str::<Json>(text) {
        look(&json, Place { before: None, step: Step::Top }, &mut found);
    }
    found.truncate(MAX_ERRORS);
    found
}

/// Also used for operator objects, where a repeated operator would otherwise read as two operators.
pub(super) fn refuse_repeated_keys(members: &[(String, Json)], place: Place<'_>) -> Result<(), PatternError> {
    let mut keys: Vec<&str> = members.iter().map(|(key, _)| key.as_str()).collect();
    keys.sort_unstable();
    match keys.windows(2).find_map(|pair| (pair.first() == pair.last()).then(|| pair.first().copied())?) {
        Some(key) => Err(place.key(key).error("the key is repeated in this object")),
        None => Ok(()),
    }
}

fn product(left: Choices, right: &[Vec<u16>], place: Place<'_>) -> Result<Choices, PatternError> {
    check_combinations(left.len() * right.len(), place)?;
    let lengths = |side: &[Vec<u16>]| side.iter().map(Vec::len).sum::<usize>();
    if lengths(&left) * right.len() + lengths(right) * left.len() > MAX_COMBINED_FIELDS {
        return Err(place.error(format!("more than {MAX_COMBINED_FIELDS} field tests over all `$or` combinations")));
    }
    if let [only] = right {
        let mut left = left;
        left.iter_mut().for_each(|combination| combination.extend_from_slice(only));
        return Ok(left);
    }
    Ok(left.iter().flat_map(|a| right.iter().map(move |b| [a.as_slice(), b.as_slice()].concat())).collect())
}

fn check_combinations(count: usize, place: Place<'_>) -> Result<(), PatternError> {
    if count > MAX_COMBINATIONS {
        return Err(place.error(format!("more than {MAX_COMBINATIONS} `$or` combinations")));
    }
    Ok(())
}

fn weight(field: &Field) -> u32 {
    let whole_event = if field.changed.is_some() { 1_000 } else { 0 };
    let tests: u32 =
        field.tests.iter().map(|test| if matches!(test, Test::Wildcard(_) | Test::Net(_)) { 8 } else { 2 }).sum();
    whole_event + tests + field.path.len() as u32
}
