use super::*;

fn texts(body: &str) -> Vec<String> {
    let found = match read(&HeaderMap::new(), body.as_bytes(), 100).unwrap() {
        Request::One(found) => vec![found],
        Request::Many(found) => found,
        Request::Handshake(code) => panic!("{code}"),
    };
    let shown = |found| match found {
        Found::Entry { text, id } => format!("{text} {}", id.unwrap_or_default()).trim_end().to_owned(),
        Found::Other { .. } => "other".to_owned(),
    };
    found.into_iter().map(shown).collect()
}

const ENTRY: &str = r#"{ "actionId" : "Process.Field.Add", "data":{"a":1.50} }"#;

// S000-24: as it came, to the byte. S000-76: every way it may come.
#[test]
fn an_event_is_found_in_every_envelope() {
    let base64 = BASE64_STANDARD.encode(ENTRY);
    let quoted = serde_json::Value::from(ENTRY).to_string();
    for (body, expected) in [
        (ENTRY.to_owned(), vec![ENTRY.to_owned()]),
        (format!("[{ENTRY},{ENTRY}]"), vec![ENTRY.to_owned(); 2]),
        (format!("{ENTRY}\n{ENTRY}\n"), vec![ENTRY.to_owned(); 2]),
        (format!(r#"{{"decoratedAuditLogEntries":[{ENTRY}],"hasMore":false}}"#), vec![ENTRY.to_owned()]),
        (format!(r#"{{"value":{{"decoratedAuditLogEntries":[{ENTRY}]}}}}"#), vec![ENTRY.to_owned()]),
        (r#"{"decoratedAuditLogEntries":[]}"#.to_owned(), vec![]),
        (format!(r#"[{{"id":"g","eventType":"x","data":{ENTRY}}}]"#), vec![format!("{ENTRY} g")]),
        (
            format!(r#"[{{"id":"g","eventType":"x","data":[{ENTRY},{ENTRY}]}}]"#),
            vec![format!("{ENTRY} g/0"), format!("{ENTRY} g/1")],
        ),
        (format!(r#"{{"specversion":"1.0","id":"c","data":{ENTRY}}}"#), vec![format!("{ENTRY} c")]),
        (format!(r#"{{"specversion":"1.0","id":"c","data_base64":"{base64}"}}"#), vec![format!("{ENTRY} c")]),
        (format!(r#"{{"version":"0","id":"b","detail-type":"x","detail":{ENTRY}}}"#), vec![format!("{ENTRY} b")]),
        (format!(r#"{{"id":"b","detail-type":"x","detail":{quoted}}}"#), vec![format!("{ENTRY} b")]),
        (format!(r#"{{"time":1.5,"event":{ENTRY}}}{{"event":{ENTRY}}}"#), vec![ENTRY.to_owned(); 2]),
        (
            format!(r#"[{{"eventType":"Microsoft.EventGrid.SubscriptionDeletedEvent","data":{{}}}},{ENTRY}]"#),
            vec!["other".to_owned(), ENTRY.to_owned()],
        ),
        (
            format!(r#"{{"specversion":"1.0","id":"a@b%","source":"/s","data":{ENTRY}}}"#),
            vec![format!("{ENTRY} a%40b%25@/s")],
        ),
        (format!(r#"[{{"id":"g","topic":"t","eventType":"x","data":{ENTRY}}}]"#), vec![format!("{ENTRY} g@t")]),
        ("{}".to_owned(), vec!["{}".to_owned()]),
        ("7".to_owned(), vec!["7".to_owned()]),
    ] {
        assert_eq!(texts(&body), expected, "{body}");
    }
}

#[test]
fn event_grids_question_is_recognised() {
    let ask = |data: &str| format!(r#"[{{"id":"1","eventType":"{VALIDATION}","data":{data}}}]"#);
    let read = |body: String| read(&HeaderMap::new(), body.as_bytes(), 10).map(|request| format!("{request:?}"));
    assert_eq!(read(ask(r#"{"validationCode":"42"}"#)).unwrap(), r#"Handshake("42")"#);
    assert_eq!(read(ask("{}")).unwrap_err().errors[0].field, "data.validationCode");
}

#[test]
fn what_is_no_json_is_refused() {
    for body in ["", " ", "[]", "{", "[1,", "{}{", "{\"a\":1}}"] {
        assert!(read(&HeaderMap::new(), body.as_bytes(), 10).is_err(), "{body:?}");
    }
    assert!(read(&HeaderMap::new(), b"\xff", 10).is_err());
    let many = |n: usize| format!("[{}]", vec![ENTRY; n].join(","));
    assert!(read(&HeaderMap::new(), many(10).as_bytes(), 10).is_ok());
    assert_eq!(read(&HeaderMap::new(), many(11).as_bytes(), 10).unwrap_err().status, 413);
}
