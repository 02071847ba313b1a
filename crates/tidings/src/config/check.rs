//! Judging values that could be read: ranges, addresses, names. A `Check` stands at one key and knows its place.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::ops::RangeInclusive;

use http::Uri;

use super::problem::{Problem, quote};
use super::read::LeftOut;
use super::tree::{Node, Value, join};

/// Names of queues, rules and the like appear in paths and logs.
const MAX_NAME: usize = 260;

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
        let (step, rest) = path.split_once('.').unwrap_or((path, ""));
        let (key, index) = step.split_once('[').unwrap_or((step, ""));
        let mut child = self.key(key);
        match index.trim_end_matches(']').parse() {
            Ok(index) => child.item(index).problem_at(rest, predicate),
            Err(_) => child.problem_at(rest, predicate),
        }
    }

    /// Every table of a list: its name, then its own check.
    pub(super) fn list<T>(
        &mut self,
        key: &str,
        list: &[T],
        name: impl Fn(&T) -> &str,
        check: impl Fn(&T, &mut Check<'_>),
    ) {
        let mut tables = self.key(key);
        tables.names(list.iter().map(name));
        for (index, table) in list.iter().enumerate() {
            check(table, &mut tables.item(index));
        }
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
        if name.is_empty() {
            self.problem("is missing");
        } else if name.len() > MAX_NAME {
            self.problem(format_args!("must be at most {MAX_NAME} bytes long, not {}", name.len()));
        } else if name.chars().any(|c| c.is_control()) || name.trim() != name {
            self.problem("must not have control characters, or blanks at its ends");
        }
    }

    /// Each name given, and none twice, in a list of tables.
    pub(super) fn names<'n>(&mut self, names: impl Iterator<Item = &'n str>) {
        let mut seen = BTreeSet::new();
        for (index, name) in names.enumerate() {
            let mut item = self.item(index);
            let mut check = item.key("name");
            check.name(name);
            if !name.is_empty() && !seen.insert(name) {
                check.problem(format_args!("is {}, which another one has already", quote(name)));
            }
        }
    }

    /// A full URL with a host. Never shows the URL, which may hold a password.
    pub(super) fn url(&mut self, url: &str, schemes: &[&str]) {
        if let Err(why) = check_url(url, schemes) {
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

fn check_url(url: &str, schemes: &[&str]) -> Result<(), String> {
    let expected = || schemes.iter().map(|scheme| format!("{scheme}://")).collect::<Vec<_>>().join(" or ");
    let uri: Uri = url.parse().map_err(|_| format!("must be a URL that begins with {}", expected()))?;
    let scheme = uri.scheme_str().unwrap_or_default();
    if !schemes.contains(&scheme) {
        return Err(format!("must be a URL that begins with {}", expected()));
    }
    match uri.authority() {
        Some(authority) if !authority.host().is_empty() => {
            // `Uri` accepts any digits as a port.
            let after_host = authority.as_str().rsplit('@').next().unwrap_or_default();
            let port = after_host.strip_prefix(authority.host()).unwrap_or_default();
            match port.strip_prefix(':').map(str::parse::<u16>) {
                Some(Err(_) | Ok(0)) => Err("must have a port from 1 to 65535".to_owned()),
                _ => Ok(()),
            }
        }
        _ => Err("must name a host".to_owned()),
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

/// `ops@example.com` or `Operations <ops@example.com>`. The shape only: the mail server has the last word.
pub(super) fn is_mailbox(text: &str) -> bool {
    let address = match text.split_once('<') {
        Some((_, rest)) => match rest.strip_suffix('>') {
            Some(address) => address,
            None => return false,
        },
        None => text,
    };
    let Some((local, domain)) = address.rsplit_once('@') else { return false };
    let odd = |c: char| c.is_whitespace() || c.is_control() || matches!(c, '<' | '>' | ',' | ';' | '@' | '"');
    !local.is_empty()
        && local.len() <= 64
        && !local.contains(odd)
        && !domain.is_empty()
        && domain.len() <= 255
        && !domain.contains(odd)
        && domain.split('.').all(|label| !label.is_empty())
        && !text.chars().any(char::is_control)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mailboxes_are_recognised_by_their_shape() {
        for good in ["tidings@localhost", "a@b.c", "Ops Team <ops@example.com>", "a+b@xn--bcher-kva.example"] {
            assert!(is_mailbox(good), "{good}");
        }
        let long = format!("{}@b.c", "a".repeat(65));
        for bad in ["", "a", "@b.c", "a@", "a@b..c", "a b@c.d", "x <a@b.c", "a@b.c\r\nBcc: d@e.f", "a@b@c", &long] {
            assert!(!is_mailbox(bad), "{bad}");
        }
        assert!(is_mailbox(&format!("{}@b.c", "a".repeat(64))));
    }

    #[test]
    fn urls_need_scheme_host_and_a_real_port() {
        let web = ["http", "https"];
        for good in ["http://a", "https://a.b:443/x?y=z", "http://[::1]:80/", "http://u:p@host:1/", "http://h:65535"] {
            assert_eq!(check_url(good, &web), Ok(()), "{good}");
        }
        for bad in ["", "a", "/x", "ftp://a", "http://", "http://a:0", "http://a:65536", "http://a b", "http:a"] {
            assert!(check_url(bad, &web).is_err(), "{bad}");
        }
        assert_eq!(without_templates("http://a/{{ b }}/c").as_deref(), Some("http://a/x/c"));
        assert_eq!(without_templates("http://a/{{ b"), None);
    }
}
