//! What has reached the end of its time goes into a file before it is removed (S002-73, SX-05): a line of JSON for each
//! item, a file for each table and month. Nobody reads or removes these files here; a crash may write a line twice.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use tidings_core::time::{Clock, iso_millis};
use tidings_store::embedded::Archive;
use tidings_store::{Error, Item, Table};

use crate::config::Config;

/// Never written anywhere else.
const SECRETS: [&str; 1] = ["target_secret"];

pub struct Files {
    directory: PathBuf,
    tables: Vec<String>,
    clock: Arc<dyn Clock>,
}

impl Files {
    /// Nothing, unless the configuration names something.
    #[must_use]
    pub fn of(config: &Config, clock: &Arc<dyn Clock>) -> Option<Self> {
        let table = |name: &String| match name.as_str() {
            "events" => Some(crate::events::record::table().name().to_owned()),
            "alerts" => Some(crate::alerts::record::table().name().to_owned()),
            "notifications" => Some(crate::inbox::record::table().name().to_owned()),
            "messages" => Some(crate::messages::record::table(config.stage.as_str()).name().to_owned()),
            "tickets" => Some(crate::tickets::table().name().to_owned()),
            _ => None,
        };
        let tables: Vec<String> = config.retention.archive.iter().filter_map(table).collect();
        let directory = config.data_dir.join("archive");
        (!tables.is_empty()).then(|| Self { directory, tables, clock: Arc::clone(clock) })
    }
}

impl Archive for Files {
    fn wants(&self, table: &Table) -> bool {
        self.tables.iter().any(|name| name == table.name())
    }

    fn keep(&self, items: &[(&Table, Item)]) -> Result<(), Error> {
        let month: String = iso_millis(self.clock.now()).chars().take(7).collect();
        let mut files: BTreeMap<&str, Vec<u8>> = BTreeMap::new();
        for (table, item) in items {
            let shown = Item(
                item.0
                    .iter()
                    .filter(|(name, _)| !SECRETS.contains(&name.as_ref()))
                    .map(|(name, value)| (name.clone(), value.clone()))
                    .collect(),
            );
            let json: serde_json::Value = shown.to_record()?;
            let text = files.entry(table.name()).or_default();
            text.extend_from_slice(json.to_string().as_bytes());
            text.push(b'\n');
        }
        for (table, lines) in files {
            self.append(&format!("{table}-{month}.jsonl"), &lines)
                .map_err(|error| Error::failed("what has expired cannot be archived", error))?;
        }
        Ok(())
    }
}

impl Files {
    /// On disk when it returns.
    fn append(&self, name: &str, lines: &[u8]) -> std::io::Result<()> {
        use std::os::unix::fs::OpenOptionsExt;
        std::fs::create_dir_all(&self.directory)?;
        let path = self.directory.join(name);
        let mut file = std::fs::OpenOptions::new().create(true).append(true).mode(0o600).open(path)?;
        file.write_all(lines)?;
        file.sync_all()?;
        std::fs::File::open(&self.directory)?.sync_all()
    }
}
