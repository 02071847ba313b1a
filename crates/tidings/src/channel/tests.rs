//! What every channel must do alike: the verdict on every status, and no secret in anything it says.

use serde_json::json;

use super::answer::{Meaning, of_ntfy, of_webhook};
use super::*;

pub(crate) fn notice() -> Notice<'static> {
    Notice {
        message_id: "0198c0de-0000-7000-8000-000000000001".parse().unwrap(),
        correlation_id: "c-17".into(),
        trace_id: None,
        message_type: "alert_notification".into(),
        created_at: "2026-11-15T12:00:00Z".parse().unwrap(),
        title: "Disk full".into(),
        text: "Disk /var is full".into(),
        html: None,
        priority: Priority::High,
        tags: vec!["warning".into()],
        click_url: Some("https://click.example/".into()),
        link: Some("https://tidings.example/ui/messages/1".to_owned()),
        payload: json!({"disk": "/var"}),
    }
}

// S002-50; Standard Webhooks
#[test]
fn every_status_has_its_verdict() {
    for status in 200..=599 {
        let ntfy = match status {
            200..=299 => Meaning::Delivered,
            408 | 429 => Meaning::Retry,
            300..=499 => Meaning::Reject,
            _ => Meaning::Retry,
        };
        let webhook = match status {
            410 => Meaning::Gone,
            409 | 425 => Meaning::Retry,
            _ => ntfy,
        };
        assert_eq!(of_ntfy(status), ntfy, "ntfy {status}");
        assert_eq!(of_webhook(status), webhook, "webhook {status}");
    }
}

// S002-61
#[test]
fn priorities_have_five_names_five_numbers_and_an_alias() {
    let read = |text: &str| text.parse::<Priority>().map(Priority::number);
    assert_eq!(["min", "low", "default", "high", "max", "urgent"].map(read), [1, 2, 3, 4, 5, 5].map(Ok));
    assert_eq!(["1", "2", "3", "4", "5"].map(read), [1, 2, 3, 4, 5].map(Ok));
    for bad in ["", "0", "6", "-1", "High", "none", "3.0"] {
        assert_eq!(read(bad), Err(UnknownPriority), "{bad}");
    }
    assert_eq!(serde_json::from_value::<Priority>(json!(4)).unwrap(), Priority::High);
    assert_eq!(serde_json::from_value::<Priority>(json!("urgent")).unwrap(), Priority::Max);
    assert!(serde_json::from_value::<Priority>(json!(true)).is_err());
    assert_eq!(serde_json::to_value(Priority::Max).unwrap(), json!("max"));
}

#[test]
fn one_line_leaves_no_way_to_begin_another() {
    assert_eq!(one_line(" a\r\nBcc: x\0y\u{2028}z\u{85}\u{2029} b\t", 99), "a Bcc: x y z b");
    assert_eq!(one_line("ééé", 2), "éé…");
    assert_eq!(byte_prefix("é😀x", 5), "é");
    assert_eq!(quote("token=s3cret!\n", &["s3cret", ""]), "token=***!");
}

#[test]
fn only_what_the_destination_cannot_do_counts_against_it() {
    let retry = |code, seconds: Option<u64>| {
        Outcome::Retry { after: seconds.map(Duration::from_secs), error: String::new(), code }.health()
    };
    assert_eq!(Outcome::reject("404").health(), Health::Well);
    assert_eq!(Outcome::Delivered { id: None, detail: String::new() }.health(), Health::Well);
    assert_eq!([retry(Some(451), None), retry(Some(408), None)], [Health::Well; 2]);
    assert_eq!([retry(None, None), retry(Some(503), None), retry(Some(421), None)], [Health::Ill; 3]);
    assert_eq!(retry(Some(429), Some(9)), Health::Throttled(Duration::from_secs(9)));
}
