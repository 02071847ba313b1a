//! From JSON to a rule: every field that is wrong is named, with its place.

use serde_json::{Map, Value};
use tidings_core::envelope::{FieldError, check_name};
use tidings_core::pattern::{Pattern, repeated_keys};

use super::limits::{
    ADDRESSES, DEDUPE_SECONDS, EXCLUDED, GROUPS, NAME_CHARS, RULE_BYTES, TARGETS, URL_CHARS, USER_CHARS,
};
use super::rule::{Exclusion, Recipients, Rule, Target};
use super::template::Template;
use crate::bus::path as bus;
use crate::channel::webhook::signature;
use crate::config::{Secret, values};
use crate::inbox::record::MAP;
use crate::origin::Origin;

/// Reads a rule. A secret given as `***` is the one that `before` has for the same URL.
pub fn rule(
    name: &str,
    fields: &Map<String, Value>,
    origin: Origin,
    before: Option<&Rule>,
) -> Result<Rule, Vec<FieldError>> {
    whole(name, fields, origin, Reader { errors: Vec::new(), before, stored: false })
}

/// Reads a rule that was accepted once. What has been refused only since then is left as it is.
pub fn stored(name: &str, fields: &Map<String, Value>) -> Result<Rule, Vec<FieldError>> {
    whole(name, fields, Origin::Api, Reader { errors: Vec::new(), before: None, stored: true })
}

fn whole(
    name: &str,
    fields: &Map<String, Value>,
    origin: Origin,
    mut reader: Reader<'_>,
) -> Result<Rule, Vec<FieldError>> {
    if let Err(why) = check_rule_name(name) {
        reader.wrong("name", why);
    } else if RESERVED.contains(&name) {
        reader.wrong_by_now("name", format!("must not be `{name}`"));
    } else if fields.get("name").is_some_and(|given| !given.is_null() && given.as_str() != Some(name)) {
        reader.wrong("name", "must be the name in the path, or be left out");
    }
    let pattern_json = fields.get("pattern").and_then(Value::as_object).cloned().unwrap_or_default();
    let pattern = reader.pattern(fields.get("pattern"));
    let exclusion = reader.exclusion(fields);
    let targets = if exclusion.is_some() { Vec::new() } else { reader.targets(fields.get("targets")) };
    let rule = Rule {
        name: name.to_owned(),
        enabled: reader.flag(fields, "enabled", true),
        title: reader.optional_template("title", fields.get("title")),
        text: reader.optional_template("text", fields.get("text")),
        link: reader.link(fields.get("link")),
        dedupe_seconds: reader.number(fields, "dedupe_seconds", DEDUPE_SECONDS),
        dedupe_key: fields
            .get("dedupe_key")
            .map(|key| reader.optional_template("dedupe_key", Some(key)))
            .filter(|key| !key.is_empty()),
        pattern_json,
        fixed: super::rule::fixed(&targets),
        targets,
        exclusion,
        origin,
        pattern: match pattern {
            Some(pattern) => pattern,
            None => return Err(reader.errors),
        },
    };
    if reader.errors.is_empty() && rule.stored().len() > RULE_BYTES {
        reader.wrong("", format!("the rule has more than {RULE_BYTES} bytes; use the notification map for long lists"));
    }
    if reader.errors.is_empty() { Ok(rule) } else { Err(reader.errors) }
}

/// All that is wrong, for a log or an error.
#[must_use]
pub fn in_one_line(errors: &[FieldError]) -> String {
    errors.iter().map(|error| format!("{} {}", error.field, error.message)).collect::<Vec<_>>().join("; ")
}

/// A name appears in paths, logs and `rule:<name>`.
pub fn check_rule_name(name: &str) -> Result<(), String> {
    check_name(name, NAME_CHARS)?;
    if name.trim() != name {
        return Err("must not have blanks at its ends".to_owned());
    }
    if name.contains(['/', '\\', '?', '#', '%']) {
        return Err("must not contain / \\ ? # or %".to_owned());
    }
    // `/rules/test` is a call of its own.
    if name == "test" { Err("must not be `test`".to_owned()) } else { Ok(()) }
}

/// Names whose addresses lead elsewhere: pages of the dashboard, and what every client takes for a folder.
const RESERVED: [&str; 4] = ["new", "try", ".", ".."];

/// Reads a pattern; each error names its place in it.
pub fn pattern(value: Option<&Value>) -> Result<Pattern, Vec<FieldError>> {
    let Some(value) = value.filter(|value| !value.is_null()) else {
        return Err(vec![FieldError::new("pattern", "is missing; it says which events the rule is for")]);
    };
    pattern_text(&value.to_string())
}

