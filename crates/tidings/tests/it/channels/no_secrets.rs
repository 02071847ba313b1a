//! Canaries in every secret of every channel: none comes out again. SX-20

use tidings::channel::webhook::Target;
use tidings::channel::{ntfy, webhook};
use tidings::config::Secret;
use tidings::outbound::Outbound;

use super::http_server::{Reply, Server};
use super::{guarded, notice, now, quick};

/// Echoes everything it was sent, as a hostile or chatty server would.
async fn echo(status: u16) -> Server {
    Server::start(move |asked| {
        let body = serde_json::json!({"code": 1, "error": format!("{asked:?}"), "message": format!("{asked:?}")});
        Reply::Answer { status, headers: Vec::new(), body: body.to_string() }
    })
    .await
}

fn assert_clean(said: &str) {
    for canary in ["CANARY", "Q0FOQVJZ"] {
        assert!(!said.contains(canary), "{said}");
    }
}

// SX-20
#[tokio::test]
async fn ntfys_token_stays_inside() {
    for status in [200, 400, 403, 429, 500] {
        let server = echo(status).await;
        let outbound = Outbound::trusted_with(quick()).unwrap();
        let url = format!("{}?auth=CANARY", server.url("/CANARY"));
        let sender = ntfy::Sender::new(outbound, &url, Some(Secret::new("tk_CANARY"))).unwrap();
        let outcome = sender.send(&notice(), "ops", now()).await;
        assert_clean(&format!("{outcome:?} {} {sender:?}", outcome.text()));
    }
    let outbound = Outbound::trusted_with(quick()).unwrap();
    let dead = ntfy::Sender::new(outbound, "http://127.0.0.1:1/CANARY", Some(Secret::new("tk_CANARY"))).unwrap();
    assert_clean(&format!("{:?}", dead.send(&notice(), "ops", now()).await));
}

// SX-20
#[tokio::test]
async fn webhook_secrets_and_urls_stay_inside() {
    let secret = format!("whsec_{}", "Q0FOQVJZ".repeat(4));
    for status in [200, 302, 400, 410, 429, 500] {
        let server = echo(status).await;
        let target = Target { url: server.url("/CANARY?key=CANARY"), secrets: vec![Secret::new(&*secret)] };
        let outcome = webhook::Sender::new(guarded()).send(&notice(), &target, now()).await;
        assert_clean(&format!("{outcome:?} {}", outcome.text()));
        assert_clean(&format!("{target:?}"));
    }
    for url in ["http://127.0.0.1:1/CANARY", "http://CANARY:CANARY@127.0.0.1/", "http://10.0.0.1/CANARY", "CANARY"] {
        let target = Target { url: url.to_owned(), secrets: vec![Secret::new(&*secret)] };
        assert_clean(&format!("{:?}", webhook::Sender::new(guarded()).send(&notice(), &target, now()).await));
    }
}
