//! Templates over an event: titles, texts, recipients. A sandbox: no I/O, no includes, bounded steps and output.
//!
//! The engine's own bound on steps does not bound what one step may build, so whatever makes text longer is left out:
//! no `set`, no macros, no `*`, `~` or `+`, and of the filters only those whose result is no longer than what goes in.
//! An event's data is a value like any other and never read as a template.

use std::io;
use std::sync::LazyLock;

use minijinja::value::{Value, ValueKind};
use minijinja::{AutoEscape, Environment, ErrorKind, UndefinedBehavior, filters, tests};

use super::limits::{RENDERED_BYTES, TEMPLATE_BYTES, TEMPLATE_FUEL};
use crate::channel::byte_prefix;

/// Statements that a template may use.
const STATEMENTS: [&str; 6] = ["if", "elif", "else", "endif", "for", "endfor"];
/// Filters and tests that there are, and words that may stand before a bracket without being functions.
const FILTERS: [&str; 15] = [
    "abs",
    "capitalize",
    "default",
    "escape",
    "first",
    "int",
    "join",
    "last",
    "length",
    "lower",
    "round",
    "title",
    "trim",
    "truncate",
    "upper",
];
const TESTS: [&str; 5] = ["defined", "none", "number", "string", "undefined"];
const WORDS: [&str; 10] = ["if", "elif", "else", "for", "in", "is", "not", "and", "or", "loop"];
/// The name of a template whose output is HTML; any other's is plain text.
const HTML: &str = "html";
const PLAIN: &str = "plain";
/// The name of a template that is an address: what comes from the event is one part of its path or query.
const URL: &str = "url";
/// The same for one that is worth nothing unless every part is there.
const LINK: &str = "link";

/// A checked template.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Template {
    source: Box<str>,
    /// There is nothing to fill in.
    fixed: bool,
}

/// An event as templates see it. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Fields(Value);

impl Fields {
    /// The envelope's fields from its JSON text.
    #[must_use]
    pub fn of(json: &str) -> Self {
        Self(serde_json::from_str(json).unwrap_or_default())
    }
}

impl Template {
    /// Reads a template, or says what is wrong with it and where.
    pub fn parse(source: &str) -> Result<Self, String> {
        let template = Self::parse_stored(source)?;
        check_names(source)?;
        Ok(template)
    }

    /// The same for one that was accepted before: what it names may be unknown by now, and is told of when it is used.
    pub fn parse_stored(source: &str) -> Result<Self, String> {
        if source.len() > TEMPLATE_BYTES {
            return Err(format!("has {} bytes, at most {TEMPLATE_BYTES} are allowed", source.len()));
        }
        check_source(source)?;
        let parsed = ENGINE.template_from_named_str(PLAIN, source);
        parsed.map_err(|error| {
            let line = error.line().map(|line| format!(" in line {line}")).unwrap_or_default();
            let why = error.detail().map_or_else(|| error.kind().to_string(), ToOwned::to_owned);
            format!("is no template{line}: {why}")
        })?;
        Ok(Self { source: source.into(), fixed: is_fixed(source) })
    }

    #[must_use]
    pub fn source(&self) -> &str {
        &self.source
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.source.trim().is_empty()
    }

