//! Judging values that could be read: ranges, addresses, names. A `Check` stands at one key and knows its place.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::ops::RangeInclusive;

use super::problem::{Problem, quote};
use super::read::LeftOut;
use super::tree::{Node, Value, join};
use super::values::{self, is_mailbox};

/// Bytes of names that are parts of keys.
const MAX_NAME: usize = 260;

/// What is wrong with a name that is not empty.
pub(super) type Judge = fn(&str) -> Result<(), String>;

/// For names of which no part of the house has a judgement of its own.
pub(super) fn plain_name(name: &str) -> Result<(), String> {
    if name.len() > MAX_NAME {
        return Err(format!("must be at most {MAX_NAME} bytes long, not {}", name.len()));
    }
    if name.chars().any(char::is_control) || name.trim() != name {
        return Err("must not have control characters, or blanks at its ends".to_owned());
    }
    Ok(())
}

pub(super) struct Check<'a> {
    /// The nearest value that was written: the key itself, or what surrounds it.
    here: &'a Node,
    /// The key's path, where the key itself was not written.
    unwritten: Option<String>,
    left_out: &'a LeftOut,
    /// The value was faulty and is already reported; what stands here is a default.
    muted: bool,
    problems: &'a mut Vec<Problem>,
}

impl<'a> Check<'a> {
    pub(super) fn new(root: &'a Node, left_out: &'a LeftOut, problems: &'a mut Vec<Problem>) -> Self {
        Self { here: root, unwritten: None, left_out, muted: false, problems }
    }

    /// How many problems there are so far.
    pub(super) fn count(&self) -> usize {
        self.problems.len()
    }

    /// Whether something was said, since there were `before` problems, of the key at a path, of what it is in, or of what is
    /// in it.
    pub(super) fn said_of(&mut self, path: &str, before: usize) -> bool {
        if !path.is_empty() {
            return self.further_in(path, |check, rest| check.said_of(rest, before));
        }
        let is_in = |inner: &str, outer: &str| {
            inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        };
        let later = self.problems.get(before..).unwrap_or_default();
        later.iter().any(|problem| is_in(&problem.key, self.at()) || is_in(self.at(), &problem.key))
    }

