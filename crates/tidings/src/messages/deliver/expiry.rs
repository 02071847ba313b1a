//! Messages that wait so long that they are about to be forgotten are given up like any other: `failed`, with a dead
//! letter, so that nothing vanishes without a trace (SX-08).

use std::time::Duration;

use tidings_core::message::{Input, Status};
use tidings_core::time::iso_millis;
use tidings_store::{Error, Query, Range};

use crate::app::Services;
use crate::messages::transition::{Refused, Stored};

/// How often they are looked for.
pub const EVERY: Duration = Duration::from_secs(60);
/// They are given up this long before they are forgotten.
const BEFORE_SECONDS: i64 = 3600;
const PAGE: usize = 100;

/// Gives up what has waited too long; says how many there were.
pub async fn expire(services: &Services) -> Result<usize, Error> {
    let (messages, now) = (&services.messages, services.clock.now());
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
                // It may have been made when messages were kept for longer.
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
