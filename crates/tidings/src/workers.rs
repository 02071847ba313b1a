//! Work in the background: each worker is activated by the clock's ticks, and readiness knows if one has died.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;

/// Waits until the server stops.
pub async fn turned_true(stop: &mut watch::Receiver<bool>) {
    let _ = stop.wait_for(|stop| *stop).await;
}

/// The workers of one server.
pub struct Workers {
    stop: watch::Sender<bool>,
    dead: Arc<Mutex<Option<&'static str>>>,
    tasks: Mutex<JoinSet<()>>,
}

impl Default for Workers {
    fn default() -> Self {
        Self { stop: watch::channel(false).0, dead: Arc::default(), tasks: Mutex::default() }
    }
}

impl Workers {
    /// Activates a worker now and then every `every`, until the server stops. A failure is logged, and the next
    /// activation tries again; a panic is fatal to readiness.
    pub fn spawn<F, Fut>(&self, name: &'static str, every: Duration, activate: F)
    where
        F: Fn() -> Fut + Send + 'static,
        Fut: Future<Output = Result<(), String>> + Send,
    {
        self.spawn_woken(name, every, Arc::default(), activate);
    }

    /// The same, and whenever `wake` is rung.
    pub fn spawn_woken<F, Fut>(&self, name: &'static str, every: Duration, wake: Arc<Notify>, activate: F)
    where
        F: Fn() -> Fut + Send + 'static,
        Fut: Future<Output = Result<(), String>> + Send,
    {
        let mut stop = self.stop.subscribe();
        let work = async move {
            loop {
                if let Err(error) = activate().await {
                    tracing::warn!(worker = name, error, "worker failed; it will be tried again");
                }
                tokio::select! {
                    () = tokio::time::sleep(every) => {}
                    () = wake.notified() => {}
                    () = turned_true(&mut stop) => return,
                }
            }
        };
        self.run(name, work);
    }

    /// Runs a worker that knows itself when to work and when to stop; a panic is fatal to readiness.
    pub fn run(&self, name: &'static str, work: impl Future<Output = ()> + Send + 'static) {
        let dead = Arc::clone(&self.dead);
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner).spawn(async move {
            if tokio::spawn(work).await.is_err() {
                tracing::error!(worker = name, "worker panicked");
                *dead.lock().unwrap_or_else(PoisonError::into_inner) = Some(name);
            }
        });
    }

    /// A worker that has died, if one has.
    #[must_use]
    pub fn stopped(&self) -> Option<&'static str> {
        *self.dead.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Turns true when the server stops.
    #[must_use]
    pub fn stopping(&self) -> watch::Receiver<bool> {
        self.stop.subscribe()
    }

    /// Asks everything to stop.
    pub fn stop(&self) {
        self.stop.send_replace(true);
    }

    /// Waits until every worker has ended.
    pub async fn ended(&self) {
        let mut tasks = std::mem::take(&mut *self.tasks.lock().unwrap_or_else(PoisonError::into_inner));
        while tasks.join_next().await.is_some() {}
    }
}