    /// The same check, one key further in.
    pub(super) fn key(&mut self, key: &str) -> Check<'_> {
        let entry = match &self.here.value {
            Value::Table(entries) if self.unwritten.is_none() => entries.iter().find(|entry| entry.key == key),
            _ => None,
        };
        let path = join(self.at(), key);
        self.enter(entry.map(|entry| &entry.node), path)
    }

    /// The same check at an element of a list, counted as in the typed list: without what was left out.
    pub(super) fn item(&mut self, index: usize) -> Check<'_> {
        let left_out = self.left_out;
        let node = match &self.here.value {
            Value::Array(items) if self.unwritten.is_none() => {
                items.iter().filter(|node| !left_out.contains(&node.id)).nth(index)
            }
            _ => None,
        };
        let path = format!("{}[{index}]", self.at());
        self.enter(node, path)
    }

    fn enter<'b>(&'b mut self, node: Option<&'b Node>, path: String) -> Check<'b> {
        let left_out = node.is_some_and(|node| self.left_out.contains(&node.id));
        let (here, unwritten) = match node {
            Some(node) => (node, None),
            None => (self.here, Some(path)),
        };
        let muted = self.muted || left_out;
        Check { here, unwritten, left_out: self.left_out, muted, problems: self.problems }
    }

    /// Reports a key further in by its path, `amqp.keys[0].key`.
    pub(super) fn problem_at(&mut self, path: &str, predicate: &dyn Display) {
        if path.is_empty() {
            return self.problem(predicate);
        }
        self.further_in(path, |check, rest| check.problem_at(rest, predicate));
    }

    /// Does something at the first step of a path, with the rest of it.
    fn further_in<T>(&mut self, path: &str, act: impl FnOnce(&mut Check<'_>, &str) -> T) -> T {
        let (step, rest) = path.split_once('.').unwrap_or((path, ""));
        let (key, index) = step.split_once('[').unwrap_or((step, ""));
        let mut child = self.key(key);
        match index.trim_end_matches(']').parse() {
            Ok(index) => act(&mut child.item(index), rest),
            Err(_) => act(&mut child, rest),
        }
    }

    /// Every table of a list: its name, then its own check.
    pub(super) fn list<T>(
        &mut self,
        key: &str,
        list: &[T],
        (name, judge): (impl Fn(&T) -> &str, Judge),
        check: impl Fn(&T, &mut Check<'_>),
    ) {
        let mut tables = self.key(key);
        tables.names(list.iter().map(name), judge);
        for (index, table) in list.iter().enumerate() {
            check(table, &mut tables.item(index));
        }
    }

    /// Whether the key itself was written.
    pub(super) fn is_written(&self) -> bool {
        self.unwritten.is_none()
    }

    /// Whether what was written could not be read; that is said already.
    pub(super) fn is_faulty(&self) -> bool {
        self.muted
    }

    fn at(&self) -> &str {
        self.unwritten.as_deref().unwrap_or(&self.here.path)
    }

    /// Reports the key, with the rest of a sentence that begins with it.
    pub(super) fn problem(&mut self, predicate: impl Display) {
        if !self.muted {
            let path = self.at();
            let problem = Problem::new(self.here.place.as_ref(), path, format!("`{path}` {predicate}"));
            self.problems.push(problem);
        }
    }

    pub(super) fn range<T: PartialOrd + Display>(&mut self, value: T, range: RangeInclusive<T>) {
        if !range.contains(&value) {
            self.problem(format_args!("must be from {} to {}, not {value}", range.start(), range.end()));
        }
    }

    pub(super) fn name(&mut self, name: &str) {
        self.named(name, plain_name);
    }

    fn named(&mut self, name: &str, judge: Judge) {
        if name.is_empty() {
            self.problem("is missing");
        } else if let Err(why) = judge(name) {
            self.problem(why);
        }
    }

    /// Each name given, good, and none twice, in a list of tables.
    pub(super) fn names<'n>(&mut self, names: impl Iterator<Item = &'n str>, judge: Judge) {
        let mut seen = BTreeSet::new();
        for (index, name) in names.enumerate() {
            let mut item = self.item(index);
            let mut check = item.key("name");
            check.named(name, judge);
            if !name.is_empty() && !seen.insert(name) {
                check.problem(format_args!("is {}, which another one has already", quote(name)));
            }
        }
    }

    /// A full URL with a host. Never shows the URL, which may hold a password.
    pub(super) fn url(&mut self, url: &str, schemes: &[&str]) {
        if let Err(why) = values::url(url, schemes) {
            self.problem(why);
        }
    }

    /// A URL that may hold `{{ templates }}`.
    pub(super) fn url_template(&mut self, url: &str, schemes: &[&str]) {
        match without_templates(url) {
            Some(url) => self.url(&url, schemes),
            None => self.problem("has a `{{` without its `}}`"),
        }
    }

    pub(super) fn mailbox(&mut self, text: &str) {
        if !is_mailbox(text) {
            self.problem(format_args!("must be an e-mail address like `ops@example.com`, not {}", quote(text)));
        }
    }

    /// Each of a list of addresses, which may be templates.
    pub(super) fn mailboxes(&mut self, list: &[String]) {
        for (index, text) in list.iter().enumerate() {
            if !text.contains("{{") {
                self.item(index).mailbox(text);
            }
        }
    }

    pub(super) fn not_blank(&mut self, list: &[String]) {
        for (index, text) in list.iter().enumerate() {
            if text.trim().is_empty() {
                self.item(index).problem("is empty");
            }
        }
    }
}

fn without_templates(text: &str) -> Option<String> {
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("{{") {
        let (_, after) = after.split_once("}}")?;
        plain.push_str(before);
        plain.push('x');
        rest = after;
    }
    plain.push_str(rest);
    Some(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_in_urls_are_passed_over() {
        assert_eq!(without_templates("http://a/{{ b }}/c").as_deref(), Some("http://a/x/c"));
        assert_eq!(without_templates("http://a/{{ b"), None);
    }
}
