//! The whole system put together: `App::open` opens the store and binds, `App::run` serves until told to stop. `work` starts
//! what goes on beside the requests.

mod files;
mod listeners;
mod open;
mod work;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tidings_core::ids::IdSource;
use tidings_core::time::Clock;
use tidings_store::embedded::Embedded;
use tidings_store::{Store, Table};
use tokio::net::TcpListener;

use crate::alerts::{self, Alerts};
use crate::audit::{self, Action, Audit};
use crate::bench::limit::Appender;
use crate::bus::{self, Bus};
use crate::business::{self, Business};
use crate::config::Config;
use crate::engine::{self, Opened};
use crate::events::{Events, Live, record};
use crate::figures::{self, Figures};
use crate::http::{self, Idempotency, Metrics, Sealer, Server};
use crate::inbox::{self, Inbox};
use crate::incidents::gauges::House;
use crate::incidents::{self, Incidents};
use crate::ingest::Ingest;
use crate::messages::deliver::senders::Senders;
use crate::messages::{self, Messages};
use crate::nodes::forward::Forwarder;
use crate::nodes::{self, Nodes};
use crate::push::Push;
use crate::reload::{Reload, RequestLimits};
use crate::rules::{self, Rules};
use crate::schedules::Schedules;
use crate::secrets;
use crate::sources;
use crate::tickets::callers::Callers;
use crate::tickets::{self, Tickets};
use crate::tokens::{self, NewToken, Scope, Tokens};
use crate::workers::Workers;
use crate::{push, schedules};

use files::{appender, write_file, write_private};
use listeners::{Listeners, bind};

/// Where it is noted which token the first one was.
const FIRST_TOKEN: &str = "first-administrator";

/// What handlers and workers need; cheap to clone.
#[derive(Clone)]
pub struct Services(Arc<Parts>);

/// The parts of a running server.
pub struct Parts {
    pub config: Config,
    pub clock: Arc<dyn Clock>,
    pub ids: Arc<dyn IdSource>,
    pub store: Arc<dyn Store>,
    /// The same store, if it is the embedded engine: for what only that can do.
    pub embedded: Option<Arc<Embedded>>,
    pub metrics: Arc<Metrics>,
    pub tokens: Tokens,
    pub audit: Arc<Audit>,
    pub sealer: Sealer,
    pub idempotency: Idempotency,
    pub events: Events,
    pub live: Live,
    pub ingest: Arc<Ingest>,
    pub inbox: Inbox,
    /// The built-in push server, unless it is switched off.
    pub push: Option<Arc<Push>>,
    pub schedules: Arc<Schedules>,
    pub messages: Arc<Messages>,
    pub alerts: Arc<Alerts>,
    pub tickets: Arc<Tickets>,
    pub business: Business,
    pub senders: Senders,
    pub rules: Rules,
    pub figures: Arc<Figures>,
    pub bus: Arc<Bus>,
    pub incidents: Arc<Incidents>,
    /// How the places fare that are asked for events.
    pub sources: sources::board::Board,
    /// Who else works on the store; none on one that nobody can share.
    pub nodes: Option<Arc<Nodes>>,
    pub(crate) forwarder: Option<Forwarder>,
    pub workers: Workers,
    /// Limits on requests, as the last reload left them.
    pub limits: RequestLimits,
    pub reload: Reload,
    /// For `bench limit` only.
    pub limit: Option<Appender>,
}

impl std::ops::Deref for Services {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        &self.0
    }
}

/// What the outside world gives a server.
pub struct Surroundings {
    pub clock: Arc<dyn Clock>,
    pub ids: Arc<dyn IdSource>,
    /// Only for the crash tests' negative control.
    pub acknowledge_before_fsync: bool,
    /// Only for the crash tests: when commits go into tables, if not at the usual size.
    pub sheet_bytes: Option<usize>,
    /// Only for `bench`: a file that `POST /limit` appends to.
    pub limit_file: Option<PathBuf>,
    /// Reads the configuration anew for a reload; absent, there is none.
    pub reload: Option<crate::reload::Source>,
    /// Whether a new store begins with the sample schedule.
    pub sample: bool,
}

