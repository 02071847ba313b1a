//! How single parts of a server are opened.

use std::sync::Arc;
use std::time::Duration;

use tidings_core::ids::IdSource;
use tidings_core::time::Clock;
use tidings_store::Store;

use super::StartError;
use super::listeners::Listeners;
use crate::alerts::Alerts;
use crate::alerts::follow::AlertFollower;
use crate::bus::Bus;
use crate::channel::ntfy::BuiltIn;
use crate::config::Config;
use crate::engine::Opened;
use crate::figures::Figures;
use crate::http::Idempotency;
use crate::ingest::Ingest;
use crate::messages::Messages;
use crate::messages::deliver::senders::Senders;
use crate::nodes::Nodes;
use crate::nodes::forward::Forwarder;
use crate::push::Push;
use crate::rules::Rules;
use crate::secrets::Vault;
use crate::tickets::Tickets;
use crate::tickets::callers::Callers;

/// The store as all parts see it: through the vault.
pub async fn vault(config: &Config, opened: Opened, ids: &Arc<dyn IdSource>) -> Result<Opened, StartError> {
    let store = Vault::open(config, Arc::clone(&opened.store), ids).await?;
    Ok(Opened { store, ..opened })
}

/// This node among the others on the store, and what carries calls to them; neither where there are no others.
pub async fn nodes(
    config: &Config,
    store: &Arc<dyn Store>,
    clock: &Arc<dyn Clock>,
    ids: &dyn IdSource,
    shared: bool,
) -> Result<(Option<Arc<Nodes>>, Option<Forwarder>), StartError> {
    if !shared {
        return Ok((None, None));
    }
    if config.node.advertise.is_none() && config.listen.ip().is_unspecified() {
        tracing::warn!("other nodes cannot reach this one at {}: set node.advertise", config.listen);
    }
    let address = config.node.advertise.clone().unwrap_or_else(|| format!("http://{}", config.listen));
    let lease = Duration::from_secs(config.node.lease_seconds);
    let nodes = Nodes::new(Arc::clone(store), Arc::clone(clock), ids, address, lease);
    nodes.look().await?;
    let forwarder = Forwarder::new().map_err(|error| StartError::Unsupported(error.to_string()))?;
    Ok((Some(nodes), Some(forwarder)))
}

pub fn idempotency(
    store: &Arc<dyn Store>,
    clock: &Arc<dyn Clock>,
    ids: &Arc<dyn IdSource>,
    config: &Config,
) -> Idempotency {
    let hours = config.retention.idempotency_hours;
    Idempotency::new(Arc::clone(store), Arc::clone(clock), Arc::clone(ids), hours)
}

/// The rules; built-in ones tell nobody by a channel that is not there.
pub async fn rules(
    config: &Config,
    store: &Arc<dyn Store>,
    clock: &Arc<dyn Clock>,
    of_file: &[crate::config::rules::Rule],
) -> Result<Rules, StartError> {
    let rules = Rules::open(Arc::clone(store), Arc::clone(clock), of_file).await?;
    if config.push.listen.address().is_none() && config.ntfy.server.is_none() {
        rules.lacks("ntfy")?;
    }
    Ok(rules)
}

pub fn messages(store: &Arc<dyn Store>, config: &Config, callers: &Arc<Callers>) -> Result<Arc<Messages>, StartError> {
    let messages = Messages::new(Arc::clone(store), config, vec![Arc::new(AlertFollower)]);
    Ok(Arc::new(messages.map_err(StartError::Unsupported)?.hashing(Arc::clone(callers))))
}

/// The built-in push server, if it has an address.
pub async fn push(
    config: &Config,
    listeners: &Listeners,
    parts: &Ingest,
    shared: bool,
) -> Result<Option<Arc<Push>>, StartError> {
    if listeners.push.is_none() {
        return Ok(None);
    }
    let (store, clock, ids) = (Arc::clone(&parts.store), Arc::clone(&parts.clock), Arc::clone(&parts.ids));
    let push = Push::open(store, clock, ids, config.push.keep_hours).await?;
    if shared {
        push.share();
    }
    Ok(Some(push))
}

/// What takes messages away, and the alerts, whose refused entries are among them.
pub fn senders(
    config: &Config,
    push: Option<Arc<Push>>,
    (tickets, bus, ingest): (&Arc<Tickets>, &Arc<Bus>, &Arc<Ingest>),
) -> (Senders, Arc<Alerts>) {
    let alerts = Arc::new(Alerts::new(Arc::clone(&ingest.store), Arc::clone(&ingest.clock), config));
    let senders = Senders::new(config, push.map(|push| push as Arc<dyn BuiltIn>));
    let senders = senders.with_tickets(Arc::clone(tickets)).with_bus(Arc::clone(bus), Arc::clone(&ingest.store));
    let senders = senders.with_ingest(Arc::clone(ingest));
    (senders.with_alerts(Arc::clone(&alerts), Arc::clone(ingest)), alerts)
}

pub fn figures(ingest: &Ingest, messages: &Messages) -> Arc<Figures> {
    let (store, clock, metrics) = (Arc::clone(&ingest.store), Arc::clone(&ingest.clock), Arc::clone(&ingest.metrics));
    Arc::new(Figures::new(store, clock, metrics, Arc::clone(&messages.signals)))
}