    /// Whether there are tags in it: a `<` alone compares two values, and an address may stand in angle brackets.
    #[must_use]
    pub fn has_markup(&self) -> bool {
        self.source.split('<').skip(1).any(|rest| {
            let name = rest.strip_prefix('/').unwrap_or(rest);
            let behind = name.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || c == '-');
            name.starts_with(|c: char| c.is_ascii_alphabetic()) && behind.starts_with(['>', '/', ' ', '\t', '\r', '\n'])
        })
    }

    /// Whether it gives the same for every event.
    #[must_use]
    pub fn is_fixed(&self) -> bool {
        self.fixed
    }

    /// As plain text, without control characters other than line ends and tabs.
    pub fn text(&self, fields: &Fields) -> Result<String, String> {
        let text = if self.fixed { self.source.to_string() } else { self.render(PLAIN, fields)? };
        Ok(clean(&text))
    }

    /// As one line of plain text.
    pub fn line(&self, fields: &Fields) -> Result<String, String> {
        Ok(one_line(&self.text(fields)?))
    }

    /// As HTML: what comes from the event is escaped, the template's own markup stays.
    pub fn html(&self, fields: &Fields) -> Result<String, String> {
        Ok(clean(&self.render(HTML, fields)?))
    }

    /// As an address: what comes from the event is percent-encoded.
    pub fn url(&self, fields: &Fields) -> Result<String, String> {
        if self.fixed { Ok(self.source.to_string()) } else { self.render(URL, fields) }
    }

    /// The same, or nothing where something that it shows is not there or empty: it would lead elsewhere.
    #[must_use]
    pub fn link(&self, fields: &Fields) -> Option<String> {
        if self.fixed { Some(self.source.to_string()) } else { self.render(LINK, fields).ok() }
    }

    /// As a list of names: a template that is a single expression may give a list; anything else is one name. Names are as
    /// the event has them, so that one which can be none is not made into another; what can be none is an empty name.
    pub fn names(&self, fields: &Fields) -> Result<Vec<String>, String> {
        let source = self.source.trim();
        let lone = source.strip_prefix("{{").and_then(|rest| rest.strip_suffix("}}")).filter(|e| !e.contains("}}"));
        let Some(expression) = lone.filter(|_| !self.fixed) else {
            let name = if self.fixed { self.source.to_string() } else { self.render(PLAIN, fields)? };
            let name = name.trim();
            // A template may have nobody to name for this event.
            return Ok(if name.is_empty() { Vec::new() } else { vec![name.to_owned()] });
        };
        let value = ENGINE.compile_expression(expression.trim_matches('-'));
        let value = value.and_then(|e| e.eval(fields.0.clone())).map_err(|error| failure(&error))?;
        match value.kind() {
            ValueKind::Seq => {
                Ok(value.try_iter().map_err(|error| failure(&error))?.map(|name| lone_name(&name)).collect())
            }
            // Nobody is named, and nobody left out.
            ValueKind::Undefined | ValueKind::None => Ok(Vec::new()),
            _ => Ok(vec![lone_name(&value)]),
        }
    }

    fn render(&self, kind: &str, fields: &Fields) -> Result<String, String> {
        let mut output = Bounded(Vec::new());
        let template = ENGINE.template_from_named_str(kind, &self.source).map_err(|error| failure(&error))?;
        let rendered = template.render_captured_to(fields.0.clone(), &mut output).map(drop);
        let full = output.0.len() >= RENDERED_BYTES;
        match rendered {
            Ok(()) => {}
            // The writer refused more: what fits is what there is.
            Err(error) if full && error.kind() == ErrorKind::WriteFailure => {}
            Err(error) => return Err(failure(&error)),
        }
        let mut text = String::from_utf8_lossy(&output.0).into_owned();
        if full {
            // A character may have been cut in two.
            text.truncate(text.trim_end_matches('\u{fffd}').len());
        }
        Ok(text)
    }
}

static ENGINE: LazyLock<Environment<'static>> = LazyLock::new(|| {
    let mut engine = Environment::empty();
    engine.set_undefined_behavior(UndefinedBehavior::Chainable);
    engine.set_fuel(Some(TEMPLATE_FUEL));
    engine.set_recursion_limit(50);
    engine.set_auto_escape_callback(|name| match name {
        HTML => AutoEscape::Html,
        URL => AutoEscape::Custom(URL.into()),
        LINK => AutoEscape::Custom(LINK.into()),
        _ => AutoEscape::None,
    });
    engine.set_formatter(|output, state, value| {
        let value = if value.is_none() { &Value::UNDEFINED } else { value };
        match state.auto_escape() {
            AutoEscape::Custom(kind) => {
                let text = value.to_string();
                if kind == LINK && text.trim().is_empty() {
                    return Err(minijinja::Error::new(ErrorKind::UndefinedError, "a part of the link is missing"));
                }
                Ok(output.write_str(&percent_encode(&text))?)
            }
            _ => minijinja::escape_formatter(output, state, value),
        }
    });
    engine.add_filter("upper", filters::upper);
    engine.add_filter("lower", filters::lower);
    engine.add_filter("title", filters::title);
    engine.add_filter("capitalize", filters::capitalize);
    engine.add_filter("trim", filters::trim);
    engine.add_filter("length", filters::length);
    engine.add_filter("default", filters::default);
    engine.add_filter("first", filters::first);
    engine.add_filter("last", filters::last);
    engine.add_filter("round", filters::round);
    engine.add_filter("int", filters::int);
    engine.add_filter("abs", filters::abs);
    engine.add_filter("escape", filters::escape);
    engine.add_filter("join", join);
    engine.add_filter("truncate", truncate);
    engine.add_test("defined", tests::is_defined);
    engine.add_test("undefined", tests::is_undefined);
    engine.add_test("none", tests::is_none);
    engine.add_test("string", tests::is_string);
    engine.add_test("number", tests::is_number);
    engine
});

