//! `serve --demo`: a small company at work, so that there is something to see on every page within seconds.
//!
//! `company` sets up its rules, people and schedules; `story` tells its day, event by event; `office` does its work;
//! `receiver` is the other side of its webhooks, which fails now and then; `place` is where its data is.

mod bus;
mod company;
mod office;
pub mod place;
mod receiver;
mod story;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tidings_core::envelope::{self, Defaults};
use tidings_core::time::iso_millis;
use tokio::net::TcpListener;

use self::story::Scene;
use crate::alerts::Refused;
use crate::alerts::shapes::Found;
use crate::app::Services;
use crate::config::Config;
use crate::config::bus::Queue;
use crate::config::limits::Limits;
use crate::config::monitors::{Metric, Monitor, Severity};
use crate::config::rules::{Channel, Target};
use crate::config::schedules::Schedule;
use crate::ingest::{Bad, Draft};
use crate::tickets::{NewTicket, Origin, Status};

const EVERY: Duration = Duration::from_millis(700);
/// Events at once at the start, so that nobody looks at empty pages.
const AT_FIRST: usize = 80;
const TRANSFERS_EXPIRE_SECONDS: u64 = 40;
/// Of the queue of labels: an incident within seconds, for somebody to acknowledge.
const MONITOR: &str = "labels-that-cannot-be-printed";

/// What the story comes back to.
#[derive(Debug, Clone, Default)]
struct Latest {
    ticket: Option<String>,
    request: Option<String>,
    transfer: Option<String>,
    /// Invoices so far.
    invoices: usize,
}

type Memory = Arc<Mutex<Latest>>;

/// A demo that has not begun.
pub struct Demo {
    receiver: TcpListener,
    address: SocketAddr,
}

/// The demo's configuration. Of what was given it keeps where it listens and what it says, takes and needs; all that could
/// reach somebody is its own, so that it neither mails anybody nor works on anything that is real: its store is embedded,
/// mails become files, pushes go to the built-in server, and no source is asked.
#[must_use]
pub fn configure(given: Config) -> Config {
    let queue = Queue { name: bus::QUEUE.to_owned(), ..Queue::default() };
    let mut config = Config {
        listen: given.listen,
        data_dir: given.data_dir,
        public_url: given.public_url,
        push: given.push,
        log: given.log,
        // Of these, only whose events are taken could stand in its way.
        limits: Limits { event_sources: Vec::new(), ..given.limits },
        queues: vec![queue],
        monitors: vec![monitor()],
        schedules: vec![daily_hello()],
        ..Config::default()
    };
    (config.store.cache_mb, config.store.reserve_mb) = (given.store.cache_mb, given.store.reserve_mb);
    // Its own receiver.
    config.outbound.allow = vec!["127.0.0.1".to_owned()];
    config.process_alerts.recipients = vec![company::ARCHITECTS.to_owned()];
    config.process_alerts.authorized_accounts = Some(vec![company::PIPELINE.to_owned()]);
    // What takes three days elsewhere: so that somebody sees it happen.
    config.transfers.expire_seconds = TRANSFERS_EXPIRE_SECONDS;
    config
}

fn monitor() -> Monitor {
    let target = Target { channel: Some(Channel::Inbox), users: vec!["bruno".to_owned()], ..Target::default() };
    Monitor {
        name: MONITOR.to_owned(),
        metric: Some(Metric::DeadLetters),
        entity: Some(bus::QUEUE.to_owned()),
        for_seconds: 5,
        severity: Severity::Warning,
        targets: vec![target],
        ..Monitor::default()
    }
}

/// The seed's.
fn daily_hello() -> Schedule {
    let payload = json!({ "text": "hello world", "priority": "default", "tags": ["scheduled", "daily"] });
    Schedule {
        name: "daily-hello".to_owned(),
        cron: Some("0 9 * * *".to_owned()),
        message_type: "scheduled_hello".to_owned(),
        payload: serde_json::from_value(payload).unwrap_or_default(),
        ..Schedule::default()
    }
}

impl Demo {
    /// Takes an address for the receiver.
    pub async fn prepare() -> std::io::Result<Self> {
        let receiver = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = receiver.local_addr()?;
        Ok(Self { receiver, address })
    }

    /// Starts playing; it stops with the server.
    pub async fn play(self, services: &Services) -> Result<(), String> {
        company::found(services, self.address).await?;
        services.workers.run("demo receiver", receiver::run(self.receiver, services.workers.stopping()));
        let player = services.clone();
        let count = AtomicUsize::new(0);
        let memory = Memory::default();
        services.workers.spawn("demo", EVERY, move || {
            let (services, memory) = (player.clone(), Arc::clone(&memory));
            let n = count.fetch_add(1, Ordering::Relaxed);
            async move {
                if n == 0 {
                    for early in 0..AT_FIRST {
                        happen(&services, early, &memory).await?;
                    }
                }
                happen(&services, n + AT_FIRST, &memory).await
            }
        });
        Ok(())
    }
}