/// Why a server cannot start; one sentence that says what to do.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Store(#[from] tidings_store::Error),
    #[error("cannot listen on {address}: {source}; choose another address with {setting}")]
    Listen { address: SocketAddr, setting: &'static str, source: std::io::Error },
    #[error("cannot write {path}: {source}", path = path.display())]
    Write { path: PathBuf, source: std::io::Error },
    #[error("{0}")]
    Unsupported(String),
}

/// A server that is ready to run.
pub struct App {
    pub services: Services,
    listeners: Listeners,
    /// The address it is reached at.
    pub url: String,
    /// The address of the push server, unless it is off.
    pub push_url: Option<String>,
    /// Where the administrator's token was written, if this is the first start.
    pub first_token: Option<PathBuf>,
}

/// Every table of the system; the messages' is named after the stage.
#[must_use]
pub fn tables(stage: &str) -> Vec<Table> {
    let mut tables = [
        record::table(),
        record::ids_table(),
        record::days_table(),
        tokens::table(),
        audit::table(),
        secrets::table(),
        figures::table(),
        crate::ui::session::table(),
        http::idempotency_table(),
        inbox::record::table(),
        alerts::record::table(),
        alerts::record::sources_table(),
        alerts::record::rest_table(),
        alerts::accounts::table(),
        alerts::digest::table(),
        alerts::poller::table(),
        sources::stream::table(),
        push::table(),
        schedules::table(),
        tickets::table(),
        tickets::alerts_table(),
        tickets::correlation::table(),
        messages::counters::table(),
        messages::dead::table(),
        messages::dead::job::table(),
        messages::deliver::targets::table(),
        rules::record::table(),
        rules::job::table(),
        rules::window::table(),
        bus::table(),
        bus::seen_table(),
        nodes::table(),
        bus::history::table(),
        incidents::record::table(),
    ]
    .map(Clone::clone)
    .to_vec();
    tables.extend(business::tables().map(Clone::clone));
    tables.push(messages::record::table(stage));
    tables
}

/// The rules that the configuration makes: its own, and those of its monitors.
#[must_use]
pub fn file_rules(config: &Config) -> Vec<crate::config::rules::Rule> {
    incidents::monitors::rules(&config.monitors).into_iter().chain(config.rules.iter().cloned()).collect()
}

impl App {
    /// Opens the store, makes what a first start needs, and binds the address.
    pub async fn open(mut config: Config, surroundings: Surroundings) -> Result<Self, StartError> {
        let listeners = match bind(&mut config).await {
            Err(error @ StartError::Listen { .. }) => {
                // Whoever starts the same server twice needs no other address.
                engine::require_unused(&config)?;
                return Err(error);
            }
            bound => bound?,
        };
        let opened = engine::open(&config, &surroundings).await?;
        Box::pin(Self::assemble(config, surroundings, listeners, opened)).await
    }

    /// The same over a store that is open already, whatever it is; the data directory must exist.
    pub async fn open_with(
        mut config: Config,
        surroundings: Surroundings,
        store: Arc<dyn Store>,
    ) -> Result<Self, StartError> {
        let listeners = bind(&mut config).await?;
        let opened = Opened { store, embedded: None, shared: false, metrics: Arc::default() };
        Box::pin(Self::assemble(config, surroundings, listeners, opened)).await
    }

    /// The same as one of several on that store.
    pub async fn open_among(
        mut config: Config,
        surroundings: Surroundings,
        store: Arc<dyn Store>,
    ) -> Result<Self, StartError> {
        let listeners = bind(&mut config).await?;
        let opened = Opened { store, embedded: None, shared: true, metrics: Arc::default() };
        Box::pin(Self::assemble(config, surroundings, listeners, opened)).await
    }

