//! Which store a server works on: the embedded one, or DynamoDB. Everything else knows only `Store`.

pub mod tables;

use std::net::IpAddr;
use std::sync::Arc;

use tidings_core::ids::IdSource;
use tidings_core::time::Clock;
use tidings_dynamodb::tables::{Difference, Kind};
use tidings_dynamodb::{Dynamo, Identity, KeyChain};
use tidings_store::embedded::{Embedded, Options};
use tidings_store::{Error, Store};

use crate::app::{StartError, Surroundings};
use crate::config::Config;
use crate::config::store::Engine;
use crate::http::{CommitMetrics, Metrics};

/// A store, and what is known of it.
pub struct Opened {
    pub store: Arc<dyn Store>,
    /// The same store, if it is the embedded one.
    pub embedded: Option<Arc<Embedded>>,
    /// Whether other nodes may work on it, too.
    pub shared: bool,
    pub metrics: Arc<Metrics>,
}

/// Opens the store that the configuration names.
///
/// # Errors
///
/// One sentence that says what to do: another process has the data directory, a table is missing, ...
pub async fn open(config: &Config, surroundings: &Surroundings) -> Result<Opened, StartError> {
    let metrics = Arc::new(Metrics::default());
    match config.store.engine {
        Engine::Embedded => {
            let embedded = Arc::new(embedded(config, surroundings, &metrics)?);
            Ok(Opened {
                store: Arc::clone(&embedded) as Arc<dyn Store>,
                embedded: Some(embedded),
                shared: false,
                metrics,
            })
        }
        Engine::DynamoDb => {
            // The administrator's token and uploads are kept there.
            std::fs::create_dir_all(&config.data_dir)
                .map_err(|source| StartError::Write { path: config.data_dir.clone(), source })?;
            let (clock, ids) = (Arc::clone(&surroundings.clock), Arc::clone(&surroundings.ids));
            let dynamo = dynamo(config, clock, ids).await?;
            require_tables(&dynamo, config).await?;
            Ok(Opened { store: Arc::new(dynamo), embedded: None, shared: true, metrics })
        }
    }
}

/// Refuses a data directory that another process works on. Whoever opens it hears the same.
///
/// # Errors
///
/// A sentence that says what to do.
pub fn require_unused(config: &Config) -> Result<(), StartError> {
    match config.store.engine {
        Engine::Embedded => Ok(tidings_store::embedded::require_unlocked(&config.data_dir)?),
        Engine::DynamoDb => Ok(()),
    }
}

fn embedded(config: &Config, surroundings: &Surroundings, metrics: &Arc<Metrics>) -> Result<Embedded, StartError> {
    let mib = |count: u64| count.saturating_mul(1024 * 1024);
    let usual = Options::new(&config.data_dir);
    let options = Options {
        sheet_bytes: surroundings.sheet_bytes.unwrap_or(usual.sheet_bytes),
        cache_bytes: mib(config.store.cache_mb),
        reserve_bytes: mib(config.store.reserve_mb),
        acknowledge_before_fsync: surroundings.acknowledge_before_fsync,
        callers: tokio::runtime::Handle::try_current().ok(),
        ..usual
    };
    let observer = Arc::new(CommitMetrics(Arc::clone(metrics)));
    let tables = crate::app::tables(config.stage.as_str());
    let opened = Embedded::open(&options, &tables, Arc::clone(&surroundings.clock), observer)?;
    let others = opened.unopened()?;
    let others = others.iter().filter_map(|name| name.strip_prefix(MESSAGES)).collect::<Vec<_>>();
    if !others.is_empty() {
        tracing::warn!(
            stage = config.stage.as_str(),
            others = others.join(", "),
            "this data directory holds messages of another stage, which this server neither shows nor delivers; \
             all else in it is shared: one data directory is for one stage"
        );
    }
    Ok(opened)
}

/// How the name of the messages' table begins, before its stage.
const MESSAGES: &str = "rez-agent-messages-";

