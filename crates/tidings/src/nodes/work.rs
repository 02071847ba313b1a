//! Work that one node does for all: monitors, reading a source. A lease each; whoever offers to do it and is wanted for
//! it does it.

use std::sync::Arc;
use std::time::Duration;

use tidings_store::{Error, Write};

use super::record::{self, Lease, table};
use super::{Holder, Nodes};
use crate::app::Services;
use crate::workers::turned_true;

/// How often those who listen for news look for what other nodes have stored.
const ARRIVALS_EVERY: Duration = Duration::from_secs(1);

fn lease(name: &str) -> String {
    format!("work/{name}")
}

impl Nodes {
    /// This node would do that work.
    pub fn offer(&self, name: &str) {
        self.known().offered.insert(name.to_owned());
        self.doubt.notify_one();
    }

    /// Takes up the work that this node should do, and leaves what another should.
    ///
    /// # Errors
    ///
    /// If the store does not answer.
    pub async fn tend(&self) -> Result<(), Error> {
        let offered: Vec<String> = self.known().offered.iter().cloned().collect();
        for name in offered {
            let lease = lease(&name);
            let working = self.known().working.get(&name).copied();
            let ours = self.holder(&lease) == Holder::Me && self.lease_of(&lease).map(|lease| lease.epoch) == working;
            match working {
                Some(epoch) if ours && !self.wants(&lease) => {
                    self.known().working.remove(&name);
                    self.give_back(&lease, epoch).await?;
                }
                Some(_) if ours => {}
                _ => {
                    self.known().working.remove(&name);
                    if self.wants(&lease)
                        && let Some(epoch) = self.take(&lease, |_| Vec::new()).await?
                    {
                        self.known().working.insert(name, epoch);
                    }
                }
            }
        }
        Ok(())
    }

    /// Whether this node does that work now.
    #[must_use]
    pub fn does(&self, name: &str) -> bool {
        self.believes() && self.known().working.contains_key(name)
    }

    /// What every write of that work must come with: it fails if another node has taken over. Work that is no node's is
    /// everybody's.
    #[must_use]
    pub fn fence(&self, name: &str) -> Option<Write> {
        if !self.known().offered.contains(name) {
            return None;
        }
        let epoch = self.known().working.get(name).copied().unwrap_or(0);
        Some(Write::check(table(), record::key(&lease(name)), Lease::held(&self.me, epoch)))
    }

    /// Gives back all work, at the end.
    pub async fn stop_working(&self) {
        let working = std::mem::take(&mut self.known().working);
        for (name, epoch) in working {
            if let Err(error) = self.give_back(&lease(&name), epoch).await {
                tracing::warn!(%error, name, "the work will be taken over when the lease has run out");
            }
        }
    }
}

impl Services {
    /// This node would do that work; alone, it does.
    pub fn offer(&self, work: &str) {
        if let Some(nodes) = &self.nodes {
            nodes.offer(work);
        }
    }

    /// Whether this node does that work now.
    #[must_use]
    pub fn does(&self, work: &str) -> bool {
        self.nodes.as_ref().is_none_or(|nodes| nodes.does(work))
    }

    /// Sees who is there, and does what follows.
    ///
    /// # Errors
    ///
    /// If the store does not answer.
    pub async fn look_at_nodes(&self) -> Result<(), Error> {
        let Some(nodes) = &self.nodes else { return Ok(()) };
        nodes.look().await?;
        nodes.tend().await?;
        self.bus.tend().await
    }

    /// Looks at the nodes again and again, until the server stops.
    pub(crate) fn start_looking_at_nodes(&self) {
        let Some(nodes) = self.nodes.clone() else { return };
        let arrivals = Arc::clone(&self.inbox.live);
        self.workers.spawn("arrivals", ARRIVALS_EVERY, move || {
            arrivals.announce_to_all();
            async { Ok(()) }
        });
        let (services, mut stop) = (self.clone(), self.workers.stopping());
        self.workers.run("nodes", async move {
            loop {
                if let Err(error) = services.look_at_nodes().await {
                    tracing::warn!(%error, "the other nodes cannot be seen; it will be tried again");
                }
                tokio::select! {
                    () = tokio::time::sleep(nodes.every()) => {}
                    () = nodes.doubt.notified() => {}
                    () = turned_true(&mut stop) => return,
                }
            }
        });
    }

    /// Gives everything back, so that the other nodes need not wait for the leases to run out.
    pub(crate) async fn leave_nodes(&self) {
        if let Some(nodes) = &self.nodes {
            self.bus.release_all().await;
            nodes.stop_working().await;
            nodes.leave().await;
        }
    }
}
