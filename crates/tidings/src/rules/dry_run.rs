//! Trying a pattern before it is switched on: against one event, or against those that were stored last.

use tidings_core::pattern::{Pattern, RuleSet, Scratch};
use tidings_store::Error;

use super::limits::DRY_RUN_SAMPLE;
use crate::events::{Events, Filter};

/// Events read at a time.
const PAGE: usize = 500;

/// What a pattern would have matched.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Found {
    pub checked: usize,
    pub matched: usize,
    /// The ids of the newest that matched.
    pub sample: Vec<String>,
}

/// Holds a pattern against the last `most` stored events, newest first.
pub async fn over_stored(events: &Events, pattern: &Pattern, most: usize) -> Result<Found, Error> {
    let mut found = Found::default();
    let mut set = RuleSet::new();
    set.insert((), pattern);
    let mut scratch = Scratch::new();
    let mut after = None;
    while found.checked < most {
        let limit = PAGE.min(most - found.checked);
        let (page, next) = events.page(&Filter::default(), limit, after).await?;
        for event in page {
            found.checked += 1;
            if set.matches(&event.json, &mut scratch).is_ok_and(|matched| !matched.is_empty()) {
                found.matched += 1;
                if found.sample.len() < DRY_RUN_SAMPLE {
                    found.sample.push(event.id());
                }
            }
        }
        after = next;
        if after.is_none() {
            break;
        }
        tokio::task::yield_now().await;
    }
    Ok(found)
}
