//! CloudEvents 1.0 as an envelope (S003-56): the same event under other names.

use crate::envelope::{Defaults, Draft, Envelope, FieldError, Lent, given};

/// Reads one CloudEvent in its JSON form (structured mode), or names every attribute that is wrong.
///
/// An envelope's data is an object; other JSON data is kept under `value`, and binary data under `base64`.
pub fn read(text: &str, defaults: &Defaults<'_>) -> Result<Envelope, Vec<FieldError>> {
    let fields = crate::json::object(text).map_err(|bad| vec![bad.into()])?;
    let mut draft = Draft { is_sound: fields.is_sound, ..Draft::default() };
    let (mut specversion, mut data, mut base64) = (None, None, None);
    let mut errors = Vec::new();
    for (name, value) in fields.all {
        match name.as_ref() {
            "specversion" => specversion = Some(value),
            "id" => draft.event_id = Some(value),
            "type" => draft.event_type = Some(value),
            "source" => draft.source = Some(value),
            "subject" => draft.subject = Some(value),
            "time" => draft.event_timestamp = Some(value),
            "correlationid" => draft.correlation_id = Some(value),
            "eventversion" => draft.event_version = Some(value),
            "data" => data = Some(value),
            "data_base64" => base64 = Some(value),
            // As an extension it would take the place of the envelope's own field.
            "eventId" | "eventType" | "eventVersion" | "eventTimestamp" | "correlationId" => {
                errors.push(FieldError::new(name, "is no attribute: CloudEvents writes them in lower case"));
            }
            _ => draft.extensions.push((name, value.into())),
        }
    }
    errors.extend(missing(&draft, specversion));
    if data.is_some() && base64.is_some() {
        errors.push(FieldError::new("data_base64", "must not stand beside data"));
    }
    let object = match (given(data), given(base64)) {
        (Some(data), _) if data.starts_with('{') => data.to_owned(),
        (Some(data), _) => format!(r#"{{"value":{data}}}"#),
        (None, Some(base64)) if is_base64(base64) => format!(r#"{{"base64":{base64}}}"#),
        (None, Some(_)) => {
            errors.push(FieldError::new("data_base64", "must be a string in Base64"));
            "{}".to_owned()
        }
        (None, None) => "{}".to_owned(),
    };
    draft.data = Some(&object);
    match draft.finish(defaults, defaults.correlation_id).map(Lent::into_envelope) {
        // What is no object of its own stands deeper here than where it came from, and so does the body of binary mode.
        Ok(envelope) if errors.is_empty() => envelope.check_depth().map(|()| envelope),
        Ok(_) => Err(errors),
        Err(more) => {
            let unnamed = |error: &FieldError| errors.iter().all(|known| known.field != error.field);
            let more: Vec<_> = more.into_iter().map(in_their_words).filter(unnamed).collect();
            errors.extend(more);
            Err(errors)
        }
    }
}

/// Whether JSON is a string in Base64: whole groups of four, the last one padded.
fn is_base64(json: &str) -> bool {
    let Ok(text) = serde_json::from_str::<std::borrow::Cow<'_, str>>(json) else { return false };
    let digits = text.strip_suffix("==").or_else(|| text.strip_suffix('=')).unwrap_or(&text);
    text.len() % 4 == 0 && digits.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'+' || byte == b'/')
}

fn missing(draft: &Draft<'_>, specversion: Option<&str>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if specversion != Some("\"1.0\"") {
        errors.push(FieldError::new("specversion", "must be \"1.0\""));
    }
    for (name, value) in [("id", draft.event_id), ("source", draft.source), ("type", draft.event_type)] {
        if given(value).is_none() {
            errors.push(FieldError::new(name, "is required"));
        }
    }
    errors
}

/// The attribute's name in CloudEvents.
fn in_their_words(mut error: FieldError) -> FieldError {
    error.field = match error.field.as_str() {
        "eventId" => "id",
        "eventType" => "type",
        "eventTimestamp" => "time",
        "eventVersion" => "eventversion",
        "correlationId" => "correlationid",
        other => other,
    }
    .to_owned();
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    fn defaults_read(text: &str) -> Result<Envelope, Vec<FieldError>> {
        let now = "2026-11-15T12:00:00Z".parse().unwrap();
        read(text, &Defaults { now, correlation_id: "c-1", event_id: &|| "made".to_owned() })
    }

    // S003-56
    #[test]
    fn attributes_become_the_envelopes_fields() {
        let event = defaults_read(
            r#"{"specversion":"1.0","id":"1","source":"/s","type":"t","subject":"x","time":"2026-01-02T03:04:05Z",
                "datacontenttype":"application/json","correlationid":"mine","data":{"a":1}}"#,
        )
        .unwrap();
        assert_eq!(
            event.to_json(),
            r#"{"eventId":"1","eventType":"t","eventVersion":"1.0","eventTimestamp":"2026-01-02T03:04:05.000000Z","correlationId":"mine","source":"/s","subject":"x","data":{"a":1},"datacontenttype":"application/json"}"#
        );
    }

    #[test]
    fn data_that_is_no_object_is_kept_in_one() {
        let with = |data: &str| {
            let text = format!(r#"{{"specversion":"1.0","id":"1","source":"/s","type":"t",{data}}}"#);
            defaults_read(&text).map(|event| event.data)
        };
        assert_eq!(with(r#""data":[1,"a"]"#).unwrap(), r#"{"value":[1,"a"]}"#);
        assert_eq!(with(r#""data":null"#).unwrap(), "{}");
        assert_eq!(with(r#""data_base64":"AAEC""#).unwrap(), r#"{"base64":"AAEC"}"#);
        assert_eq!(with(r#""data_base64":"""#).unwrap(), r#"{"base64":""}"#);
        for bad in ["!!", "AAE", "A===", "AA=A", "AAEC\\n", "AA-_"] {
            let refused = with(&format!(r#""data_base64":"{bad}""#)).unwrap_err();
            assert_eq!(refused[0].field, "data_base64", "{bad}");
        }
        assert_eq!(with(r#""data":{},"data_base64":"AA""#).unwrap_err()[0].field, "data_base64");
        assert_eq!(with(r#""data_base64":7"#).unwrap_err()[0].field, "data_base64");
    }

    // An envelope has 64 levels, whatever its data was inside of before.
    #[test]
    fn the_depth_of_the_finished_envelope_counts() {
        let with = |open: &str, levels: usize, close: &str| {
            let data = format!("{}1{}", open.repeat(levels), close.repeat(levels));
            defaults_read(&format!(r#"{{"specversion":"1.0","id":"1","source":"/s","type":"t","data":{data}}}"#))
        };
        for (open, close, most) in [(r#"{"a":"#, "}", 63), ("[", "]", 62)] {
            assert!(with(open, most - 1, close).is_ok());
            assert!(with(open, most, close).is_ok());
            assert_eq!(with(open, most + 1, close).unwrap_err()[0].field, "data");
        }
    }

    #[test]
    fn every_wrong_attribute_is_named_in_cloudevents_words() {
        let fields: Vec<_> = defaults_read(r#"{"specversion":"0.3","type":"","time":"soon"}"#)
            .unwrap_err()
            .into_iter()
            .map(|error| error.field)
            .collect();
        assert_eq!(fields, ["specversion", "id", "source", "type", "time"]);
    }
}