/// A client of the configured DynamoDB.
pub async fn dynamo(config: &Config, clock: Arc<dyn Clock>, ids: Arc<dyn IdSource>) -> Result<Dynamo, Error> {
    let settings = &config.store;
    let options = tidings_dynamodb::Options {
        region: settings.region.clone(),
        endpoint: settings.endpoint.clone(),
        table_prefix: settings.table_prefix.clone(),
        identity: identity(settings.endpoint.as_deref(), settings.region.as_deref(), keys_in_environment()),
        ..tidings_dynamodb::Options::default()
    };
    Dynamo::open(&options, &crate::app::tables(config.stage.as_str()), clock, ids).await
}

/// Where the keys for other calls to DynamoDB come from: the same places.
pub async fn keys(region: Option<&str>, endpoint: Option<&str>) -> KeyChain {
    let options = tidings_dynamodb::Options {
        region: region.map(ToOwned::to_owned),
        endpoint: endpoint.map(ToOwned::to_owned),
        identity: identity(endpoint, region, keys_in_environment()),
        ..tidings_dynamodb::Options::default()
    };
    KeyChain::load(&options).await
}

fn keys_in_environment() -> bool {
    std::env::var_os("AWS_ACCESS_KEY_ID").is_some()
}

/// DynamoDB Local takes any keys but wants some, and one that runs on this machine should not need made-up ones.
fn identity(endpoint: Option<&str>, region: Option<&str>, keys_in_environment: bool) -> Identity {
    let local = endpoint.is_some_and(is_loopback);
    if local && region.is_some() && !keys_in_environment {
        return Identity::Keys { access: "local".to_owned(), secret: "local".to_owned() };
    }
    Identity::Standard
}

fn is_loopback(endpoint: &str) -> bool {
    let Ok(url) = reqwest::Url::parse(endpoint) else { return false };
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Refuses to start on tables that cannot serve; what only costs money or comfort is left to `tidings tables check`.
async fn require_tables(dynamo: &Dynamo, config: &Config) -> Result<(), StartError> {
    let differences = tidings_dynamodb::tables::check(dynamo, &tables::wanted(config.stage)).await?;
    let fatal: Vec<&Difference> = differences.iter().filter(|found| is_fatal(found)).collect();
    if fatal.is_empty() {
        for difference in differences.iter().filter(|found| !matches!(found.kind, Kind::Unchecked(_))) {
            tracing::warn!(%difference, "a table is not as it should be; see tidings tables check");
        }
        return Ok(());
    }
    Err(StartError::Unsupported(unfit(&fatal)))
}

/// What is wrong with the tables, and what to do.
fn unfit(fatal: &[&Difference]) -> String {
    let what: Vec<String> = fatal.iter().map(ToString::to_string).collect();
    // A table that is there is left as it is.
    let advice = match fatal.iter().all(|found| matches!(found.kind, Kind::Missing)) {
        true => "run tidings tables create",
        false => {
            "delete or rename a table that differs, or choose another store.table_prefix, and run tidings tables create"
        }
    };
    format!("{}; {advice} (tidings tables check shows it all)", what.join("; "))
}

fn is_fatal(difference: &Difference) -> bool {
    matches!(difference.kind, Kind::Missing | Kind::Keys | Kind::Index(_) | Kind::Projection(_))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_local_endpoint_gets_made_up_keys() {
        let made_up = |endpoint: &str, known: bool| {
            matches!(identity(Some(endpoint), Some("us-east-1"), known), Identity::Keys { .. })
        };
        assert!(made_up("http://127.0.0.1:8000", false) && made_up("http://localhost:8000", false));
        assert!(made_up("http://[::1]:8000", false));
        assert!(!made_up("http://127.0.0.1:8000", true), "the environment's own come first");
        assert!(!made_up("https://dynamodb.eu-west-1.amazonaws.com", false));
        assert!(!made_up("http://localhost.example.com", false));
    }
    // A table that is there is left as it is by `tidings tables create`.
    #[test]
    fn what_to_do_about_tables_depends_on_whether_they_are_there() {
        let found = |kind| Difference { table: "t".to_owned(), kind, wanted: "a".to_owned(), found: "b".to_owned() };
        let (missing, other) = (found(Kind::Missing), found(Kind::Keys));
        assert!(unfit(&[&missing]).contains("no such table; run tidings tables create"));
        for differs in [vec![&other], vec![&missing, &other]] {
            let said = unfit(&differs);
            assert!(
                said.contains("its keys are b, not a; delete or rename a table that differs, or choose another"),
                "{said}"
            );
        }
    }
}
