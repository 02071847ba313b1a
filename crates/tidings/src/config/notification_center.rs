//! `[notification_center]`: what inbox entries link to, and where the notification map comes from.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::check::Check;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NotificationCenter {
    /// A template over the entry's fields. Absent: entries have no link.
    pub link: Option<String>,
    /// A file with entries of the notification map, CSV or TOML, read at the start and with every reload.
    pub map_file: Option<PathBuf>,
}

impl NotificationCenter {
    pub(super) fn check(&self, check: &mut Check<'_>) {
        let known =
            |file: &PathBuf| ["csv", "toml"].iter().any(|kind| file.extension().is_some_and(|end| end == *kind));
        if let Some(file) = &self.map_file {
            if !known(file) {
                check.key("map_file").problem("must be a file whose name ends in .csv or .toml");
            } else if let Err(error) = std::fs::File::open(file) {
                check.key("map_file").problem(format_args!("cannot be read: {error}"));
            }
        }
        if let Some(link) = &self.link {
            match crate::rules::template::Template::parse(link) {
                Err(why) if link.matches("{{").count() == link.matches("}}").count() => {
                    check.key("link").problem(why);
                }
                _ => check.key("link").url_template(link, &["http", "https"]),
            }
        }
    }
}