/// The elements with a separator between them, up to the bound on output.
fn join(list: Value, separator: Option<String>) -> Result<String, minijinja::Error> {
    let mut joined = String::new();
    for (place, element) in list.try_iter()?.enumerate() {
        if joined.len() >= RENDERED_BYTES {
            break;
        }
        if place > 0 {
            joined.push_str(separator.as_deref().unwrap_or_default());
        }
        joined.push_str(&element.to_string());
    }
    Ok(joined)
}

fn truncate(text: String, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text,
    }
}

fn percent_encode(text: &str) -> String {
    let encoded: String = form_urlencoded::byte_serialize(text.as_bytes()).collect();
    encoded.replace('+', "%20")
}

/// The name that a value is; an object or a list is none.
fn lone_name(value: &Value) -> String {
    match value.kind() {
        ValueKind::String | ValueKind::Number | ValueKind::Bool => {
            byte_prefix(value.to_string().trim(), RENDERED_BYTES).to_owned()
        }
        _ => String::new(),
    }
}

/// Output that ends at the bound.
struct Bounded(Vec<u8>);

impl io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = RENDERED_BYTES.saturating_sub(self.0.len());
        if room == 0 {
            return Err(io::Error::other("the output is too long"));
        }
        let fitting = bytes.get(..room).unwrap_or(bytes);
        self.0.extend_from_slice(fitting);
        Ok(fitting.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn failure(error: &minijinja::Error) -> String {
    error.detail().map_or_else(|| error.kind().to_string(), |detail| format!("{}: {detail}", error.kind()))
}

fn is_fixed(source: &str) -> bool {
    !["{{", "{%", "{#"].iter().any(|mark| source.contains(mark))
}

/// Refuses what could make text grow faster than steps are counted.
fn check_source(source: &str) -> Result<(), String> {
    let mut rest = source;
    while let Some(start) = rest.find('{') {
        rest = rest.get(start + 1..).unwrap_or_default();
        let (end, statement) = match rest.as_bytes().first() {
            Some(b'{') => ("}}", false),
            Some(b'%') => ("%}", true),
            Some(b'#') => {
                rest = rest.split_once("#}").map_or("", |(_, after)| after);
                continue;
            }
            _ => continue,
        };
        let inside = rest.get(1..).unwrap_or_default();
        if statement {
            let words = inside.trim_start_matches(['-', '+']).trim_start();
            let word: String = words.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            if !STATEMENTS.contains(&word.as_str()) {
                return Err(format!("has the statement `{word}`; there are only if, elif, else and for"));
            }
        }
        rest = check_expression(inside, end)?;
    }
    Ok(())
}

/// Checks an expression up to its end; gives what follows it.
fn check_expression<'a>(inside: &'a str, end: &str) -> Result<&'a str, String> {
    let mut quote = None;
    let mut escaped = false;
    for (place, c) in inside.char_indices() {
        match quote {
            Some(_) if escaped => escaped = false,
            Some(_) if c == '\\' => escaped = true,
            Some(open) if c == open => quote = None,
            Some(_) => {}
            None if inside.get(place..).is_some_and(|rest| rest.starts_with(end)) => {
                return Ok(inside.get(place + end.len()..).unwrap_or_default());
            }
            None if c == '"' || c == '\'' => quote = Some(c),
            // `{%+` and `+%}` control blanks and compute nothing; they are not worth telling apart. Braces would make it
            // unclear to this reader where the expression ends.
            None if matches!(c, '*' | '~' | '+' | '{') => {
                return Err(format!("uses `{c}`; templates show fields and compute nothing"));
            }
            None => {}
        }
    }
    // The engine says better what is missing.
    Ok("")
}

