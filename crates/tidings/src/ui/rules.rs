//! Rules: all of them, and an editor that checks the pattern while it is written and tries it on the last events.

use axum::extract::{Path, State};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::{get, post};
use maud::{Markup, html};
use serde_json::{Map, Value, json};
use tidings_core::envelope::FieldError;

use super::door::{Form, Page, Visitor, see_other};
use super::forms::{self, Saved, again};
use super::layout;
use super::parts::{self, badge, confirm, encode, event_link, form_token, number, rule_link};
use crate::app::Services;
use crate::http::{CorrelationId, Params, Problem};
use crate::incidents::monitors::how_to_change;
use crate::rules::http::{remove, write};
use crate::rules::{Origin, Rule, Target, dry_run, read};
use crate::tokens::Scope;

/// Rules on one page.
const PAGE: usize = 100;
/// Events that a pattern is tried on.
const TRIED: usize = 1000;

pub fn pages() -> Vec<Page> {
    vec![
        Page::new("/ui/rules", &[Scope::Read], get(list)).params(&["after"]),
        Page::new("/ui/rules/new", &[Scope::Operate], get(new).post(make)),
        Page::new("/ui/rules/try", &[Scope::Read], post(try_pattern)),
        Page::new("/ui/rules/{name}", &[Scope::Read], get(show)).params(&["done"]),
        Page::new("/ui/rules/{name}/edit", &[Scope::Operate], post(edit)),
        Page::new("/ui/rules/{name}/delete", &[Scope::Operate], post(delete)),
    ]
}

async fn list(State(services): State<Services>, visitor: Visitor, params: Params) -> Result<Response, Problem> {
    let after = params.text("after").map(ToOwned::to_owned);
    params.finish()?;
    let rules = services.rules.book.page(after.as_deref(), PAGE + 1);
    let more = rules.len() > PAGE;
    let beside = html! { @if visitor.operates() { a.button href="/ui/rules/new" { "New rule" } } };
    let content = html! {
        @if rules.is_empty() {
            (parts::empty("No rules yet", html! { "A rule says which events become which notices, and for whom. "
                @if visitor.operates() { a href="/ui/rules/new" { "Make the first one" } "." } }))
        } @else {
            table.cards {
                thead { tr { th { "Name" } th { "State" } th { "Pattern" } th { "Goes to" } th { "From" } } }
                tbody { @for rule in rules.iter().take(PAGE) {
                    tr {
                        td data-label="Name" { (rule_link(&rule.name)) }
                        td data-label="State" { (badge(if rule.enabled { "enabled" } else { "off" })) }
                        td data-label="Pattern" { code.clip { (parts::short(&Value::Object(rule.pattern_json.clone()).to_string(), 120)) } }
                        td data-label="Goes to" { span.tags { @if rule.exclusion.is_some() { span.tag { "keeps others back" } } @for target in &rule.targets { span.tag { (target.channel()) } } } }
                        td data-label="From" { (rule.origin.as_str()) }
                    }
                } }
            }
            @if let Some(last) = rules.iter().take(PAGE).next_back().filter(|_| more) {
                nav.pager aria-label="More of this list" { a href=(parts::address("/ui/rules", &[("after", &last.name)])) { "More →" } }
            }
        }
    };
    Ok(layout::page_with(&visitor, "/ui/rules", "Rules", beside, content).into_response())
}

/// What the editor holds: text, as it was written.
struct Draft {
    name: String,
    enabled: bool,
    pattern: String,
    targets: String,
    title: String,
    text: String,
    link: String,
    dedupe_seconds: String,
    dedupe_key: String,
    /// It keeps others back instead of telling anybody.
    exclude: bool,
    reason: String,
    /// Of an exclude rule: whom it keeps back, one name a line.
    rules: String,
}

impl Draft {
    fn first() -> Self {
        let pretty = |value: Value| parts::pretty(&value);
        Self {
            name: String::new(),
            enabled: true,
            pattern: pretty(json!({ "eventType": [{ "prefix": "ticket." }] })),
            targets: pretty(json!([{ "channel": "inbox", "users": ["ana"] }])),
            title: "{{ eventType }}".to_owned(),
            text: String::new(),
            link: String::new(),
            dedupe_seconds: "0".to_owned(),
            dedupe_key: String::new(),
            exclude: false,
            reason: String::new(),
            rules: String::new(),
        }
    }