    async fn assemble(
        config: Config,
        surroundings: Surroundings,
        listeners: Listeners,
        opened: Opened,
    ) -> Result<Self, StartError> {
        let Surroundings { clock, ids, limit_file, reload, sample, .. } = surroundings;
        let Opened { store, embedded, shared, metrics } = open::vault(&config, opened, &ids).await?;
        let (nodes, forwarder) = open::nodes(&config, &store, &clock, &*ids, shared).await?;
        let sealer = Sealer::new(&secrets::key(&*store, &*ids, "cursor").await?, Arc::clone(&ids));
        let workers = Workers::default();
        let bus = bus::open(&config, &store, &clock, &ids, workers.stopping(), nodes.as_ref()).await?;
        let (live, arrivals): (Live, Arc<inbox::Live>) = Default::default();
        let rules = open::rules(&config, &store, &clock, &file_rules(&config)).await?;
        let callers = Arc::new(Callers::open(&*store, &*ids).await?);
        let messages = open::messages(&store, &config, &callers)?;
        let ingest = Ingest::new(
            Arc::clone(&store),
            Arc::clone(&clock),
            Arc::clone(&ids),
            Arc::clone(&metrics),
            live.clone(),
            Arc::clone(&rules.book),
            &config,
        )
        .signalling(Arc::clone(&messages.signals))
        .announcing(Arc::clone(&arrivals))
        .hashing(Arc::clone(&callers))
        .forwarding(Arc::clone(&bus));
        let push = open::push(&config, &listeners, &ingest, shared).await?;
        let ingest = Arc::new(ingest);
        let tickets = Arc::new(Tickets::new(&ingest, callers, &config));
        let audit = Arc::new(Audit::new(Arc::clone(&store), Arc::clone(&clock)));
        let business = Business::new(&ingest, &bus, &messages, &audit, &config);
        let (senders, alerts) = open::senders(&config, push.clone(), (&tickets, &bus, &ingest));
        let schedules = Schedules::new(Arc::clone(&store), Arc::clone(&ids), Arc::clone(&messages), clock.now());
        schedules.load_first(&config.schedules, &audit, clock.now()).await?;
        let figures = open::figures(&ingest, &messages);
        let gauges = Arc::new(House { bus: Arc::clone(&bus), figures: Arc::clone(&figures) });
        let parts = Parts {
            figures,
            incidents: Arc::new(Incidents::new(&ingest, gauges, &config)),
            tokens: Tokens::new(Arc::clone(&store), Arc::clone(&clock), Arc::clone(&ids)),
            audit,
            sealer,
            idempotency: open::idempotency(&store, &clock, &ids, &config),
            events: Events::new(Arc::clone(&store)),
            live,
            ingest,
            inbox: Inbox::new(Arc::clone(&store), Arc::clone(&clock), Arc::clone(&ids), arrivals),
            push,
            schedules: Arc::new(schedules),
            messages,
            alerts,
            tickets,
            business,
            senders,
            rules,
            bus,
            nodes,
            forwarder,
            sources: sources::board::Board::default(),
            workers,
            limit: limit_file.map(appender).transpose()?,
            limits: RequestLimits::of(&config.limits),
            reload: Reload::new(reload, &config),
            config,
            clock,
            ids,
            store,
            embedded,
            metrics,
        };
        Self::prepare(Services(Arc::new(parts)), listeners, sample).await
    }

    /// What a first start needs, and what every start does before it serves.
    async fn prepare(services: Services, listeners: Listeners, sample: bool) -> Result<Self, StartError> {
        let url = format!("http://{}", services.config.listen);
        let push_url = services.config.push.listen.address().map(|address| format!("http://{address}"));
        services.look_at_nodes().await?;
        if sample {
            services.make_sample().await?;
        }
        let first_token = services.make_first_token().await?;
        services.take_authorized_accounts(&services.config.process_alerts).await?;
        let map = inbox::sync::wanted(&services.config);
        if let Some(map) = map.map_err(|bad| StartError::Unsupported(inbox::sync::sentence(&bad)))? {
            inbox::sync::apply(&services, map).await?;
        }
        Ok(Self { services, listeners, url, push_url, first_token })
    }

