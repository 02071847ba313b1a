//! Authorised service accounts: whose changes are expected (S000-51 to S000-58).
//!
//! One list, set by whoever spoke last: the API, the configuration file, or a parameter in AWS Systems Manager. File
//! and parameter speak only when they change, so that what was set through the API since is not undone by a restart.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tidings_core::envelope::{FieldError, check_name};
use tidings_core::time::{self, Timestamp};
use tidings_store::{Change, Condition, Error, Item, Key, KeyKind, Query, Store, Table, Write};

use super::limits::{ACCOUNT_CHARS, ACCOUNTS};
use crate::audit::{Action, Audit};

/// The setting's name: the seed's parameter path (S000-52).
pub const SETTING: &str = "/ado-process-alert/authorized-service-accounts";
/// How often a use of an account is noted.
const NOTED_EVERY_SECONDS: i64 = 60;

/// The list, and how often each account was met.
#[must_use]
pub fn table() -> &'static Table {
    static TABLE: LazyLock<Table> =
        LazyLock::new(|| Table::new("tidings-authorized-accounts", "kind", KeyKind::S).sort("name", KeyKind::S));
    &TABLE
}

const LIST: &str = "list";
const USE: &str = "use";

/// Who sets the list besides the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    File,
    Parameter,
}

/// The list as it is stored.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct Stored {
    /// Absent: not configured, nobody is excluded (S000-54).
    accounts: Option<Vec<String>>,
    /// Who set it: `api`, `file` or `parameter`.
    set_by: String,
    /// What the file and the parameter said last.
    file: Option<Vec<String>>,
    parameter: Option<Vec<String>>,
    revision: i64,
}

/// When an account's change was last met.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Usage {
    pub account: String,
    pub last_matched: Option<String>,
}

pub struct Accounts {
    store: Arc<dyn Store>,
    /// Uses that are on record, by account, and since when.
    noted: Mutex<HashMap<String, i64>>,
}

impl Accounts {
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self { store, noted: Mutex::default() }
    }

    /// The list in force, if there is one.
    pub async fn list(&self) -> Result<Option<Vec<String>>, Error> {
        Ok(self.stored().await?.accounts)
    }

    async fn stored(&self) -> Result<Stored, Error> {
        let item = self.store.get(table(), &Key::with_sort(LIST, SETTING)).await?;
        item.map_or_else(|| Ok(Stored::default()), |item| item.to_record())
    }

    /// Sets the list, or unsets it, on behalf of a user.
    pub async fn set(
        &self,
        audit: &Audit,
        user: &str,
        correlation_id: &str,
        accounts: Option<Vec<String>>,
    ) -> Result<(), Error> {
        let before = self.stored().await?;
        let after = Stored { accounts, set_by: "api".to_owned(), ..before.clone() };
        self.replace(audit, user, correlation_id, &before, after).await
    }

    /// What the file or the parameter says now. Only what is new to us changes anything.
    pub async fn offer(
        &self,
        audit: &Audit,
        origin: Origin,
        offered: Option<Vec<String>>,
        correlation_id: &str,
    ) -> Result<bool, Error> {
        let before = self.stored().await?;
        let mut after = before.clone();
        let (name, known) = match origin {
            Origin::File => ("file", &mut after.file),
            Origin::Parameter => ("parameter", &mut after.parameter),
        };
        if *known == offered {
            return Ok(false);
        }
        known.clone_from(&offered);
        // A list that is taken out of the file takes with it what it had set, and nothing else.
        if offered.is_some() || before.set_by == name {
            after.accounts = offered;
            after.set_by = name.to_owned();
        }
        self.replace(audit, name, correlation_id, &before, after).await?;
        Ok(true)
    }

    /// Audited with who, when, old and new (S000-58).
    async fn replace(
        &self,
        audit: &Audit,
        user: &str,
        correlation_id: &str,
        before: &Stored,
        mut after: Stored,
    ) -> Result<(), Error> {
        after.revision = before.revision.saturating_add(1);
        let unchanged = match before.revision {
            0 => Condition::NotExists,
            revision => Condition::Equals("revision".into(), revision.into()),
        };
        let item = Item::from_record(&after)?.with("kind", LIST).with("name", SETTING);
        let details = json!({ "old": before.accounts, "new": after.accounts });
        let action = Action::new("authorized-accounts.set", "setting", SETTING).details(details);
        let write = Write::put(table(), item).when(unchanged);
        audit.record_with(user, correlation_id, action, vec![write]).await.map(drop)
    }

    /// Remembers that an account was met; a failure to do so harms nobody.
    pub async fn note_use(&self, account: &str, now: Timestamp) {
        let second = now.as_second();
        {
            let mut noted = self.noted.lock().unwrap_or_else(PoisonError::into_inner);
            if noted.get(account).is_some_and(|at| second - at < NOTED_EVERY_SECONDS) {
                return;
            }
            noted.insert(account.to_owned(), second);
        }
        let changes = vec![Change::Set("last_matched".into(), time::iso_millis(now).into())];
        let write = Write::update(table(), Key::with_sort(USE, account), changes);
        if let Err(error) = self.store.transact(vec![write]).await {
            tracing::warn!(%error, "the use of an authorised account cannot be noted");
        }
    }

    /// The accounts of the list, and when each was last met: one that never was may be misspelt (S000-56).
    pub async fn usage(&self) -> Result<Option<Vec<Usage>>, Error> {
        let Some(accounts) = self.list().await? else { return Ok(None) };
        let mut last = HashMap::new();
        let mut query = Query::new(USE).limit(500);
        loop {
            let page = self.store.query(table(), &query).await?;
            for item in &page.items {
                if let (Some(name), Some(at)) = (item.str("name"), item.str("last_matched")) {
                    last.insert(name.to_owned(), at.to_owned());
                }
            }
            if page.next.is_none() {
                break;
            }
            query = query.after(page.next);
        }
        let usage = |account: String| Usage { last_matched: last.get(&account).cloned(), account };
        Ok(Some(accounts.into_iter().map(usage).collect()))
    }
}