/// The `n`th thing that happens.
async fn happen(services: &Services, n: usize, memory: &Memory) -> Result<(), String> {
    let now = services.clock.now();
    let correlation = services.ids.uuid(now).to_string();
    let mut latest = memory.lock().unwrap_or_else(PoisonError::into_inner).clone();
    play_scene(services, story::scene(n, &iso_millis(now)), &mut latest, &correlation).await?;
    *memory.lock().unwrap_or_else(PoisonError::into_inner) = latest;
    story::message(services, n, &correlation).await
}

async fn play_scene(services: &Services, scene: Scene, latest: &mut Latest, correlation: &str) -> Result<(), String> {
    let now = services.clock.now();
    let origin = Origin::new("demo", correlation);
    match scene {
        Scene::Event(event) => send(services, &event, correlation).await?,
        Scene::Audit(entry) => {
            let found = Found::Entry { text: entry.to_string().into(), id: None };
            services.alerts.receive(&services.ingest, vec![found], correlation, Refused::Told).await.map_err(text)?;
        }
        Scene::Ticket { caller_id, issue } => {
            let new = NewTicket { caller_id, issue_description: issue };
            let ids = (services.ids.uuid(now), services.ids.uuid(now));
            let made = services.tickets.create(new, origin, ids).await.map_err(|why| format!("{why:?}"))?;
            latest.ticket = Some(made.ticket_id);
        }
        Scene::Comment(comment) => {
            if let Some(id) = &latest.ticket {
                let commented = services.tickets.comment(id, &comment, origin, services.ids.uuid(now)).await;
                commented.map_err(|why| format!("{why:?}"))?;
                let moved = services.tickets.set_status(&services.audit, id, Status::InProgress, origin).await;
                moved.map_err(|why| format!("{why:?}"))?;
            }
        }
        Scene::Invoice { product } => {
            let id = office::upload(services, latest.invoices, &product, origin).await?;
            bus::label(services, latest.invoices, &id, correlation).await?;
            latest.invoices += 1;
        }
        Scene::Label { parcel } => bus::label(services, parcel, &format!("parcel-{parcel}"), correlation).await?,
        Scene::Request { person, text } => {
            latest.request = Some(office::request(services, &person, text, origin).await?);
        }
        Scene::RequestMoves(status) => {
            if let Some(id) = &latest.request {
                office::move_on(services, id, status, origin).await?;
            }
        }
        Scene::Transfer { product, from, to } => {
            latest.transfer = Some(office::offer(services, (&product, &from, &to), origin).await?);
        }
        Scene::TransferAnswered { accept } => {
            // The next one is offered before this one is answered again; what nobody answers expires.
            if let Some(id) = latest.transfer.take() {
                office::answer(services, &id, accept, origin).await;
            }
        }
    }
    Ok(())
}

fn text(error: tidings_store::Error) -> String {
    error.to_string()
}

async fn send(services: &Services, event: &Value, correlation: &str) -> Result<(), String> {
    let now = services.clock.now();
    let draft = {
        let make_id = || services.ids.uuid(now).to_string();
        let defaults = Defaults { now, correlation_id: correlation, event_id: &make_id };
        let event = envelope::read(&event.to_string(), &defaults);
        event.map_or_else(|errors| Draft::Bad(Bad { errors, ..Bad::default() }), |event| Draft::Good(event.into()))
    };
    services.ingest.accept(vec![draft]).await.map(drop).map_err(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::store::Engine;

    // Whoever names the file of a real installation finds nobody told and nothing touched.
    #[test]
    fn of_a_real_configuration_nothing_is_left_that_reaches_anybody() {
        let text = r#"listen = "127.0.0.1:1"
public_url = "https://tidings.example.com"
[store]
engine = "dynamodb"
region = "us-east-1"
table_prefix = "prod-"
cache_mb = 64
[email]
transport = "smtp"
smtp_url = "smtp://mail.example.com"
[ntfy]
server = "https://ntfy.example.com"
[outbound]
allow = ["10.0.0.0/8"]
[process_alerts]
recipients = ["everybody@example.com"]
ssm_parameter = "/accounts"
[limits]
event_sources = ["shop"]
body_bytes = 4096
[[rules]]
name = "loud"
pattern = { eventType = ["a"] }
targets = [{ channel = "webhook", url = "https://hooks.example.com" }]
[[sources]]
name = "audit"
kind = "azure-devops"
organization = "o"
token = "t"
"#;
        let given = Config::parse(text, std::iter::empty()).unwrap_or_else(|problems| panic!("{problems}"));
        let plain = configure(Config::default());
        let config = configure(given.clone());
        assert_eq!(config.store.engine, Engine::Embedded);
        assert_eq!(config.process_alerts.recipients, [company::ARCHITECTS]);
        assert_eq!((config.store.cache_mb, config.limits.body_bytes), (64, 4096));
        assert_eq!(config.public_url, "https://tidings.example.com");
        let expected = Config {
            listen: given.listen,
            public_url: given.public_url,
            store: crate::config::store::Store { cache_mb: 64, ..plain.store.clone() },
            limits: Limits { body_bytes: 4096, ..plain.limits.clone() },
            ..plain
        };
        assert_eq!(config, expected);
    }
}
