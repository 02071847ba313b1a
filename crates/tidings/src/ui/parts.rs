//! What many pages are made of. Everything is escaped by `maud` unless it is written here as markup.

use axum::extract::Path;
use maud::{Markup, html};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use tidings_core::envelope::FieldError;
use tidings_core::time::{Timestamp, iso_millis};

use super::door::Visitor;
use crate::http::Params;
use crate::rules::Book;

/// What stands for itself in a part of a path or query.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// Bytes of what a page is about, once it is escaped: no page has more than 200 KB, whatever it shows.
pub const TEXT_BYTES: usize = 40_000;
/// Bytes of one of many.
pub const PIECE_BYTES: usize = 2_000;

/// What a browser takes away at the beginning of a text to be edited; with it, the text itself may begin with an empty line.
pub const FIRST_LINE_END: &str = "\n";

/// Characters of JSON that stand on one line.
const LINE: usize = 60;

/// Text as a part of an address.
#[must_use]
pub fn encode(text: &str) -> String {
    utf8_percent_encode(text, PLAIN).to_string()
}

/// An address with those parameters that have a value.
#[must_use]
pub fn address(path: &str, params: &[(&str, &str)]) -> String {
    let given = params.iter().filter(|(_, value)| !value.is_empty());
    let query: Vec<_> = given.map(|(name, value)| format!("{name}={}", encode(value))).collect();
    let mark = if path.contains('?') { '&' } else { '?' };
    if query.is_empty() { path.to_owned() } else { format!("{path}{mark}{}", query.join("&")) }
}

/// A moment: the script puts it into the reader's zone; the exact value is there on hover.
#[must_use]
pub fn time(at: Timestamp) -> Markup {
    let exact = iso_millis(at);
    let shown = exact.replace('T', " ").chars().take(19).collect::<String>();
    html! { time datetime=(exact) title=(exact) { (shown) " UTC" } }
}

/// The same from text; what is no time is shown as it is.
#[must_use]
pub fn time_text(text: &str) -> Markup {
    match text.parse() {
        Ok(at) => time(at),
        Err(_) => html! { (text) },
    }
}

/// A duration in the unit that reads best.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "for people to read")]
pub fn duration_ms(ms: i64) -> String {
    match ms {
        ..1000 => format!("{} ms", ms.max(0)),
        1000..60_000 => format!("{:.1} s", ms as f64 / 1000.0),
        60_000..3_600_000 => format!("{} min {} s", ms / 60_000, ms % 60_000 / 1000),
        3_600_000..172_800_000 => format!("{} h {} min", ms / 3_600_000, ms % 3_600_000 / 60_000),
        _ => format!("{} days", ms / 86_400_000),
    }
}

/// A whole number with thin gaps between thousands.
#[must_use]
pub fn number(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            out.push('\u{202f}');
        }
        out.push(digit);
    }
    out
}

/// The address of the page that is about one of something. Browsers take `.` and `..` in a path for a way up, however
/// they are written, and `new` is a page of its own: those are asked for by a parameter.
#[must_use]
pub fn page_of(of: &str, id: &str) -> String {
    if ["new", ".", ".."].contains(&id) {
        return address(&format!("/ui/by-id/{of}"), &[("id", id)]);
    }
    format!("/ui/{of}/{}", encode(id))
}

/// What a page is about that such an address leads to, from its path or from `id`.
pub fn asked_for(path: Option<Path<String>>, params: &Params) -> String {
    path.map_or_else(|| params.text("id").unwrap_or_default().to_owned(), |Path(id)| id)
}

/// A link with an id as its text; a long one is shown by its two ends, which tell ids of one moment apart.
pub fn id_link(to: &str, id: &str) -> Markup {
    let letters = id.chars().count();
    if letters <= 20 {
        return html! { a.id href=(to) { (id) } };
    }
    let (start, end): (String, String) = (id.chars().take(8).collect(), id.chars().skip(letters - 8).collect());
    html! { a.id href=(to) title=(id) { (start) "…" (end) } }
}

