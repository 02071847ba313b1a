//! The schedules of the configuration file. One that the API made under the same name is put aside while the file has its
//! own, and comes back when that goes, as rules do.

use serde_json::json;
use tidings_core::time::Timestamp;
use tidings_store::{Error, Write};

use super::{Definition, Origin, Schedule, Schedules, TRIES, record, table};
use crate::audit::{Action, Audit};
use crate::config::schedules::Schedule as Configured;

/// Who writes what is in the configuration file.
const CONFIGURATION: &str = "configuration";

/// Where it is written down what the file changed, and on whose behalf (SX-19).
#[derive(Clone, Copy)]
pub struct Told<'a> {
    pub audit: &'a Audit,
    pub user: &'a str,
    pub correlation_id: &'a str,
}

impl Told<'_> {
    async fn record(self, action: &'static str, name: &str, what: &str, writes: Vec<Write>) -> Result<(), Error> {
        let action = Action::new(action, "schedule", name).details(json!({ "origin": "file", "what": what }));
        self.audit.record_with(self.user, self.correlation_id, action, writes).await.map(drop)
    }
}

impl Schedules {
    /// What a start does with the schedules of the configuration file.
    pub async fn load_first(&self, configured: &[Configured], audit: &Audit, now: Timestamp) -> Result<(), Error> {
        let correlation_id = self.ids.uuid(now).to_string();
        let told = Told { audit, user: CONFIGURATION, correlation_id: &correlation_id };
        self.load(configured, told, now).await
    }

    /// Brings the schedules of the configuration file into the store, and takes out those that are no longer in it.
    pub async fn load(&self, configured: &[Configured], told: Told<'_>, now: Timestamp) -> Result<(), Error> {
        for schedule in configured {
            self.load_one(schedule, told, now).await?;
        }
        for old in self.list().await? {
            let gone = old.origin == Origin::File && !configured.iter().any(|new| new.name == old.name);
            if gone {
                self.take_out(old, told, now).await?;
            }
        }
        self.notice_change();
        Ok(())
    }

    async fn load_one(&self, configured: &Configured, told: Told<'_>, now: Timestamp) -> Result<(), Error> {
        for _ in 0..TRIES {
            let before = self.get(&configured.name).await?;
            let definition = Definition::from(configured);
            let same = before.as_ref().is_some_and(|old| old.origin == Origin::File && old.definition == definition);
            if same {
                return Ok(());
            }
            let name = &configured.name;
            let (_, write) = self.writing(name, definition, Origin::File, CONFIGURATION, before.as_ref(), now)?;
            let mut writes = vec![write];
            let of_the_api = before.as_ref().filter(|before| before.origin == Origin::Api);
            if let Some(before) = of_the_api {
                writes.push(Write::put(table(), record::put_aside(before)?));
            }
            let what = if of_the_api.is_some() { "the API's is put aside" } else { "as the file has it" };
            match told.record("schedule.put", name, what, writes).await {
                Err(Error::Conflict { .. }) => {}
                outcome => return outcome,
            }
        }
        Err(Error::Throttled("the schedules are contended".to_owned()))
    }

    /// Takes out what the file no longer has.
    async fn take_out(&self, mut old: Schedule, told: Told<'_>, now: Timestamp) -> Result<(), Error> {
        for _ in 0..TRIES {
            match self.take_out_as(&old, told, now).await {
                // It fired just now, and is still the same schedule; or another node that has it in its file wrote it.
                Err(Error::Conflict { .. }) => match self.get(&old.name).await? {
                    Some(moved) if moved.revision == old.revision => old = moved,
                    _ => return Ok(()),
                },
                outcome => return outcome,
            }
        }
        Err(Error::Throttled("the schedules are contended".to_owned()))
    }

    /// Takes it out if it is as it was read. What it stood before goes on from now on: runs that came in between were not its.
    async fn take_out_as(&self, old: &Schedule, told: Told<'_>, now: Timestamp) -> Result<(), Error> {
        let aside = record::aside_key(&old.name);
        let Some(before) = self.store.get(table(), &aside).await? else {
            let writes = vec![self.deleting(old)];
            return told.record("schedule.delete", &old.name, "the file no longer has it", writes).await;
        };
        let revision = self.ids.uuid(now).to_string();
        let back = Schedule { done_until: now, revision, ..Schedule::from_item(&before)? };
        let put = Write::put(table(), back.to_item()?).when(old.unchanged());
        let writes = vec![put, Write::delete(table(), aside)];
        told.record("schedule.put", &old.name, "the file no longer has it, and the API's is back", writes).await
    }
}
