use axum::http::HeaderMap;
use serde_json::json;

use super::*;

fn params(headers: &[(&'static str, &str)], query: &str) -> Params {
    let headers: HeaderMap =
        headers.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect();
    Params::read(&headers, Some(query)).unwrap()
}

fn code(refused: Result<Draft, Refusal>) -> u64 {
    serde_json::to_value(refused.unwrap_err()).unwrap()["code"].as_u64().unwrap()
}

// S002-61, S002-68
#[test]
fn text_headers_and_query_make_a_draft() {
    let given = params(&[("title", "T"), ("tags", "a,b"), ("click", "https://x.example"), ("p", "Urgent")], "icon=");
    let draft = from_text("ops", &given, b" Hello \n").unwrap();
    let expected = Content {
        title: "T".to_owned(),
        message: "Hello".to_owned(),
        priority: Some(5),
        tags: vec!["a".to_owned(), "b".to_owned()],
        click: "https://x.example".to_owned(),
        ..Content::default()
    };
    assert_eq!(draft, Draft { topic: "ops".to_owned(), content: expected, keep: true });

    let by_query = from_text("ops", &params(&[], "message=a%5Cnb&prio=3&cache=no"), b"").unwrap();
    assert_eq!((by_query.content.message.as_str(), by_query.content.priority), ("a\nb", None));
    assert!(!by_query.keep);
    assert_eq!(from_text("ops", &params(&[], ""), b"").unwrap().content.message, "triggered");
}

// S002-68: apprise sends both at once.
#[test]
fn json_wins_over_headers_which_add_to_it() {
    let given = params(&[("x-priority", "high"), ("x-title", "other"), ("x-tags", "x")], "");
    let body = json!({ "topic": "ops", "title": "T", "message": "M", "tags": [], "unknown": 1 });
    let draft = from_json(&given, body.to_string().as_bytes()).unwrap();
    assert_eq!((draft.content.title.as_str(), draft.content.priority), ("T", Some(4)));
    assert_eq!(draft.content.tags, ["x"]);
}

// S002-68: ntfy's own example for PowerShell begins every name with a capital.
#[test]
fn the_names_of_fields_may_be_in_any_case() {
    let body = json!({
        "Topic": "ops", "TITLE": "T", "Message": "M", "Priority": 5, "Tags": ["a"], "Click": "https://c.example/",
        "Actions": [{ "Action": "view", "Label": "Open", "URL": "https://a.example/", "Clear": true }],
    });
    let draft = from_json(&params(&[], ""), body.to_string().as_bytes()).unwrap();
    let content = draft.content;
    assert_eq!((draft.topic.as_str(), content.title.as_str(), content.message.as_str()), ("ops", "T", "M"));
    assert_eq!(
        (content.priority, content.tags, content.click.as_str()),
        (Some(5), vec!["a".to_owned()], "https://c.example/")
    );
    let open = json!({ "action": "view", "label": "Open", "url": "https://a.example/", "clear": true });
    assert_eq!(content.actions, std::slice::from_ref(&open));
    // In a header, too.
    let header = r#"[{"ACTION":"view","Label":"Open","Url":"https://a.example/","clear":true,"id":null}]"#;
    assert_eq!(from_text("ops", &params(&[("actions", header)], ""), b"x").unwrap().content.actions, [open]);
    // What is written as it should be goes before what is not, wherever it stands.
    for body in [r#"{"topic":"ops","title":"b","Title":"A"}"#, r#"{"TITLE":"A","Title":"A","title":"b","topic":"ops"}"#]
    {
        assert_eq!(from_json(&params(&[], ""), body.as_bytes()).unwrap().content.title, "b", "{body}");
    }
}

#[test]
fn every_field_is_known_by_its_name() {
    // None of them is an object.
    for name in FIELDS {
        let wrong = from_json(&params(&[], ""), json!({ name.to_ascii_uppercase(): {} }).to_string().as_bytes());
        assert_eq!(code(wrong), 40017, "{name}");
    }
}

// S002-61: tags are the same in JSON as in a header.
#[test]
fn tags_in_json_are_trimmed_and_split() {
    let tags = |tags: Json| {
        let body = json!({ "topic": "ops", "tags": tags });
        from_json(&params(&[], ""), body.to_string().as_bytes()).unwrap().content.tags
    };
    assert_eq!(tags(json!([" warning ", "a,b", "", "c"])), ["warning", "a", "b", "c"]);
    assert_eq!(
        from_text("ops", &params(&[("tags", " warning ,a,b,, c")], ""), b"x").unwrap().content.tags,
        ["warning", "a", "b", "c"]
    );
}

// S002-68: an app that meets a part of another kind cannot read the message.
#[test]
fn the_parts_of_an_action_are_of_their_kind() {
    let action = |name: &str, value: Json| {
        let mut action = json!({ "action": "http", "label": "L", "url": "https://a.example/" });
        action[name] = value;
        from_json(&params(&[], ""), json!({ "topic": "ops", "actions": [action] }).to_string().as_bytes())
    };
    for (name, value) in [
        ("headers", json!({ "A": 1 })),
        ("headers", json!("x")),
        ("Headers", json!(["x"])),
        ("extras", json!({ "a": {} })),
        ("clear", json!("true")),
        ("clear", json!(1)),
        ("label", json!(1)),
        ("url", json!(["https://a.example/"])),
        ("method", json!(true)),
        ("body", json!({})),
        ("intent", json!(1)),
        ("value", json!(1)),
        ("id", json!(1)),
    ] {
        let refused = action(name, value.clone()).unwrap_err();
        assert!(refused.text().contains(&name.to_ascii_lowercase()), "{}", refused.text());
        assert_eq!(code(Err(refused)), 40018, "{name} {value}");
    }
    for (name, value) in [
        ("headers", json!({ "A": "1" })),
        ("extras", json!({})),
        ("clear", json!(false)),
        ("clear", json!(null)),
        ("method", json!("PUT")),
        ("body", json!("")),
        ("unknown", json!(1)),
    ] {
        assert_eq!(action(name, value.clone()).unwrap().content.actions.len(), 1, "{name} {value}");
    }
    for actions in [json!([1]), json!(["view"]), json!([null])] {
        let body = json!({ "topic": "ops", "actions": actions });
        assert_eq!(code(from_json(&params(&[], ""), body.to_string().as_bytes())), 40018, "{actions}");
    }
}

// S002-68: the same words in JSON as in a header.
#[test]
fn what_is_not_to_be_kept_is_said_alike_everywhere() {
    for (word, keep) in [("no", false), ("No", false), ("false", false), ("0", false), ("yes", true), ("1", true)] {
        let body = json!({ "topic": "ops", "message": "M", "cache": word });
        assert_eq!(from_json(&params(&[], ""), body.to_string().as_bytes()).unwrap().keep, keep, "{word}");
        assert_eq!(from_text("ops", &params(&[("x-cache", word)], ""), b"M").unwrap().keep, keep, "{word}");
    }
    assert_eq!(code(from_json(&params(&[], ""), b" [\"ops\", \"M\"]")), 40017);
}

#[test]
fn what_ntfy_refuses_is_refused_with_its_code() {
    let text = |headers: &[(&'static str, &str)], query: &str| code(from_text("ops", &params(headers, query), b"x"));
    assert_eq!(text(&[("priority", "6")], ""), 40007);
    assert_eq!(text(&[("delay", "30m")], ""), 40004);
    assert_eq!(text(&[], "at=tomorrow"), 40004);
    assert_eq!(text(&[("email", "a@example.com")], ""), 40001);
    assert_eq!(text(&[("filename", "a.txt")], ""), 40014);
    assert_eq!(text(&[("attach", "file:///etc/passwd")], ""), 40013);
    assert_eq!(text(&[("icon", "javascript:1")], ""), 40021);
    assert_eq!(text(&[("actions", "[{}]")], ""), 40018);
    assert_eq!(text(&[("actions", "[")], ""), 40018);
    assert_eq!(code(from_text("v1", &params(&[], ""), b"x")), 40010);
    assert_eq!(code(from_text("a.b", &params(&[], ""), b"x")), 40009);
    assert_eq!(code(from_text("ops", &params(&[], ""), b"\xff")), 40011);

    let json = |body: &str| code(from_json(&params(&[], ""), body.as_bytes()));
    assert_eq!(json("{"), 40017);
    assert_eq!(json(r#"{"topic":"ops","priority":"high"}"#), 40017);
    assert_eq!(json(r#"{"topic":"ops","priority":9}"#), 40007);
    assert_eq!(json(r#"{"message":"no topic"}"#), 40009);
    assert_eq!(json(r#"{"topic":"docs"}"#), 40010);
    assert_eq!(json(&"x".repeat(JSON_BYTES + 1)), 41303);
}

// S002-64: at the limit, and one more.
#[test]
fn a_message_has_4096_bytes_at_the_most() {
    let text = |len: usize| from_text("ops", &params(&[], ""), "x".repeat(len).as_bytes());
    assert_eq!(text(4096).unwrap().content.message.len(), 4096);
    assert_eq!(code(text(4097)), 41301);
    let json = json!({ "topic": "ops", "message": "x".repeat(4097) }).to_string();
    assert_eq!(code(from_json(&params(&[], ""), json.as_bytes())), 41301);
}

#[test]
fn attachments_elsewhere_and_actions_are_kept() {
    let actions = r#"[{"action":"view","label":"Open","url":"https://x.example"}]"#;
    let given = params(&[("attach", "https://x.example/a/b.png?c"), ("actions", actions), ("md", "1")], "");
    let content = from_text("ops", &given, b"x").unwrap().content;
    assert_eq!(content.attachment.unwrap().name, "b.png");
    assert_eq!(content.actions.len(), 1);
    assert_eq!(content.content_type, "text/markdown");
}

// S002-68: the base of the path, as Go sees it.
#[test]
fn an_attachment_without_a_name_is_called_after_its_url() {
    for (url, name) in [
        ("http://e.com", "attachment"),
        ("http://e.com?q=/x.png", "attachment"),
        ("http://e.com#/x.png", "attachment"),
        ("http://e.com/", "attachment"),
        ("http://e.com//", "attachment"),
        ("http://e.com/a%20b.txt", "a b.txt"),
        ("http://e.com/%C3%A4.txt", "ä.txt"),
        ("http://e.com/a/b%2Fc.txt?d#e", "c.txt"),
        ("http://e.com/a/dir/", "dir"),
        ("http://e.com/a%3Fb", "a?b"),
    ] {
        let draft = from_text("ops", &params(&[("attach", url)], ""), b"x").unwrap();
        assert_eq!(draft.content.attachment.unwrap().name, name, "{url}");
    }
}

// S002-68: ntfy says so of a file that comes without a word.
#[test]
fn an_attachment_without_a_text_is_named() {
    let said = |headers: &[(&'static str, &str)]| from_text("ops", &params(headers, ""), b"").unwrap().content.message;
    let url = ("attach", "https://x.example/a/b.png?c");
    assert_eq!(said(&[url]), "You received a file: b.png");
    assert_eq!(said(&[url, ("filename", "cat.png")]), "You received a file: cat.png");
    assert_eq!(said(&[("attach", "https://x.example/")]), "You received a file: attachment");
    assert_eq!(said(&[url, ("m", "look")]), "look");
    let body = json!({ "topic": "ops", "attach": url.1 });
    let draft = from_json(&params(&[], ""), body.to_string().as_bytes()).unwrap();
    assert_eq!(draft.content.message, "You received a file: b.png");
}