#[must_use]
pub fn event_link(event_id: &str) -> Markup {
    id_link(&page_of("events", event_id), event_id)
}

#[must_use]
pub fn message_link(message_id: &str) -> Markup {
    id_link(&format!("/ui/messages/{}", encode(message_id)), message_id)
}

#[must_use]
pub fn rule_link(name: &str) -> Markup {
    html! { a href=(format!("/ui/rules/{}", encode(name))) { (name) } }
}

/// A rule's name, with a link while there is a page for it: it may be deleted by now, or stand for a handler of our own.
#[must_use]
pub fn rule_name(book: &Book, name: &str) -> Markup {
    if book.get(name).is_some() {
        rule_link(name)
    } else {
        html! { (name) }
    }
}

#[must_use]
pub fn trace_link(correlation_id: &str) -> Markup {
    id_link(&page_of("trace", correlation_id), correlation_id)
}

/// A state, with a colour and a word.
#[must_use]
pub fn badge(state: &str) -> Markup {
    let kind = match state {
        "completed" | "delivered" | "accepted" | "fired" | "matched" | "enabled" | "resolved" | "closed" | "read"
        | "active" | "done" => "good",
        "failed" | "dead" | "permanent" | "lost" | "rejected" | "raised" | "critical" => "bad",
        "processing" | "transient" | "skipped" | "no_recipients" | "warning" | "escalated" | "late" | "open" => "warn",
        _ => "calm",
    };
    html! { span class=(format!("badge {kind}")) { (state.replace('_', " ")) } }
}

/// JSON as a person reads it; of what is long, the beginning.
#[must_use]
pub fn json(value: &Value) -> Markup {
    json_within(value, TEXT_BYTES)
}

/// The same in fewer bytes, for one of many.
#[must_use]
pub fn json_within(value: &Value, most: usize) -> Markup {
    code_within(&pretty(value), most)
}

/// Text as it is; of what is long, the beginning.
#[must_use]
pub fn code_within(text: &str, most: usize) -> Markup {
    let shown = within(text, most);
    html! {
        pre.json tabindex="0" { code { (shown) } }
        @if shown.len() < text.len() { p.faint { "This is the beginning; the API gives all of its " (number(text.len() as u64)) " bytes." } }
    }
}

/// The beginning of a text that takes at most so many bytes on the page.
#[must_use]
pub fn within(text: &str, most: usize) -> &str {
    let mut bytes = 0;
    let end = text.char_indices().find(|(_, c)| {
        bytes += match c {
            '"' => 6,
            '&' => 5,
            '<' | '>' => 4,
            c => c.len_utf8(),
        };
        bytes > most
    });
    end.map_or(text, |(end, _)| text.get(..end).unwrap_or_default())
}

/// Whether a text is short enough to be edited on a page.
#[must_use]
pub fn is_editable(text: &str) -> bool {
    within(text, TEXT_BYTES).len() == text.len()
}

/// JSON on as few lines as read well: whatever fits on one stands on one.
#[must_use]
pub fn pretty(value: &Value) -> String {
    let mut out = String::new();
    write_pretty(&mut out, value, 0);
    out
}

