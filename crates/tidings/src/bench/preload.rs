//! Fills a store before it is measured: a server that is quick while it is empty is no use.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use indicatif::ProgressBar;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::error::Error;
use super::runner;
use super::scenario::{self, Load, Options};
use super::server::Target;
use super::tally::describe;

const NAME: &str = "preload";
const BATCH: u32 = 500;
const CONNECTIONS: u64 = 4;
/// A server under load may refuse for a while; what it refuses this often in a row it will never take.
const TRIES: u32 = 40;
const TRY_AGAIN_AFTER: Duration = Duration::from_millis(250);
const REPLY_WITHIN: Duration = Duration::from_secs(60);

/// What fills a store.
type Fill = fn(&Options) -> Box<dyn Load>;

/// Stores `events` events.
pub async fn run(target: &Target, events: u64) -> Result<(), Error> {
    fill(target, events, "events stored first", scenario::ingest_batch).await
}

/// Stores `alerts` process change alerts.
pub async fn alerts(target: &Target, alerts: u64) -> Result<(), Error> {
    fill(target, alerts, "alerts stored first", scenario::alerts::store).await
}

async fn fill(target: &Target, events: u64, message: &'static str, with: Fill) -> Result<(), Error> {
    let bar = runner::progress(events);
    bar.set_message(message);
    let left = Arc::new(AtomicU64::new(events / u64::from(BATCH)));
    let mut tasks = JoinSet::new();
    for _ in 0..CONNECTIONS {
        tasks.spawn(store(target.clone(), BATCH, with, Arc::clone(&left), bar.clone()));
    }
    while let Some(joined) = tasks.join_next().await {
        joined.map_err(|_panic| Error::Stalled(NAME.to_owned()))??;
    }
    let rest = u32::try_from(events % u64::from(BATCH)).unwrap_or(0);
    if rest > 0 {
        store(target.clone(), rest, with, Arc::new(AtomicU64::new(1)), bar.clone()).await?;
    }
    bar.finish_and_clear();
    Ok(())
}

/// One connection: takes batches until none is left.
async fn store(target: Target, batch: u32, with: Fill, left: Arc<AtomicU64>, bar: ProgressBar) -> Result<(), Error> {
    let options = Options { batch, rules: 0, entries: 0, token: target.token.clone() };
    let mut caller = with(&options).caller();
    let mut connection = runner::open(target.address, NAME).await?;
    while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok() {
        let mut tries = 0;
        loop {
            let stalled = |_elapsed| Error::Stalled(NAME.to_owned());
            // What was refused is sent again with other ids, which matters to nobody.
            let response = timeout(REPLY_WITHIN, connection.call(caller.request())).await.map_err(stalled)?;
            let response = response.map_err(|source| Error::Unreachable {
                scenario: NAME.to_owned(),
                address: target.address.to_string(),
                source,
            })?;
            if caller.check(response).is_some() {
                break;
            }
            tries += 1;
            if tries == TRIES || !matches!(response.status, 429 | 503) {
                return Err(Error::Refused { scenario: NAME.to_owned(), reply: describe(response) });
            }
            sleep(TRY_AGAIN_AFTER).await;
        }
        bar.inc(u64::from(batch));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::fake;

    #[tokio::test]
    async fn exactly_that_many_events_are_stored_although_some_requests_are_refused() {
        let stored = Arc::new(AtomicU64::new(0));
        let requests = Arc::new(AtomicU64::new(0));
        let (counter, turns) = (Arc::clone(&stored), requests);
        let target = fake::server(move |request| {
            if turns.fetch_add(1, Ordering::Relaxed) == 1 {
                return fake::response(503, "busy");
            }
            let events = request.matches("eventId").count();
            counter.fetch_add(events as u64, Ordering::Relaxed);
            fake::response(202, &format!(r#"{{"accepted":{events}}}"#))
        });
        run(&target.await, 2345).await.unwrap();
        assert_eq!(stored.load(Ordering::Relaxed), 2345);
    }

    #[tokio::test]
    async fn a_refusal_for_good_is_shown() {
        let target = fake::server(|_| fake::response(403, "no right")).await;
        let error = run(&target, 10).await.unwrap_err().to_string();
        assert_eq!(error, "the server refused what `preload` needs first: 403 no right");
    }
}
