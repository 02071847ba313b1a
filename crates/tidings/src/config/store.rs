//! `[store]`: where everything is kept.

use serde::{Deserialize, Serialize};

use super::check::Check;
use super::problem::quote;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Store {
    pub engine: Engine,
    /// DynamoDB: absent means the AWS environment's.
    pub region: Option<String>,
    /// DynamoDB: absent means Amazon's own for the region.
    pub endpoint: Option<String>,
    /// DynamoDB: put before every table's name.
    pub table_prefix: String,
    /// Embedded: memory for cached blocks.
    pub cache_mb: u64,
    /// Embedded: disk space that stays free; below it, writes are refused with 507. 0: use it all.
    pub reserve_mb: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Engine {
    #[default]
    Embedded,
    DynamoDb,
}

impl Default for Store {
    fn default() -> Self {
        Self {
            engine: Engine::Embedded,
            region: None,
            endpoint: None,
            table_prefix: String::new(),
            cache_mb: 32,
            reserve_mb: 64,
        }
    }
}

impl Store {
    pub(super) fn check(&self, check: &mut Check<'_>) {
        if let Some(region) = &self.region {
            check_region(region, &mut check.key("region"));
        }
        if let Some(endpoint) = &self.endpoint {
            check.key("endpoint").url(endpoint, &["http", "https"]);
        }
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
        if self.table_prefix.len() > 100 || !self.table_prefix.chars().all(allowed) {
            check.key("table_prefix").problem("must be at most 100 letters, digits, `_`, `-` or `.`");
        }
        check.key("cache_mb").range(self.cache_mb, 8..=1_048_576);
        check.key("reserve_mb").range(self.reserve_mb, 0..=1_048_576);
    }
}

/// An AWS region's shape; new ones appear every year, so there is no list.
pub(super) fn check_region(region: &str, check: &mut Check<'_>) {
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if region.is_empty() || region.len() > 63 || !region.chars().all(allowed) {
        check.problem(format_args!("must be an AWS region like \"us-east-1\", not {}", quote(region)));
    }
}
