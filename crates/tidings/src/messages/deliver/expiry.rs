//! Messages that wait so long that they are about to be forgotten are given up like any other: `failed`, with a dead
//! letter, so that nothing vanishes without a trace (SX-08).

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tidings_core::message::{Input, Status};
use tidings_core::time::{Timestamp, iso_millis};
use tidings_store::{Error, Query, Range};

use crate::app::Services;
use crate::messages::transition::{Refused, Stored};

/// How often they are looked for.
pub const EVERY: Duration = Duration::from_secs(60);
/// They are given up this long before they are forgotten.
const BEFORE_SECONDS: i64 = 3600;
/// For how long somebody must have been here before anything is given up: what became due meanwhile is tried first.
const AWAKE: Duration = Duration::from_secs(300);
/// Who did not look for so long was away.
const AWAY: Duration = Duration::from_secs(600);
const PAGE: usize = 100;

/// Since when somebody has been looking.
#[derive(Debug, Default)]
pub struct Watch(Mutex<Option<Looks>>);

#[derive(Debug, Clone, Copy)]
struct Looks {
    first: Timestamp,
    last: Timestamp,
}

impl Watch {
    /// Whether somebody has been here long enough, and looks now.
    fn is_awake(&self, now: Timestamp) -> bool {
        let mut looks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let since = |at: Timestamp| Duration::try_from(now.duration_since(at)).ok();
        let known = looks.filter(|looks| since(looks.last).is_some_and(|away| away <= AWAY));
        let first = known.map_or(now, |looks| looks.first);
        *looks = Some(Looks { first, last: now });
        since(first).is_some_and(|awake| awake >= AWAKE)
    }
}

/// Gives up what has waited too long; says how many there were.
pub async fn expire(services: &Services, watch: &Watch) -> Result<usize, Error> {
    let (messages, now) = (&services.messages, services.clock.now());
    if !watch.is_awake(now) {
        return Ok(0);
    }
    let oldest = Duration::from_secs(messages.keep_seconds().saturating_sub(BEFORE_SECONDS).max(0).unsigned_abs());
    let Ok(made_by) = now.saturating_sub(oldest) else { return Ok(0) };
    let mut given_up = 0;
    for status in [Status::Created, Status::Queued, Status::Processing] {
        let range = Range::AtMost(iso_millis(made_by).into());
        let mut query = Query::new(status.as_str()).index("status-created_date-index").range(range).limit(PAGE);
        loop {
            let page = services.store.query(&messages.table, &query).await?;
            for item in page.items {
                let stored = Stored::read(item)?;
                // It may have waited for its time, or was made when messages were kept for longer.
                if stored.message.ttl > now.as_second().saturating_add(BEFORE_SECONDS) {
                    continue;
                }
                let channel = stored.message.channel.clone();
                let transition = match messages.transition(&stored, Input::Expired, now, |_| {}) {
                    Ok(transition) => transition,
                    // It is being sent this very moment.
                    Err(Refused::Conflict(_)) => continue,
                    Err(Refused::Store(error)) => return Err(error),
                };
                messages.holds.count_change();
                match services.store.transact(transition.all_writes()).await {
                    Ok(()) => given_up += 1,
                    Err(Error::Conflict { .. }) => continue,
                    Err(error) => return Err(error),
                }
                services.metrics.delivery.given_up(&channel);
            }
            if page.next.is_none() {
                break;
            }
            query = query.after(page.next);
        }
    }
    Ok(given_up)
}
