//! `[process_alerts]`: who hears of process changes, and whose changes are expected.

use serde::{Deserialize, Serialize};

use super::check::Check;
use super::store::check_region;
use super::values::is_mailbox;
use crate::rules::template::Template;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProcessAlerts {
    /// None: recorded, nobody is mailed.
    pub recipients: Vec<String>,
    /// Changes by these accounts are stored but not alerted. Absent: nobody is excluded.
    pub authorized_accounts: Option<Vec<String>>,
    /// The same list from AWS Systems Manager.
    pub ssm_parameter: Option<String>,
    /// Systems Manager: absent means the AWS environment's.
    pub region: Option<String>,
    /// Systems Manager: absent means Amazon's own for the region.
    pub endpoint: Option<String>,
    /// How often the parameter is read again.
    pub refresh_seconds: u64,
    /// Keep an alert that arrives late as long as one that does not: from its arrival instead of its own time.
    pub keep_from_arrival: bool,
    /// Templates of the mail over the alert's attributes and `link`; absent: what Tidings writes by itself.
    pub subject: Option<String>,
    pub text: Option<String>,
    pub html: Option<String>,
    /// Changes of so many seconds are told in one mail; 0: each in its own.
    pub digest_seconds: u64,
    /// Where attributes come from: fields of an event's `data`, the first that has a text.
    pub process_name_fields: Vec<String>,
    pub work_item_type_fields: Vec<String>,
    pub field_reference_name_fields: Vec<String>,
    pub state_name_fields: Vec<String>,
}

impl Default for ProcessAlerts {
    fn default() -> Self {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        Self {
            recipients: Vec::new(),
            authorized_accounts: None,
            ssm_parameter: None,
            region: None,
            endpoint: None,
            refresh_seconds: 60,
            keep_from_arrival: false,
            subject: None,
            text: None,
            html: None,
            digest_seconds: 0,
            process_name_fields: names(&["ProcessName", "OldProcessName", "TargetProcessName", "NewProcess"]),
            work_item_type_fields: names(&[
                "WorkItemTypeReferenceName",
                "WorkItemReferenceName",
                "WorkItemTypeName",
                "WorkItemType",
            ]),
            field_reference_name_fields: names(&["FieldReferenceName", "FieldName"]),
            state_name_fields: names(&["StateName"]),
        }
    }
}

impl ProcessAlerts {
    pub(super) fn check(&self, check: &mut Check<'_>) {
        // Unlike a rule's, these addresses are no templates: there is no event yet when they are read.
        for (index, recipient) in self.recipients.iter().enumerate() {
            if !is_mailbox(recipient) {
                check.key("recipients").item(index).mailbox(recipient);
            }
        }
        if let Some(accounts) = &self.authorized_accounts {
            let mut key = check.key("authorized_accounts");
            if !(1..=100).contains(&accounts.len()) {
                let count = accounts.len();
                key.problem(format_args!("must have 1 to 100 accounts, not {count}; leave it out to exclude nobody"));
            }
            key.not_blank(accounts);
        }
        self.check_parameter(check);
        for (key, template) in [("subject", &self.subject), ("text", &self.text), ("html", &self.html)] {
            let Some(template) = template else { continue };
            match Template::parse(template) {
                Ok(parsed) if parsed.is_empty() => check.key(key).problem("is empty; leave it out"),
                Ok(_) => {}
                Err(why) => check.key(key).problem(why),
            }
        }
        check.key("digest_seconds").range(self.digest_seconds, 0..=86_400);
        for (key, fields) in [
            ("process_name_fields", &self.process_name_fields),
            ("work_item_type_fields", &self.work_item_type_fields),
            ("field_reference_name_fields", &self.field_reference_name_fields),
            ("state_name_fields", &self.state_name_fields),
        ] {
            check.key(key).not_blank(fields);
        }
    }

    fn check_parameter(&self, check: &mut Check<'_>) {
        if let Some(parameter) = &self.ssm_parameter {
            let mut key = check.key("ssm_parameter");
            let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '/');
            if !parameter.starts_with('/') || parameter.len() > 1011 || !parameter.chars().all(allowed) {
                key.problem("must be a parameter's path like \"/ado-process-alert/authorized-service-accounts\"");
            }
            if self.authorized_accounts.is_some() {
                key.problem("and `process_alerts.authorized_accounts` are both given; keep one of them");
            }
        }
        if let Some(region) = &self.region {
            check_region(region, &mut check.key("region"));
        }
        if let Some(endpoint) = &self.endpoint {
            check.key("endpoint").url(endpoint, &["http", "https"]);
        }
        check.key("refresh_seconds").range(self.refresh_seconds, 1..=86_400);
    }
}
