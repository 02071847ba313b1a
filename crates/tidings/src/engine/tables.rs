//! The tables as they should be on DynamoDB: the seeds' four as the seeds have them, and ours beside them.

use tidings_dynamodb::tables::{Extras, Wanted};
use tidings_store::Table;

use crate::config::Stage;

/// Every table with how it is kept.
#[must_use]
pub fn wanted(stage: Stage) -> Vec<Wanted> {
    let tables = crate::app::tables(stage.as_str());
    tables.into_iter().map(|table| Wanted { extras: extras(&table, stage), table }).collect()
}

fn extras(table: &Table, stage: Stage) -> Extras {
    let tags = |pairs: &[(&str, &str)]| pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    // What cannot be had again is kept restorable where it matters (S002-74).
    let pitr = stage != Stage::Dev;
    match table.name() {
        // S001-70
        "tbff2022_notification_centro" => {
            Extras { sse: true, pitr, tags: tags(&[("app", "notificationcenter")]), ..Extras::default() }
        }
        // S004-41
        "poc-itsm-tickets" => {
            Extras { pitr, tags: tags(&[("Environment", "PoC"), ("Project", "AI-L1-Support")]), ..Extras::default() }
        }
        // S002-74 and "AWS-managed KMS key"
        name if name.starts_with("rez-agent-messages-") => Extras { sse: true, pitr, ..Extras::default() },
        _ => Extras { pitr, ..Extras::default() },
    }
}
