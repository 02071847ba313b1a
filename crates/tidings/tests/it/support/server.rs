//! A server in this process, on a free port, with a clock that the test moves.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tempfile::TempDir;
use tidings::app::{App, Services, StartError, Surroundings};
use tidings::clock::SystemIds;
use tidings::config::store::Engine;
use tidings::config::{self, Config, Listen};
use tidings::engine;
use tidings_core::time::{Clock, ManualClock};
use tidings_store::Store;
use tidings_store::memory::Memory;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::{Client, engines};

/// When the tests' clocks start.
pub const START: &str = "2026-03-01T12:00:00Z";

/// A running server; dropping it stops it.
pub struct TestServer {
    pub url: String,
    pub address: SocketAddr,
    /// The push server's address, if the test switched it on.
    pub push_url: Option<String>,
    pub clock: Arc<ManualClock>,
    pub services: Services,
    admin_token: String,
    stranger: Client,
    data: TempDir,
    stop: Option<oneshot::Sender<()>>,
    running: Option<JoinHandle<Result<(), StartError>>>,
}

/// A clock that stands at [`START`].
pub fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::new(START.parse().unwrap()))
}

impl TestServer {
    pub async fn start() -> Self {
        Self::start_with(|_| {}).await
    }

    /// A server whose configuration `change` has changed.
    pub async fn start_with(change: impl FnOnce(&mut Config)) -> Self {
        let data = tempfile::tempdir().unwrap();
        let clock = clock();
        let mut config = config(data.path());
        change(&mut config);
        let surroundings = surroundings(&clock);
        let app = match config.store.engine {
            Engine::Embedded => App::open(config, surroundings).await,
            Engine::DynamoDb => {
                let store = dynamodb(&config, &clock).await;
                App::open_among(config, surroundings, store).await
            }
        };
        Self::run(app.unwrap(), data, clock)
    }

    /// A server over a store that the test holds, too.
    pub async fn over(store: Arc<dyn Store>, clock: Arc<ManualClock>) -> Self {
        Self::over_with(store, clock, |_| {}).await
    }

    /// The same with a changed configuration.
    pub async fn over_with(store: Arc<dyn Store>, clock: Arc<ManualClock>, change: impl FnOnce(&mut Config)) -> Self {
        let data = tempfile::tempdir().unwrap();
        let mut config = config(data.path());
        change(&mut config);
        let app = App::open_with(config, surroundings(&clock), store).await.unwrap();
        Self::run(app, data, clock)
    }

    /// The same with a changed configuration, after another server over the same store.
    pub async fn over_again(store: Arc<dyn Store>, first: &Self, change: impl FnOnce(&mut Config)) -> Self {
        let data = tempfile::tempdir().unwrap();
        let mut config = config(data.path());
        change(&mut config);
        std::fs::write(data.path().join("admin.token"), first.admin_token()).unwrap();
        let app = App::open_with(config, surroundings(&first.clock), store).await.unwrap();
        Self::run(app, data, Arc::clone(&first.clock))
    }

    /// A server on a directory that was filled from a backup of `first`.
    pub async fn restored(data: TempDir, first: &Self) -> Self {
        let mut config = Config { data_dir: data.path().to_owned(), ..first.services.config.clone() };
        config.set_listen(SocketAddr::from(([127, 0, 0, 1], 0)));
        std::fs::write(data.path().join("admin.token"), first.admin_token()).unwrap();
        let app = App::open(config, surroundings(&first.clock)).await.unwrap();
        Self::run(app, data, Arc::clone(&first.clock))
    }

    /// One of several servers over one store. All but the first know the administrator's token from the first.
    pub async fn among(store: Arc<dyn Store>, clock: Arc<ManualClock>, first: Option<&Self>) -> Self {
        Self::among_with(store, clock, first, |_| {}).await
    }

    pub async fn among_with(
        store: Arc<dyn Store>,
        clock: Arc<ManualClock>,
        first: Option<&Self>,
        change: impl FnOnce(&mut Config),
    ) -> Self {
        let data = tempfile::tempdir().unwrap();
        let mut config = config(data.path());
        change(&mut config);
        if let Some(first) = first {
            std::fs::write(data.path().join("admin.token"), first.admin_token()).unwrap();
        }
        let app = App::open_among(config, surroundings(&clock), store).await.unwrap();
        Self::run(app, data, clock)
    }