/// Reads the text of a pattern.
pub fn pattern_text(text: &str) -> Result<Pattern, Vec<FieldError>> {
    Pattern::parse_all(text).map_err(|errors| {
        let places = errors.into_iter().map(|error| {
            let place = error.path.strip_prefix('$').unwrap_or(&error.path);
            FieldError::new(format!("pattern{place}"), error.message)
        });
        places.collect()
    })
}

/// Keys that stand twice in the text of one field.
#[must_use]
pub fn repeated_in(field: &str, text: &str) -> Vec<FieldError> {
    let named = |path: &str| format!("{field}{}", path.strip_prefix('$').unwrap_or(path));
    repeated_keys(text).into_iter().map(|error| FieldError::new(named(&error.path), error.message)).collect()
}

/// Keys that stand twice in the text of a body: a pattern that says two things about a field says neither. In an event
/// the last one counts, as it would if it was sent.
pub fn refuse_repeated_keys(text: &str) -> Result<(), Vec<FieldError>> {
    let mut repeated = Vec::new();
    for error in repeated_keys(text) {
        let place = error.path.strip_prefix('$').unwrap_or(&error.path);
        let place = place.strip_prefix('.').unwrap_or(place);
        if !place.starts_with("event.") {
            repeated.push(FieldError::new(place, error.message));
        }
    }
    if repeated.is_empty() { Ok(()) } else { Err(repeated) }
}

struct Reader<'a> {
    errors: Vec<FieldError>,
    before: Option<&'a Rule>,
    /// It is being read from the store.
    stored: bool,
}