/// The account of the list under which the actor is known: mail addresses in any case, descriptors exactly.
#[must_use]
pub fn matching<'a>(accounts: &'a [String], identities: &[String]) -> Option<&'a String> {
    accounts.iter().find(|account| identities.iter().any(|identity| same(account.trim(), identity.trim())))
}

fn same(account: &str, identity: &str) -> bool {
    let is_mail = |text: &str| text.contains('@') && !text.contains(['|', '\\', ';']);
    account == identity || (is_mail(account) && is_mail(identity) && account.to_lowercase() == identity.to_lowercase())
}

/// A list from JSON: an array of 1 to 100 strings that are not empty. Every bad one is named.
pub fn read(value: &Value) -> Result<Vec<String>, Vec<FieldError>> {
    let Some(list) = value.as_array() else {
        return Err(vec![FieldError::new("", "must be a JSON array of e-mail addresses and descriptors")]);
    };
    let mut errors = Vec::new();
    if !(1..=ACCOUNTS).contains(&list.len()) {
        errors.push(FieldError::new("", format!("must have 1 to {ACCOUNTS} accounts, not {}", list.len())));
    }
    let mut accounts = Vec::new();
    for (place, account) in list.iter().enumerate() {
        let checked = match account.as_str() {
            Some(account) => check_name(account, ACCOUNT_CHARS).map(|()| accounts.push(account.to_owned())),
            None => Err("must be a string".to_owned()),
        };
        if let Err(why) = checked {
            errors.push(FieldError::new(format!("[{place}]"), why));
        }
    }
    if errors.is_empty() { Ok(accounts) } else { Err(errors) }
}

#[cfg(test)]
mod tests {
    use super::*;

    // S000-56, S000-82: the seed's own sample.
    #[test]
    fn mails_match_in_any_case_and_descriptors_exactly() {
        let accounts =
            ["svc-cicd@organization.com", "build-agent@organization.com", "aad|12345-67890-abcdef"].map(String::from);
        let found = |identity: &str| matching(&accounts, &[identity.to_owned()]).map(String::as_str);
        assert_eq!(found("SVC-CICD@Organization.com"), Some("svc-cicd@organization.com"));
        assert_eq!(found("aad|12345-67890-abcdef"), Some("aad|12345-67890-abcdef"));
        for other in
            ["AAD|12345-67890-abcdef", "aad|12345-67890", "x-svc-cicd@organization.com", "", "organization.com"]
        {
            assert_eq!(found(other), None, "{other}");
        }
    }

    // S000-53 to S000-57
    #[test]
    fn a_list_has_one_to_a_hundred_names() {
        let list = |n: usize| Value::from((0..n).map(|n| format!("a{n}@b.c")).collect::<Vec<_>>());
        for (n, good) in [(0, false), (1, true), (99, true), (100, true), (101, false)] {
            assert_eq!(read(&list(n)).is_ok(), good, "{n}");
        }
        let bad = read(&json!(["a@b.c", "", 7, "  ", "x".repeat(ACCOUNT_CHARS + 1)])).unwrap_err();
        assert_eq!(bad.iter().map(|e| e.field.as_str()).collect::<Vec<_>>(), ["[1]", "[2]", "[3]", "[4]"]);
        assert!(read(&json!(["x".repeat(ACCOUNT_CHARS)])).is_ok());
        for other in [json!({}), json!("a@b.c"), json!(null)] {
            assert!(read(&other).is_err(), "{other}");
        }
    }
}