    fn run(app: App, data: TempDir, clock: Arc<ManualClock>) -> Self {
        let admin_token = std::fs::read_to_string(data.path().join("admin.token")).unwrap().trim().to_owned();
        let (stop, stopped) = oneshot::channel();
        let (url, address) = (app.url.clone(), app.services.config.listen);
        let (push_url, services) = (app.push_url.clone(), app.services.clone());
        let running = tokio::spawn(app.run(async move { drop(stopped.await) }));
        let stranger = Client::new(&url, None);
        let (stop, running) = (Some(stop), Some(running));
        Self { url, address, push_url, clock, services, admin_token, stranger, data, stop, running }
    }

    /// Stops the server and starts another over the same data and configuration, at the same time of its clock.
    pub async fn restart(mut self) -> Self {
        self.stop().await;
        let config = self.services.config.clone();
        // Whoever holds the services holds the store; another server's take their place.
        let empty = tempfile::tempdir().unwrap();
        let nobody = Arc::new(Memory::new(Arc::clone(&self.clock) as Arc<dyn Clock>));
        let other = App::open_with(self::config(empty.path()), surroundings(&self.clock), nobody);
        self.services = other.await.unwrap().services;
        let data = std::mem::replace(&mut self.data, empty);
        let app = App::open(config, surroundings(&self.clock)).await.unwrap();
        Self::run(app, data, Arc::clone(&self.clock))
    }

    /// A client of the push server.
    pub fn push(&self, token: Option<&str>) -> Client {
        Client::new(self.push_url.as_deref().expect("the push server is on"), token)
    }

    /// A client with the administrator's token.
    pub fn client(&self) -> Client {
        self.client_with(&self.admin_token)
    }

    pub fn client_with(&self, token: &str) -> Client {
        self.stranger.with_token(Some(token))
    }

    /// A client without a token.
    pub fn stranger(&self) -> Client {
        self.stranger.clone()
    }

    /// A client with a new token of these scopes.
    pub async fn client_for(&self, scopes: &[&str]) -> Client {
        let made = self.client().post("/tokens", &json!({ "scopes": scopes })).await.expect(201).json();
        self.client_with(made["token"].as_str().unwrap())
    }

    pub fn admin_token(&self) -> &str {
        &self.admin_token
    }

    pub fn data_dir(&self) -> &Path {
        self.data.path()
    }

    pub fn advance(&self, hours: u64) {
        self.clock.advance(Duration::from_secs(hours * 3600));
    }

    /// Tells the server to stop; it goes on until what is under way has ended.
    pub fn begin_stop(&mut self) {
        drop(self.stop.take());
    }

    /// Stops the server and waits until it has ended.
    pub async fn stop(&mut self) {
        self.begin_stop();
        self.running.take().unwrap().await.unwrap().unwrap();
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.begin_stop();
    }
}

pub fn config(data: &Path) -> Config {
    let mut config = Config::default();
    config.set_listen(SocketAddr::from(([127, 0, 0, 1], 0)));
    config.data_dir = data.to_owned();
    config.push.listen = Listen::off();
    config.store.reserve_mb = 0;
    // Tests deliver when they want to, so that nothing changes behind their backs.
    config.delivery.enabled = false;
    if engines::is_dynamodb() {
        config.store = config::store::Store {
            engine: Engine::DynamoDb,
            region: Some("eu-west-1".to_owned()),
            endpoint: Some(engines::endpoint()),
            // The directory's name is nobody else's.
            table_prefix: format!("{}-", data.file_name().unwrap().to_str().unwrap().trim_start_matches('.')),
            ..config.store
        };
    }
    config
}

/// A store of the test's own on DynamoDB Local, with its tables made.
pub async fn dynamodb(config: &Config, clock: &Arc<ManualClock>) -> Arc<dyn Store> {
    let ids = Arc::new(SystemIds::default());
    let dynamo = engine::dynamo(config, Arc::clone(clock) as Arc<dyn Clock>, ids).await.unwrap();
    tidings_dynamodb::tables::create(&dynamo, &engine::tables::wanted(config.stage)).await.unwrap();
    Arc::new(dynamo)
}

pub fn surroundings(clock: &Arc<ManualClock>) -> Surroundings {
    Surroundings {
        clock: Arc::clone(clock) as Arc<dyn Clock>,
        ids: Arc::new(SystemIds::default()),
        acknowledge_before_fsync: false,
        sheet_bytes: None,
        limit_file: None,
        reload: None,
        // Tests make what they want to see.
        sample: false,
    }
}