/// Refuses filters, tests and functions that there are not: a slip of the pen should be seen when the rule is written, not
/// when it is needed.
fn check_names(source: &str) -> Result<(), String> {
    let mut rest = source;
    while let Some(start) = rest.find('{') {
        rest = rest.get(start + 1..).unwrap_or_default();
        let end = match rest.as_bytes().first() {
            Some(b'{') => "}}",
            Some(b'%') => "%}",
            Some(b'#') => {
                rest = rest.split_once("#}").map_or("", |(_, after)| after);
                continue;
            }
            _ => continue,
        };
        let inside = rest.get(1..).unwrap_or_default();
        rest = check_expression(inside, end)?;
        let tokens = tokens(inside.get(..inside.len() - rest.len()).unwrap_or_default());
        for place in 0..tokens.len() {
            let token = |place: Option<usize>| place.and_then(|place| tokens.get(place)).copied().unwrap_or_default();
            let before = |by: usize| token(place.checked_sub(by));
            check_name_at(token(Some(place)), [before(2), before(1)], token(Some(place + 1)))?;
        }
    }
    Ok(())
}

/// Checks one token by the two before it and the one after it.
fn check_name_at(name: &str, before: [&str; 2], after: &str) -> Result<(), String> {
    if !name.starts_with(|c: char| c.is_alphabetic() || c == '_') {
        return Ok(());
    }
    match before {
        [_, "|"] if FILTERS.contains(&name) => Ok(()),
        [_, "|"] => Err(format!("uses the filter `{name}`; there are {}", FILTERS.join(", "))),
        // A field of that name.
        [".", "is"] => Ok(()),
        [_, "is"] if name == "not" || TESTS.contains(&name) => Ok(()),
        ["is", "not"] if TESTS.contains(&name) => Ok(()),
        [_, "is"] | ["is", "not"] => Err(format!("uses the test `{name}`; there are {}", TESTS.join(", "))),
        ["loop", "."] => Ok(()),
        _ if after == "(" && (before[1] == "." || !WORDS.contains(&name)) => {
            Err(format!("calls `{name}`; there are filters, as in {{{{ data.name|upper }}}}, and no functions"))
        }
        _ => Ok(()),
    }
}

/// The words and signs of an expression; what stands in quotes is one sign, and says nothing.
fn tokens(expression: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    let mut rest = expression.trim_start();
    while let Some(first) = rest.chars().next() {
        let word = |c: char| c.is_alphanumeric() || c == '_';
        let end = match first {
            '"' | '\'' => {
                let mut escaped = false;
                let closing = rest.char_indices().skip(1).find(|(_, c)| {
                    let closes = *c == first && !escaped;
                    escaped = *c == '\\' && !escaped;
                    closes
                });
                tokens.push("\"");
                let end = closing.map_or(rest.len(), |(place, _)| place + 1);
                rest = rest.get(end..).unwrap_or_default().trim_start();
                continue;
            }
            c if word(c) => rest.find(|c| !word(c)).unwrap_or(rest.len()),
            c => c.len_utf8(),
        };
        let (token, after) = rest.split_at(end);
        tokens.push(token);
        rest = after.trim_start();
    }
    tokens
}

/// Without control characters other than line ends and tabs: they have no business in a notice. A lone carriage return
/// ends a line, too.
fn clean(text: &str) -> String {
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    text.chars().filter(|c| !c.is_control() || matches!(c, '\n' | '\t')).collect()
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").chars().filter(|c| !c.is_control()).collect()
}

#[cfg(test)]
#[path = "template_tests.rs"]
mod unit;
