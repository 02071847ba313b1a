//! `[notification_center]`: what inbox entries link to.

use serde::{Deserialize, Serialize};

use super::check::Check;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NotificationCenter {
    /// A template over the entry's fields. Absent: entries have no link.
    pub link: Option<String>,
}

impl NotificationCenter {
    pub(super) fn check(&self, check: &mut Check<'_>) {
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
