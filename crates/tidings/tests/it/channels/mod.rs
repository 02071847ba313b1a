//! Every channel against a counterpart that answers well, badly, late or never.

pub mod http_server;
mod no_secrets;
mod ntfy;
mod ses;
mod smtp;
mod smtp_answers;
pub mod smtp_sink;
pub mod smtp_talker;
mod smtp_tls;
mod smtp_turns;
mod webhook;

use std::time::Duration;

use serde_json::json;
use tidings::channel::{Notice, Priority};
use tidings::outbound::{Outbound, SystemResolver, Timeouts};
use tidings_core::time::Timestamp;

fn now() -> Timestamp {
    "2026-11-15T12:34:56Z".parse().unwrap()
}

fn notice() -> Notice<'static> {
    Notice {
        message_id: "0198c0de-0000-7000-8000-000000000001".parse().unwrap(),
        correlation_id: "c-17".into(),
        trace_id: None,
        message_type: "alert_notification".into(),
        created_at: now(),
        title: "Disk full".into(),
        text: "Disk /var is full".into(),
        html: None,
        priority: Priority::High,
        tags: vec!["warning".into()],
        click_url: None,
        link: Some("https://tidings.example/ui/messages/1".to_owned()),
        payload: json!({"disk": "/var"}),
    }
}

fn quick() -> Timeouts {
    Timeouts {
        connect: Duration::from_millis(500),
        first_byte: Duration::from_millis(500),
        total: Duration::from_millis(1500),
    }
}

/// The client for addresses that came through the API, allowed to call this machine.
fn guarded() -> Outbound {
    let config = tidings::config::outbound::Outbound { allow: vec!["127.0.0.1".to_owned()] };
    Outbound::guarded_with(&config, std::sync::Arc::new(SystemResolver), quick()).unwrap()
}