impl Reader<'_> {
    fn wrong(&mut self, field: impl Into<String>, message: impl Into<String>) {
        self.errors.push(FieldError::new(field, message));
    }

    /// Something that used to be accepted.
    fn wrong_by_now(&mut self, field: impl Into<String>, message: impl Into<String>) {
        if !self.stored {
            self.wrong(field, message);
        }
    }

    fn pattern(&mut self, value: Option<&Value>) -> Option<Pattern> {
        pattern(value).map_err(|errors| self.errors.extend(errors)).ok()
    }

    fn flag(&mut self, fields: &Map<String, Value>, name: &str, default: bool) -> bool {
        match fields.get(name) {
            None | Some(Value::Null) => default,
            Some(Value::Bool(flag)) => *flag,
            Some(_) => {
                self.wrong(name, "must be true or false");
                default
            }
        }
    }

    fn number(&mut self, fields: &Map<String, Value>, name: &str, most: u64) -> u64 {
        match fields.get(name) {
            None | Some(Value::Null) => 0,
            Some(value) => value.as_u64().filter(|number| *number <= most).unwrap_or_else(|| {
                self.wrong(name, format!("must be a whole number from 0 to {most}"));
                0
            }),
        }
    }

    fn optional_template(&mut self, field: &str, value: Option<&Value>) -> Template {
        match value {
            None | Some(Value::Null) => Template::default(),
            Some(value) => self.template(field, value),
        }
    }

    fn template(&mut self, field: &str, value: &Value) -> Template {
        let parsed = value
            .as_str()
            .ok_or_else(|| "must be a string".to_owned())
            .and_then(|text| if self.stored { Template::parse_stored(text) } else { Template::parse(text) });
        parsed.unwrap_or_else(|why| {
            self.wrong(field, why);
            Template::default()
        })
    }

    /// An address that people open. As with a webhook, an event chooses where on a site it leads, never the site.
    fn link(&mut self, value: Option<&Value>) -> Option<Template> {
        let before = self.errors.len();
        let link = self.optional_template("link", value);
        if link.is_empty() {
            return None;
        }
        if let Err(why) = check_url(link.source())
            && self.errors.len() == before
        {
            self.wrong("link", why);
        }
        Some(link)
    }

    /// `Some` if the fields are meant as an exclude rule, even a wrong one.
    fn exclusion(&mut self, fields: &Map<String, Value>) -> Option<Exclusion> {
        let is = |name: &str| fields.get(name).is_some_and(|value| !is_nothing(value));
        if !self.flag(fields, "exclude", false) {
            for name in ["reason", "rules"].into_iter().filter(|name| is(name)) {
                self.wrong(name, "means something only in a rule with `exclude` true");
            }
            return None;
        }
        let telling = ["targets", "title", "text", "link", "dedupe_seconds", "dedupe_key"];
        for name in telling.into_iter().filter(|name| is(name)) {
            self.wrong(name, "means nothing in an exclude rule, which tells nobody");
        }
        let before = self.errors.len();
        let reason = self.optional_template("reason", fields.get("reason"));
        if reason.source().trim().is_empty() && self.errors.len() == before {
            self.wrong("reason", "is missing; it is recorded with everything that the rule keeps back");
        }
        let rules = match fields.get("rules") {
            None | Some(Value::Null) => Vec::new(),
            Some(rules) => self.names("rules", rules, EXCLUDED),
        };
        Some(Exclusion { reason, rules })
    }

    fn targets(&mut self, value: Option<&Value>) -> Vec<Target> {
        let Some(list) = value.and_then(Value::as_array).filter(|list| (1..=TARGETS).contains(&list.len())) else {
            self.wrong("targets", format!("must be a list of 1 to {TARGETS} targets; it says where the notice goes"));
            return Vec::new();
        };
        let read = |(place, target): (usize, &Value)| self.target(&format!("targets[{place}]"), target);
        list.iter().enumerate().filter_map(read).collect()
    }

    fn target(&mut self, at: &str, value: &Value) -> Option<Target> {
        let Some(fields) = value.as_object() else {
            self.wrong(at, "must be an object");
            return None;
        };
        // Clients that know every field write `null` for those that they leave out.
        let given =
            fields.iter().filter(|(_, value)| !value.is_null()).map(|(name, value)| (name.clone(), value.clone()));
        let fields: Map<String, Value> = given.collect();
        self.target_of(at, &fields)
    }

    fn target_of(&mut self, at: &str, fields: &Map<String, Value>) -> Option<Target> {
        let channel = fields.get("channel").and_then(Value::as_str).unwrap_or_default();
        let known: &[&str] = match channel {
            "inbox" => &["users", "map"],
            "email" => &["to"],
            "ntfy" => &["topic"],
            "webhook" => &["url", "secret"],
            "queue" => &["entity"],
            "ticket" => &["caller"],
            _ => {
                self.wrong(format!("{at}.channel"), "must be inbox, email, ntfy, webhook, queue or ticket");
                return None;
            }
        };
        for name in fields.keys().filter(|name| *name != "channel" && !known.contains(&name.as_str())) {
            self.wrong(format!("{at}.{name}"), format!("means nothing to the channel \"{channel}\""));
        }
        Some(match channel {
            "inbox" => Target::Inbox(self.recipients(at, fields)?),
            "email" => Target::Email { to: self.addresses(&format!("{at}.to"), fields.get("to")) },
            "ntfy" => Target::Ntfy { topic: self.topic(&format!("{at}.topic"), fields.get("topic")) },
            "webhook" => self.webhook(at, fields),
            "queue" => Target::Queue { entity: self.entity(&format!("{at}.entity"), fields.get("entity")) },
            _ => {
                let field = format!("{at}.caller");
                let _ = self.name(&field, fields.get("caller"));
                Target::Ticket { caller: self.optional_template(&field, fields.get("caller")) }
            }
        })
    }

    fn recipients(&mut self, at: &str, fields: &Map<String, Value>) -> Option<Recipients> {
        match (fields.get("users"), fields.get("map")) {
            (Some(users), None) => {
                let field = format!("{at}.users");
                let Some(list) = users.as_array().filter(|list| !list.is_empty()) else {
                    self.wrong(field, "must be a list of at least one user");
                    return None;
                };
                let user = |(place, user): (usize, &Value)| self.user(&format!("{field}[{place}]"), user);
                Some(Recipients::Users(list.iter().enumerate().map(user).collect()))
            }
            (None, Some(map)) => self.map(&format!("{at}.map"), map),
            _ => {
                self.wrong(at, "needs either `users` or `map`");
                None
            }
        }
    }

    fn user(&mut self, field: &str, value: &Value) -> Template {
        let template = self.template(field, value);
        if template.is_fixed() && value.is_string() {
            match check_name(template.source(), USER_CHARS) {
                Ok(()) if template.source() == MAP => self.wrong(field, "is reserved for the notification map"),
                Ok(()) => {}
                Err(why) => self.wrong(field, why),
            }
        }
        template
    }

    fn map(&mut self, at: &str, value: &Value) -> Option<Recipients> {
        let Some(fields) = value.as_object() else {
            self.wrong(at, "must be an object with `product`");
            return None;
        };
        for name in fields.keys().filter(|name| !["product", "groups"].contains(&name.as_str())) {
            self.wrong(format!("{at}.{name}"), "is unknown; there are `product` and `groups`");
        }
        let product = self.optional_template(&format!("{at}.product"), fields.get("product"));
        if product.is_empty() && self.errors.iter().all(|error| error.field != format!("{at}.product")) {
            self.wrong(format!("{at}.product"), "is missing; it names the product, or is a template that does");
        }
        let groups = match fields.get("groups") {
            None | Some(Value::Null) => Vec::new(),
            Some(groups) => self.names(&format!("{at}.groups"), groups, GROUPS),
        };
        Some(Recipients::Map { product, groups })
    }

    fn names(&mut self, field: &str, value: &Value, most: usize) -> Vec<String> {
        let Some(list) = value.as_array().filter(|list| list.len() <= most) else {
            self.wrong(field, format!("must be a list of at most {most} names"));
            return Vec::new();
        };
        list.iter().enumerate().map(|(place, name)| self.name(&format!("{field}[{place}]"), Some(name))).collect()
    }

    fn name(&mut self, field: &str, value: Option<&Value>) -> String {
        let name = value.and_then(Value::as_str).unwrap_or_default();
        if let Err(why) = check_name(name, USER_CHARS) {
            self.wrong(field, why);
        }
        name.to_owned()
    }

    fn entity(&mut self, field: &str, value: Option<&Value>) -> String {
        let name = value.and_then(Value::as_str).unwrap_or_default();
        if let Err(why) = bus::check_name(name, bus::NAME_CHARS) {
            self.wrong_by_now(field, why);
        }
        name.to_owned()
    }

    fn addresses(&mut self, field: &str, value: Option<&Value>) -> Vec<Template> {
        let Some(list) = value.and_then(Value::as_array).filter(|list| (1..=ADDRESSES).contains(&list.len())) else {
            self.wrong(field, format!("must be a list of 1 to {ADDRESSES} addresses"));
            return Vec::new();
        };
        let mut addresses = Vec::with_capacity(list.len());
        for (place, address) in list.iter().enumerate() {
            let field = format!("{field}[{place}]");
            let template = self.template(&field, address);
            if template.is_fixed() && address.is_string() && !values::is_mailbox(template.source()) {
                self.wrong_by_now(field, "must be an e-mail address like `ops@example.com`");
            }
            addresses.push(template);
        }
        addresses
    }

    fn topic(&mut self, field: &str, value: Option<&Value>) -> Option<Template> {
        let template = self.template(field, value.filter(|value| !value.is_null())?);
        if template.is_fixed()
            && let Err(why) = values::topic(template.source())
        {
            self.wrong_by_now(field, why);
        }
        Some(template)
    }

    fn webhook(&mut self, at: &str, fields: &Map<String, Value>) -> Target {
        let field = format!("{at}.url");
        let url = self.optional_template(&field, fields.get("url"));
        if let Err(why) = check_url(url.source()) {
            self.wrong_by_now(field, why);
        }
        let secret = match fields.get("secret") {
            Some(Value::String(text)) if self.stored => Ok(Some(Secret::new(text))),
            secret => signature::given(secret, || self.before.and_then(|before| before.secret_of(url.source()))),
        };
        let secret = secret.unwrap_or_else(|why| {
            self.wrong(format!("{at}.secret"), why);
            None
        });
        Target::Webhook { url, secret }
    }
}

/// What a field that was left out would amount to.
fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(list) => list.is_empty(),
        Value::String(text) => text.is_empty(),
        Value::Number(number) => number.as_u64() == Some(0),
        Value::Bool(_) | Value::Object(_) => false,
    }
}

/// An event may choose the path of a call, never whom to call: templates begin after the host.
fn check_url(url: &str) -> Result<(), String> {
    if url.is_empty() {
        return Err("is missing".to_owned());
    }
    if url.chars().count() > URL_CHARS {
        return Err(format!("must have at most {URL_CHARS} characters"));
    }
    let fixed = url.split("{{").next().unwrap_or_default();
    values::callable(fixed)?;
    let after_scheme = fixed.split_once("://").map_or("", |(_, rest)| rest);
    if fixed.len() < url.len() && !after_scheme.contains('/') {
        return Err("must not have a template before the path".to_owned());
    }
    Ok(())
}

/// Whether a URL that a template gave can still be called.
#[must_use]
pub fn is_callable(url: &str) -> bool {
    values::callable(url).is_ok()
}
