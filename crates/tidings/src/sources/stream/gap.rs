//! Records that were removed from a stream before they were read: said aloud, as an event that rules can match.

use serde_json::json;
use tidings_core::envelope::{Envelope, check_name};
use tidings_core::limits::SOURCE_CHARS;
use tidings_core::time;
use tidings_store::Write;
use uuid::Uuid;

use super::shard::Context;
use crate::ingest::{Arrival, Companions};
use crate::sources::Failed;

/// The type of the event that tells of one.
pub const EVENT_TYPE: &str = "dynamodb.gap";

/// Where something is missing.
pub struct Gap<'a> {
    pub table: &'a str,
    pub stream: &'a str,
    pub shard: &'a str,
    /// The last record that was taken; absent: none of the shard was.
    pub after: Option<&'a str>,
    pub reason: &'static str,
}

impl Context {
    /// Tells of a gap and goes on behind it: the event and the write that does so are one transaction.
    pub async fn tell(&self, gap: &Gap<'_>, write: Write) -> Result<(), Failed> {
        let services = &self.services;
        let now = services.clock.now();
        let source = format!("dynamodb/{}", gap.table);
        let source = if check_name(&source, SOURCE_CHARS).is_ok() { source } else { "dynamodb".to_owned() };
        let name = format!("{}\n{}\n{}\n{}", self.name, gap.stream, gap.shard, gap.after.unwrap_or_default());
        let data = json!({
            "source": self.name, "table": gap.table, "stream": gap.stream, "shard": gap.shard,
            "after_sequence": gap.after, "noticed_at": time::iso_millis(now), "reason": gap.reason,
        });
        let envelope = Envelope {
            event_id: format!("gap-{}", Uuid::new_v5(&Uuid::NAMESPACE_OID, name.as_bytes())),
            event_type: EVENT_TYPE.to_owned(),
            event_version: "1.0".to_owned(),
            event_timestamp: now,
            correlation_id: services.ids.uuid(now).to_string(),
            source: Some(source),
            subject: None,
            data: data.to_string(),
            extensions: Vec::new(),
        };
        let writes = std::iter::once(write.clone()).chain(services.fence_of_source(&self.name)).collect();
        let with = Companions { writes, ..Companions::default() };
        let told = services.ingest.accept_each(vec![Arrival { envelope, with }]).await?.pop().transpose()?;
        // The same was told before, so that its transaction did nothing this time.
        if told.is_none_or(|receipt| receipt.status != "accepted") {
            self.store(vec![write]).await?;
        }
        let (source, table, shard, after, reason) = (&self.name, gap.table, gap.shard, gap.after, gap.reason);
        tracing::error!(
            source,
            table,
            shard,
            after,
            reason,
            "records of a stream are lost: they were not read in time"
        );
        services.metrics.sources.gap(source);
        services.sources.note(source, |state| state.gaps += 1);
        Ok(())
    }
}