    fn of(rule: &Rule) -> Self {
        // A draft is for who may save it.
        let view = rule.view(true);
        let pretty = |name: &str| parts::pretty(view.get(name).unwrap_or(&Value::Null));
        Self {
            name: rule.name.clone(),
            enabled: rule.enabled,
            pattern: pretty("pattern"),
            targets: pretty("targets"),
            title: rule.title.source().to_owned(),
            text: rule.text.source().to_owned(),
            link: rule.link.as_ref().map(|link| link.source().to_owned()).unwrap_or_default(),
            dedupe_seconds: rule.dedupe_seconds.to_string(),
            dedupe_key: rule.dedupe_key.as_ref().map(|key| key.source().to_owned()).unwrap_or_default(),
            exclude: rule.exclusion.is_some(),
            reason: rule.exclusion.as_ref().map(|exclusion| exclusion.reason.source().to_owned()).unwrap_or_default(),
            rules: rule.exclusion.as_ref().map(|exclusion| exclusion.rules.join("\n")).unwrap_or_default(),
        }
    }

    fn from(form: &Form) -> Self {
        let text = |name: &str| form.text(name).replace("\r\n", "\n");
        Self {
            name: text("name").trim().to_owned(),
            enabled: form.is_set("enabled"),
            pattern: text("pattern"),
            targets: text("targets"),
            title: text("title"),
            text: text("text"),
            link: text("link").trim().to_owned(),
            dedupe_seconds: text("dedupe_seconds").trim().to_owned(),
            dedupe_key: text("dedupe_key"),
            exclude: form.is_set("exclude"),
            reason: text("reason"),
            rules: text("rules"),
        }
    }

    /// The rule as the API would be sent it; every part that is no JSON is named.
    fn fields(&self) -> Result<Map<String, Value>, Vec<FieldError>> {
        let mut errors = Vec::new();
        let mut parse = |name: &'static str, text: &str| match tidings_core::json::parse::<Value>(text) {
            Ok(value) => {
                // What says two things of a field says neither, here as at the API's door.
                errors.extend(read::repeated_in(name, text));
                value
            }
            Err(bad) => {
                errors.push(FieldError::new(name, bad.0));
                Value::Null
            }
        };
        let mut fields = json!({ "enabled": self.enabled, "pattern": parse("pattern", &self.pattern) });
        let more = if self.exclude {
            let rules: Vec<&str> = self.rules.lines().map(str::trim).filter(|name| !name.is_empty()).collect();
            let rules = if rules.is_empty() { Value::Null } else { json!(rules) };
            json!({ "exclude": true, "reason": self.reason, "rules": rules })
        } else {
            let seconds = match self.dedupe_seconds.as_str() {
                "" => Value::from(0),
                text => text.parse::<u64>().map_or_else(|_| Value::from(text), Value::from),
            };
            json!({
                "targets": parse("targets", &self.targets), "title": self.title, "text": self.text,
                "link": self.link, "dedupe_seconds": seconds, "dedupe_key": self.dedupe_key,
            })
        };
        if let (Some(fields), Value::Object(more)) = (fields.as_object_mut(), more) {
            let may_be_empty = |name: &str| !matches!(name, "dedupe_key" | "link");
            let given =
                more.into_iter().filter(|(name, value)| !value.is_null() && (value != "" || may_be_empty(name)));
            fields.extend(given);
        }
        if errors.is_empty() { Ok(fields.as_object().cloned().unwrap_or_default()) } else { Err(errors) }
    }
}

async fn new(visitor: Visitor) -> Response {
    let content = editor(&visitor, "/ui/rules/new", &Draft::first(), true, &[]);
    layout::page(&visitor, "/ui/rules", "New rule", content).into_response()
}

async fn make(
    State(services): State<Services>,
    visitor: Visitor,
    correlation: CorrelationId,
    form: Form,
) -> Result<Response, Problem> {
    let draft = Draft::from(&form);
    let wrong = match services.rules.book.get(&draft.name) {
        Some(_) => vec![FieldError::new("name", "is taken; choose another, or edit that rule")],
        None => match save(&services, &visitor, &correlation, &draft).await? {
            Ok(()) => return Ok(see_other(&format!("/ui/rules/{}?done=made", encode(&draft.name)))),
            Err(wrong) => wrong,
        },
    };
    Ok(again(&visitor, "/ui/rules", "New rule", editor(&visitor, "/ui/rules/new", &draft, true, &wrong)))
}

