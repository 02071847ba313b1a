//! `[process_alerts]`: who hears of process changes, and whose changes are expected.

use serde::{Deserialize, Serialize};

use super::check::Check;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProcessAlerts {
    /// None: recorded, nobody is mailed.
    pub recipients: Vec<String>,
    /// Changes by these accounts are stored but not alerted. Absent: nobody is excluded.
    pub authorized_accounts: Option<Vec<String>>,
    /// The same list from AWS Systems Manager.
    pub ssm_parameter: Option<String>,
}

impl ProcessAlerts {
    pub(super) fn check(&self, check: &mut Check<'_>) {
        check.key("recipients").mailboxes(&self.recipients);
        if let Some(accounts) = &self.authorized_accounts {
            let mut key = check.key("authorized_accounts");
            if !(1..=100).contains(&accounts.len()) {
                let count = accounts.len();
                key.problem(format_args!("must have 1 to 100 accounts, not {count}; leave it out to exclude nobody"));
            }
            key.not_blank(accounts);
        }
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
    }
}