fn write_pretty(out: &mut String, value: &Value, depth: usize) {
    let whole = value.to_string();
    let is_leaf = !matches!(value, Value::Object(fields) if !fields.is_empty()) && !value.is_array();
    let inner: Vec<(Option<String>, &Value)> = match value {
        _ if is_leaf => Vec::new(),
        Value::Object(fields) if depth == 0 || whole.chars().count() > LINE => {
            fields.iter().map(|(name, value)| (Some(Value::from(name.as_str()).to_string()), value)).collect()
        }
        Value::Array(list) if whole.chars().count() > LINE => list.iter().map(|value| (None, value)).collect(),
        _ => Vec::new(),
    };
    if inner.is_empty() {
        out.push_str(&on_one_line(value));
        return;
    }
    let (open, close) = if value.is_array() { ('[', ']') } else { ('{', '}') };
    out.push(open);
    for (place, (name, value)) in inner.iter().enumerate() {
        out.push_str(if place > 0 { ",\n" } else { "\n" });
        out.push_str(&"  ".repeat(depth + 1));
        if let Some(name) = name {
            out.push_str(name);
            out.push_str(": ");
        }
        write_pretty(out, value, depth + 1);
    }
    out.push('\n');
    out.push_str(&"  ".repeat(depth));
    out.push(close);
}

fn on_one_line(value: &Value) -> String {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            let inner: Vec<_> = fields
                .iter()
                .map(|(name, value)| format!("{}: {}", Value::from(name.as_str()), on_one_line(value)))
                .collect();
            format!("{{ {} }}", inner.join(", "))
        }
        Value::Array(list) => format!("[{}]", list.iter().map(on_one_line).collect::<Vec<_>>().join(", ")),
        other => other.to_string(),
    }
}

/// A few plain fields side by side; `None` if there are too many, or they are not plain.
#[must_use]
pub fn pairs(value: &Value) -> Option<Markup> {
    let fields = value.as_object().filter(|fields| (1..=8).contains(&fields.len()))?;
    let plain = |value: &Value| match value {
        Value::String(text) if text.chars().count() <= LINE => Some(text.clone()),
        Value::Number(_) | Value::Bool(_) => Some(value.to_string()),
        _ => None,
    };
    let all = fields.iter().map(|(name, value)| Some((name, plain(value)?))).collect::<Option<Vec<_>>>()?;
    Some(html! { span.pairs { @for (name, value) in all { span { span.faint { (name) } " " (value) } } } })
}

/// What stands where a list is empty.
#[must_use]
pub fn empty(what: &str, hint: Markup) -> Markup {
    html! { div.empty { p.what { (what) } p { (hint) } } }
}

/// The links under a list: back to the start, and on.
#[must_use]
pub fn pager(path: &str, params: &[(&str, &str)], cursor: Option<&str>, next: Option<String>) -> Markup {
    html! {
        @if cursor.is_some() || next.is_some() {
            nav.pager aria-label="More of this list" {
                @if cursor.is_some() { a href=(address(path, params)) rel="first" { "← Newest" } }
                @if let Some(next) = next {
                    a href=(address(path, &[params, &[("cursor", next.as_str())]].concat())) rel="next" { "Older →" }
                }
            }
        }
    }
}

/// One field of a filter.
pub struct Field<'a> {
    pub name: &'a str,
    pub label: &'a str,
    pub value: &'a str,
    pub hint: &'a str,
}