    /// Serves until `stop` is ready, then finishes what is under way.
    pub async fn run(self, stop: impl Future<Output = ()>) -> Result<(), StartError> {
        let Self { services, listeners, url, push_url, .. } = self;
        let announcement = services.config.data_dir.join("server.json");
        let mut text = serde_json::json!({ "url": url, "pid": std::process::id() });
        if let (Some(push_url), Some(fields)) = (push_url, text.as_object_mut()) {
            fields.insert("push_url".to_owned(), push_url.into());
        }
        write_file(&announcement, &text.to_string())?;
        services.start_workers();

        let mut routes = http::routes();
        if services.limit.is_some() {
            routes.push(crate::admin::limit_route());
        }
        let api = services.server(listeners.api, crate::ui::with_pages(&services, routes));
        let mut serving = vec![tokio::spawn(api.run(services.workers.stopping()))];
        if let (Some(listener), Some(push)) = (listeners.push, &services.push) {
            let server = services.server(listener, push::router(services.clone(), Arc::clone(push)));
            serving.push(tokio::spawn(server.run(services.workers.stopping())));
        }
        stop.await;
        tracing::info!("stopping: finishing what is under way");
        services.workers.stop();
        for server in serving {
            let _ = server.await;
        }
        services.workers.ended().await;
        if let Err(error) = services.figures.flush().await {
            tracing::warn!(%error, "the last figures are lost");
        }
        services.bus.flush(true).await;
        services.leave_nodes().await;
        if let Some(push) = &services.push {
            push.close().await;
        }
        let _ = std::fs::remove_file(announcement);
        Ok(())
    }
}

impl Services {
    fn server(&self, listener: TcpListener, router: axum::Router) -> Server {
        let limits = &self.config.limits;
        Server {
            listener,
            router,
            metrics: Arc::clone(&self.metrics),
            clock: Arc::clone(&self.clock),
            ids: Arc::clone(&self.ids),
            connections: http::connections_within_file_limit(
                usize::try_from(limits.connections).unwrap_or(usize::MAX),
                1 + usize::from(self.push.is_some()),
            ),
            header_timeout: Duration::from_secs(limits.header_timeout_seconds),
        }
    }

    /// On the first start, which is that without any token yet: the sample schedule.
    async fn make_sample(&self) -> Result<(), StartError> {
        if !self.tokens.list().await?.is_empty() {
            return Ok(());
        }
        let has_destination = self.push.is_some() || self.config.ntfy.server.is_some();
        let writes = self.schedules.sample("tidings", has_destination, self.clock.now()).await?;
        if writes.is_empty() {
            return Ok(());
        }
        let details = schedules::sample::details(has_destination);
        let action = Action::new("schedule.put", "schedule", schedules::sample::NAME).details(details);
        let correlation = self.ids.uuid(self.clock.now()).to_string();
        match self.audit.record_with("tidings", &correlation, action, writes).await {
            // Made by another node just now, or made once and deleted.
            Ok(_) | Err(tidings_store::Error::Conflict { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// On the first start: the administrator's token, in a file that only the owner can read. Of nodes that start together
    /// one makes it.
    async fn make_first_token(&self) -> Result<Option<PathBuf>, StartError> {
        let path = self.config.data_dir.join("admin.token");
        // Read before the tokens: whoever is faster has changed it by the time of our write.
        let made = secrets::noted(&*self.store, FIRST_TOKEN).await?;
        if !self.tokens.list().await?.is_empty() {
            return Ok(None);
        }
        let new = NewToken {
            name: "first administrator".to_owned(),
            scopes: vec![Scope::Admin],
            expires_at: None,
            created_by: "tidings".to_owned(),
        };
        let (token, text, write) = self.tokens.make(new);
        // The file first: a crash in between leaves a token that does not work, and the next start makes another.
        let before = std::fs::read_to_string(&path).ok();
        write_private(&path, &text).map_err(|source| StartError::Write { path: path.clone(), source })?;
        let action = Action::new("token.create", "token", &token.id)
            .details(serde_json::json!({ "name": token.name, "scopes": ["admin"] }));
        let correlation = self.ids.uuid(self.clock.now()).to_string();
        let only = secrets::note(FIRST_TOKEN, &token.id, made.as_deref());
        match self.audit.record_with("tidings", &correlation, action, vec![write, only]).await {
            Ok(_) => {}
            Err(tidings_store::Error::Conflict { .. }) => {
                // Another node has made it, and the file there has it.
                match before {
                    Some(before) => write_private(&path, &before),
                    None => std::fs::remove_file(&path),
                }
                .map_err(|source| StartError::Write { path, source })?;
                return Ok(None);
            }
            Err(error) => return Err(error.into()),
        }
        Ok(Some(path))
    }
}