/// Stores a draft, or says what is wrong with it.
async fn save(
    services: &Services,
    visitor: &Visitor,
    correlation: &CorrelationId,
    draft: &Draft,
) -> Result<Saved<()>, Problem> {
    let write = async |fields: &_| write(services, visitor.caller(), correlation, &draft.name, fields).await.map(drop);
    forms::save(draft.fields(), write).await
}

async fn edit(
    State(services): State<Services>,
    visitor: Visitor,
    correlation: CorrelationId,
    Path(name): Path<String>,
    form: Form,
) -> Result<Response, Problem> {
    services.rules.book.get(&name).ok_or_else(not_found)?;
    let draft = Draft { name: name.clone(), ..Draft::from(&form) };
    let action = format!("/ui/rules/{}/edit", encode(&name));
    match save(&services, &visitor, &correlation, &draft).await? {
        Ok(()) => Ok(see_other(&format!("/ui/rules/{}?done=saved", encode(&name)))),
        Err(wrong) => Ok(again(&visitor, "/ui/rules", &name, editor(&visitor, &action, &draft, false, &wrong))),
    }
}

async fn delete(
    State(services): State<Services>,
    visitor: Visitor,
    correlation: CorrelationId,
    Path(name): Path<String>,
) -> Result<Response, Problem> {
    remove(&services, visitor.caller(), &correlation, &name).await?;
    Ok(see_other("/ui/rules"))
}

fn not_found() -> Problem {
    Problem::not_found("there is no rule of this name")
}

async fn show(
    State(services): State<Services>,
    visitor: Visitor,
    Path(name): Path<String>,
    params: Params,
) -> Result<Response, Problem> {
    let rule = services.rules.book.get(&name).ok_or_else(not_found)?;
    let said = match params.text("done") {
        Some("made") => Some("The rule is made, and works from now on."),
        Some("saved") => Some("The rule is changed, from now on."),
        _ => None,
    };
    let draft = Draft::of(&rule);
    let short =
        parts::is_editable(&draft.pattern) && parts::is_editable(&draft.targets) && parts::is_editable(&draft.text);
    let editable = visitor.operates() && !rule.origin.is_configured() && short;
    let built_in = services.rules.book.is_built_in(&name);
    let (word, question) = if built_in {
        ("Back to the built-in rule", "What was changed in it is lost.")
    } else {
        ("Delete", "Events will no longer be held against this rule. This cannot be undone.")
    };
    let content = html! {
        (parts::notice(said))
        @if editable {
            (editor(&visitor, &format!("/ui/rules/{}/edit", encode(&name)), &draft, false, &[]))
            @if rule.origin == Origin::Api {
                div.actions { (confirm(&visitor, &format!("/ui/rules/{}/delete", encode(&name)), word, question)) }
            }
        } @else { (readable(&visitor, &rule)) }
    };
    Ok(layout::page(&visitor, "/ui/rules", &name, content).into_response())
}

/// A rule that this visitor cannot change.
fn readable(visitor: &Visitor, rule: &Rule) -> Markup {
    let view = rule.view(visitor.operates());
    let channels: Vec<_> = rule.targets.iter().map(Target::channel).collect();
    html! {
        @if rule.origin == Origin::File && visitor.operates() {
            p.faint { "This rule is in the configuration file; change it there and reload." }
        } @else if rule.origin == Origin::Monitor && visitor.operates() {
            p.faint.sentence { (how_to_change(&rule.name)) "." }
        } @else if visitor.operates() {
            p.faint { "This rule is too long to be edited here; " code { "PUT /rules/{name}" } " changes it." }
        }
        (parts::facts(&[
            ("State", badge(if rule.enabled { "enabled" } else { "off" })),
            ("Goes to", html! { (channels.join(", ")) }),
            ("Title", html! { code { (rule.title.source()) } }),
            ("Text", html! { code { (parts::within(rule.text.source(), parts::PIECE_BYTES)) } }),
            ("Not repeated within", html! { (rule.dedupe_seconds) " s" }),
        ]))
        div.columns {
            section { h2 { "Pattern" } (parts::json(view.get("pattern").unwrap_or(&Value::Null))) }
            section { h2 { "Targets" } (parts::json(view.get("targets").unwrap_or(&Value::Null))) }
        }
    }
}

