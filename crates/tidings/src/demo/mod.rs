//! `serve --demo`: a small company at work, so that there is something to see on every page within seconds.
//!
//! `company` sets up its rules, people and schedules; `story` tells its day, event by event; `receiver` is the other side
//! of its webhooks, which fails now and then.

mod company;
mod receiver;
mod story;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::Value;
use tidings_core::envelope::{self, Defaults};
use tokio::net::TcpListener;

use crate::app::Services;
use crate::config::Config;
use crate::ingest::Draft;

const EVERY: Duration = Duration::from_millis(700);
/// Events at once at the start, so that nobody looks at empty pages.
const AT_FIRST: usize = 24;

/// A demo that has not begun.
pub struct Demo {
    receiver: TcpListener,
    address: SocketAddr,
}

impl Demo {
    /// Takes an address for the receiver and lets webhooks reach it.
    pub async fn prepare(config: &mut Config) -> std::io::Result<Self> {
        let receiver = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = receiver.local_addr()?;
        config.outbound.allow.push("127.0.0.1".to_owned());
        Ok(Self { receiver, address })
    }

    /// Starts playing; it stops with the server.
    pub async fn play(self, services: &Services) -> Result<(), String> {
        company::found(services, self.address).await?;
        services.workers.run("demo receiver", receiver::run(self.receiver, services.workers.stopping()));
        let player = services.clone();
        let count = AtomicUsize::new(0);
        services.workers.spawn("demo", EVERY, move || {
            let services = player.clone();
            let n = count.fetch_add(1, Ordering::Relaxed);
            async move {
                if n == 0 {
                    for early in 0..AT_FIRST {
                        happen(&services, early).await?;
                    }
                }
                happen(&services, n + AT_FIRST).await
            }
        });
        Ok(())
    }
}

/// The `n`th thing that happens.
async fn happen(services: &Services, n: usize) -> Result<(), String> {
    let correlation = services.ids.uuid(services.clock.now()).to_string();
    send(services, &story::event(n), &correlation).await?;
    story::message(services, n, &correlation).await
}

async fn send(services: &Services, event: &Value, correlation: &str) -> Result<(), String> {
    let now = services.clock.now();
    let draft = {
        let make_id = || services.ids.uuid(now).to_string();
        let defaults = Defaults { now, correlation_id: correlation, event_id: &make_id };
        let event = envelope::read(&event.to_string(), &defaults);
        event.map_or_else(|errors| Draft::Bad { errors, too_large: false }, Draft::Good)
    };
    services.ingest.accept(vec![draft]).await.map(drop).map_err(|error| error.to_string())
}
