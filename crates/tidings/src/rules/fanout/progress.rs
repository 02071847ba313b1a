//! How far a job has come, as the event's outcome shows it.

use tidings_store::{Error, Store};

use crate::rules::job;
use crate::rules::outcome::Outcome;

/// Completes an outcome with how far its job has come.
pub async fn progress(store: &dyn Store, outcome: &mut Outcome) -> Result<(), Error> {
    let Some(fanout) = &mut outcome.fanout else { return Ok(()) };
    let Some(job) = store.get(job::table(), &job::key(&fanout.job)).await? else { return Ok(()) };
    let number = |name: &str| job.int(name).and_then(|n| u64::try_from(n).ok()).unwrap_or(0);
    fanout.state = if job.get("open").is_some() { "open" } else { "done" }.to_owned();
    (fanout.notifications, fanout.messages) = (number("notifications"), number("messages"));
    fanout.repeats = number("repeats");
    fanout.served = number("left_out_count");
    let left_out = job::notes_in(&job, "left_out").filter_map(|note| serde_json::from_str(note).ok()).collect();
    outcome.totals.notifications += fanout.notifications;
    outcome.totals.messages += fanout.messages;
    outcome.leave_out(left_out);
    for (list, name) in [(&mut outcome.no_recipients, "no_recipients"), (&mut outcome.deduplicated, "deduplicated")] {
        for rule in job::notes_in(&job, name) {
            if !list.iter().any(|known| known == rule) {
                list.push(rule.to_owned());
            }
        }
    }
    for (rule, error) in job::notes_in(&job, "errors").filter_map(|note| note.split_once('\n')) {
        let known = outcome.rules.iter_mut().find(|known| known.name == rule);
        if let Some(known) = known.filter(|known| known.errors.iter().all(|said| said != error)) {
            known.errors.push(error.to_owned());
        }
    }
    Ok(())
}