fn editor(visitor: &Visitor, action: &str, draft: &Draft, is_new: bool, wrong: &[FieldError]) -> Markup {
    let rows = |text: &str, least: usize| (text.lines().count() + 1).clamp(least, 24);
    html! {
        form.editor method="post" action=(action) {
            (form_token(visitor))
            (parts::wrong("Not saved:", wrong))
            @if is_new {
                label { span { "Name" } input name="name" value=(draft.name) required maxlength="128" autocomplete="off"; }
            }
            label.check { input type="checkbox" name="enabled" checked[draft.enabled]; span { "Switched on" } }
            div.columns {
                div {
                    label for="pattern" { "Pattern " span.faint { "which events (Amazon EventBridge)" } }
                    textarea.code id="pattern" name="pattern" rows=(rows(&draft.pattern, 8)) spellcheck="false"
                        data-try="/ui/rules/try" aria-describedby="verdict" { (draft.pattern) }
                    div id="verdict" aria-live="polite" {
                        p.faint { "Tried on the last " (TRIED) " events while you write. "
                            button.plain type="submit" formaction="/ui/rules/try" formnovalidate { "Try it now" } }
                    }
                }
                div {
                    label for="targets" { "Targets " span.faint { "inbox, email, ntfy, webhook, queue, ticket" } }
                    textarea.code id="targets" name="targets" rows=(rows(&draft.targets, 8)) spellcheck="false" { (draft.targets) }
                }
            }
            label { span { "Title " span.faint { "a template over the event" } }
                input name="title" value=(draft.title) autocomplete="off" spellcheck="false"; }
            label { span { "Text " span.faint { "a template; empty: what the event says of itself" } }
                textarea name="text" rows=(rows(&draft.text, 2)) { (draft.text) } }
            label { span { "Link " span.faint { "of inbox entries; a template over the entry; empty: the configured one" } }
                input name="link" value=(draft.link) autocomplete="off" spellcheck="false"; }
            div.columns {
                label { span { "Not repeated within (seconds)" }
                    input name="dedupe_seconds" value=(draft.dedupe_seconds) inputmode="numeric" autocomplete="off"; }
                label { span { "What makes two the same " span.faint { "a template; empty: title and text" } }
                    input name="dedupe_key" value=(draft.dedupe_key) autocomplete="off" spellcheck="false"; }
            }
            (exclusion(draft))
            div.actions { button type="submit" { (if is_new { "Make the rule" } else { "Save" }) } }
        }
    }
}

/// For a rule that tells nobody, but keeps others from it.
fn exclusion(draft: &Draft) -> Markup {
    html! {
        details open[draft.exclude] {
            summary { "Keep other rules back instead of telling anybody" }
            label.check { input type="checkbox" name="exclude" checked[draft.exclude]; span { "Where this matches, others tell nobody" } }
            div.columns {
                label { span { "Why " span.faint { "a template; recorded with what is kept back" } }
                    input name="reason" value=(draft.reason) autocomplete="off"; }
                label { span { "Which rules " span.faint { "one name a line; empty: all" } }
                    textarea name="rules" rows="2" { (draft.rules) } }
            }
        }
    }
}

/// Tries a pattern on the last events. A script gets the verdict alone, a person without one a page with it.
async fn try_pattern(
    State(services): State<Services>,
    visitor: Visitor,
    headers: axum::http::HeaderMap,
    form: Form,
) -> Result<Response, Problem> {
    let pattern = read::pattern_text(form.text("pattern"));
    let verdict = match pattern {
        Err(errors) => html! { @for error in errors { p.wrong { code { (error.field) } " " (error.message) } } },
        Ok(pattern) => {
            let found = dry_run::over_stored(&services.events, &pattern, TRIED).await?;
            html! {
                p.right { "Good. It matches " strong { (number(found.matched as u64)) } " of the last "
                    (number(found.checked as u64)) " events." }
                @if !found.sample.is_empty() {
                    ul.plain.sample { @for id in found.sample.iter().take(5) { li { (event_link(id)) } } }
                }
            }
        }
    };
    if headers.contains_key("x-fragment") {
        return Ok(Html(verdict.into_string()).into_response());
    }
    let content = html! { (verdict) p { "Go back with your browser to go on editing." } };
    Ok(layout::page(&visitor, "/ui/rules", "Try a pattern", content).into_response())
}