/// A filter whose fields live in the address. `more` is put before the button.
#[must_use]
pub fn filter(path: &str, fields: &[Field<'_>], more: Markup) -> Markup {
    let any = fields.iter().any(|field| !field.value.is_empty());
    html! {
        form.filter method="get" action=(path) role="search" aria-label="In this list" {
            @for field in fields {
                label { span { (field.label) }
                    input name=(field.name) value=(field.value) placeholder=(field.hint) autocomplete="off" spellcheck="false";
                }
            }
            (more)
            div.buttons {
                button type="submit" { "Filter" }
                @if any { a href=(path) { "Clear" } }
            }
        }
    }
}

/// A choice in a filter.
#[must_use]
pub fn choice(name: &str, label: &str, value: &str, options: &[(&str, &str)]) -> Markup {
    html! {
        label { span { (label) }
            select name=(name) {
                @for (option, text) in options { option value=(option) selected[*option == value] { (text) } }
            }
        }
    }
}

/// The hidden field that every form has.
#[must_use]
pub fn form_token(visitor: &Visitor) -> Markup {
    html! { input type="hidden" name="form" value=(visitor.session.form_token()); }
}

/// A button that does something harmless at once.
#[must_use]
pub fn act(visitor: &Visitor, action: &str, label: &str) -> Markup {
    html! {
        form.act method="post" action=(action) { (form_token(visitor)) button type="submit" { (label) } }
    }
}

/// A button that asks before it does something that cannot be undone.
#[must_use]
pub fn confirm(visitor: &Visitor, action: &str, label: &str, question: &str) -> Markup {
    html! {
        details.confirm {
            summary { (label) "…" }
            form method="post" action=(action) {
                (form_token(visitor))
                p { (question) }
                button.danger type="submit" { (label) }
            }
        }
    }
}

/// A note at the top of a page about what was just done.
#[must_use]
pub fn notice(text: Option<&str>) -> Markup {
    html! { @if let Some(text) = text { p.notice role="status" { (text) } } }
}

/// What is wrong with a form that was sent, every field of it.
#[must_use]
pub fn wrong(title: &str, errors: &[FieldError]) -> Markup {
    html! {
        @if !errors.is_empty() {
            div.problem role="alert" { p { (title) }
                ul { @for error in errors { li { code { (error.field) } " " (error.message) } } } }
        }
    }
}

/// Name and value, one under the other.
#[must_use]
pub fn facts(rows: &[(&str, Markup)]) -> Markup {
    html! { dl.facts { @for (name, value) in rows { div { dt { (name) } dd { (value) } } } } }
}

/// The start of a long text.
#[must_use]
pub fn short(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    text.chars().take(most.saturating_sub(1)).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_users_wrote_is_text_everywhere() {
        let bad = "<script>alert(1)</script>\"'";
        for markup in [event_link(bad), message_link(bad), rule_link(bad), trace_link(bad), badge(bad), time_text(bad)]
        {
            let text = markup.into_string();
            assert!(!text.contains("<script") && !text.contains("\"'"), "{text}");
        }
        assert!(!json(&serde_json::json!({ "a": "<img src=x>" })).into_string().contains("<img"));
        assert_eq!(address("/ui/events", &[("type", "a b&c"), ("source", "")]), "/ui/events?type=a%20b%26c");
    }

    #[test]
    fn json_that_fits_on_a_line_stands_on_one() {
        let value = serde_json::json!({ "a": [1, { "b": "<" }], "c": {}, "d": "x".repeat(70), "e": ["y".repeat(70)] });
        let text = pretty(&value);
        assert!(text.starts_with("{\n  \"a\": [1, { \"b\": \"<\" }],\n  \"c\": {},\n  \"d\": \"xx"), "{text}");
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), value);
        assert_eq!(pretty(&Value::Null), "null");
        assert_eq!(pretty(&serde_json::json!([])), "[]");
    }

    #[test]
    fn a_text_is_cut_by_what_it_takes_once_escaped() {
        assert_eq!(within("abc", 3), "abc");
        assert_eq!(within("abc", 2), "ab");
        assert_eq!(within("\"\"a", 12), "\"\"");
        assert_eq!(within("é<é", 5), "é");
        assert!(is_editable(&"x".repeat(TEXT_BYTES)) && !is_editable(&"\"".repeat(TEXT_BYTES / 6 + 1)));
        let page = json(&Value::from("<".repeat(100_000))).into_string();
        assert!(page.len() < TEXT_BYTES + 500, "{}", page.len());
    }

    #[test]
    fn numbers_and_durations_read_well() {
        assert_eq!(number(1_234_567), "1\u{202f}234\u{202f}567");
        assert_eq!(number(12), "12");
        assert_eq!(duration_ms(12), "12 ms");
        assert_eq!(duration_ms(1500), "1.5 s");
        assert_eq!(duration_ms(61_000), "1 min 1 s");
        assert_eq!(short("abcdef", 4), "abc…");
    }
}
