//! Comparing the tables that are there with those that should be.

use std::collections::BTreeMap;
use std::fmt;

use aws_sdk_dynamodb::types::{
    BillingMode, KeySchemaElement, PointInTimeRecoveryStatus, Projection, ProjectionType, SseStatus, StreamViewType,
    TableDescription, TimeToLiveDescription, TimeToLiveStatus,
};
use futures_util::stream::{self, StreamExt, TryStreamExt};
use tidings_store::table::KeyAttribute;
use tidings_store::{Error, Table};

use super::{AT_ONCE, Billing, Wanted, key_attributes, letter, roles};
use crate::Dynamo;
use crate::failure::{Failure, classify};

/// One way in which a table is not what it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// The table's name with DynamoDB.
    pub table: String,
    pub kind: Kind,
    pub wanted: String,
    pub found: String,
}

/// What differs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// The table is not there.
    Missing,
    /// Its keys: names or types. Only a new table helps.
    Keys,
    /// An index that is missing or has other keys.
    Index(String),
    /// An index that is not ours: it costs, and harms nobody.
    Superfluous(String),
    /// An index that does not hold whole items.
    Projection(String),
    Expiry,
    Billing,
    Encryption,
    Backups,
    Tag(String),
    Stream,
    /// This endpoint does not tell (DynamoDB Local has no backups and no tags), or may not tell us.
    Unchecked(&'static str),
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { table, kind, wanted, found } = self;
        match kind {
            Kind::Missing => write!(f, "{table}: there is no such table"),
            Kind::Keys => write!(f, "{table}: its keys are {found}, not {wanted}"),
            Kind::Index(name) => write!(f, "{table}: index {name} is {found}, not {wanted}"),
            Kind::Superfluous(name) => write!(f, "{table}: index {name} ({found}) is not one of ours"),
            Kind::Projection(name) => write!(f, "{table}: index {name} projects {found}, not {wanted}"),
            Kind::Expiry => write!(f, "{table}: its expiry is {found}, not {wanted}"),
            Kind::Billing => write!(f, "{table}: its billing is {found}, not {wanted}"),
            Kind::Encryption => write!(f, "{table}: its encryption is {found}, not {wanted}"),
            Kind::Backups => write!(f, "{table}: its point-in-time recovery is {found}, not {wanted}"),
            Kind::Tag(key) => write!(f, "{table}: its tag {key} is {found}, not {wanted}"),
            Kind::Stream => write!(f, "{table}: its stream is {found}, not {wanted}"),
            Kind::Unchecked(what) => write!(f, "{table}: {what} cannot be checked here: {found}"),
        }
    }
}

/// Says how the tables differ from what they should be; nothing is changed.
pub async fn check(dynamo: &Dynamo, wanted: &[Wanted]) -> Result<Vec<Difference>, Error> {
    let each = wanted.iter().map(|wanted| check_one(dynamo, wanted));
    let all: Vec<Vec<Difference>> = stream::iter(each).buffered(AT_ONCE).try_collect().await?;
    Ok(all.into_iter().flatten().collect())
}

async fn check_one(dynamo: &Dynamo, wanted: &Wanted) -> Result<Vec<Difference>, Error> {
    let mut report = Report { table: dynamo.name(&wanted.table), differences: Vec::new() };
    let described = dynamo.retry.run(|| Box::pin(describe(dynamo, &wanted.table))).await?;
    let Some(described) = described else {
        report.add(Kind::Missing, "there", "missing");
        return Ok(report.differences);
    };
    check_keys(&wanted.table, &described, &mut report);
    check_indexes(&wanted.table, &described, &mut report);
    check_upkeep(wanted, &described, &mut report);
    check_expiry(dynamo, wanted, &mut report).await?;
    check_backups(dynamo, wanted, &mut report).await?;
    check_tags(dynamo, wanted, &described, &mut report).await?;
    Ok(report.differences)
}

struct Report {
    table: String,
    differences: Vec<Difference>,
}

impl Report {
    fn add(&mut self, kind: Kind, wanted: &str, found: &str) {
        let (wanted, found) = (wanted.to_owned(), found.to_owned());
        self.differences.push(Difference { table: self.table.clone(), kind, wanted, found });
    }

    fn compare(&mut self, kind: Kind, wanted: &str, found: &str) {
        if wanted != found {
            self.add(kind, wanted, found);
        }
    }

    /// Passes failures on that may pass, and notes the others: a check that one call does not allow goes on.
    fn told<T>(&mut self, what: &'static str, answer: Result<T, Error>) -> Result<Option<T>, Error> {
        match answer {
            Ok(answer) => Ok(Some(answer)),
            Err(error @ Error::Throttled(_)) => Err(error),
            Err(error) => {
                let source = std::error::Error::source(&error).map(ToString::to_string);
                self.add(Kind::Unchecked(what), "known", &source.unwrap_or_else(|| error.to_string()));
                Ok(None)
            }
        }
    }
}

/// The table as it is, if it is.
pub(super) async fn describe(dynamo: &Dynamo, table: &Table) -> Result<Option<TableDescription>, Failure> {
    match dynamo.client.describe_table().table_name(dynamo.name(table)).send().await {
        Ok(output) => Ok(output.table),
        Err(error) if error.as_service_error().is_some_and(|error| error.is_resource_not_found_exception()) => Ok(None),
        Err(error) => Err(classify("DescribeTable", error)),
    }
}

pub(super) async fn time_to_live(dynamo: &Dynamo, table: &Table) -> Result<Option<TimeToLiveDescription>, Failure> {
    let output = dynamo.client.describe_time_to_live().table_name(dynamo.name(table)).send().await;
    Ok(output.map_err(|error| classify("DescribeTimeToLive", error))?.time_to_live_description)
}

fn check_keys(table: &Table, described: &TableDescription, report: &mut Report) {
    let types = types(described);
    let wanted = wanted_keys(table, table.partition_attribute(), table.sort_attribute());
    report.compare(Kind::Keys, &wanted, &found_keys(described.key_schema(), &types));
}

fn check_indexes(table: &Table, described: &TableDescription, report: &mut Report) {
    let types = types(described);
    let mut found = BTreeMap::new();
    for index in described.global_secondary_indexes() {
        let keys = format!("global on {}", found_keys(index.key_schema(), &types));
        found.insert(index.index_name().unwrap_or_default(), (keys, projected(index.projection())));
    }
    for index in described.local_secondary_indexes() {
        let keys = format!("local on {}", found_keys(index.key_schema(), &types));
        found.insert(index.index_name().unwrap_or_default(), (keys, projected(index.projection())));
    }
    for index in table.indexes() {
        let kind = if index.local { "local" } else { "global" };
        let wanted = format!("{kind} on {}", wanted_keys(table, &index.partition, index.sort.as_ref()));
        match found.remove(index.name.as_str()) {
            None => report.add(Kind::Index(index.name.clone()), &wanted, "missing"),
            Some((keys, projection)) => {
                report.compare(Kind::Index(index.name.clone()), &wanted, &keys);
                report.compare(Kind::Projection(index.name.clone()), ProjectionType::All.as_str(), &projection);
            }
        }
    }
    for (name, (keys, _)) in found {
        report.add(Kind::Superfluous(name.to_owned()), "absent", &keys);
    }
}

fn types(described: &TableDescription) -> BTreeMap<&str, &str> {
    let definitions = described.attribute_definitions().iter();
    definitions.map(|definition| (definition.attribute_name(), definition.attribute_type().as_str())).collect()
}

fn wanted_keys(table: &Table, partition: &KeyAttribute, sort: Option<&KeyAttribute>) -> String {
    let kinds = key_attributes(table);
    let kind = |name: &str| kinds.get(name).copied().map_or("?", letter);
    keys_text(roles(partition, sort).into_iter().map(|(name, role)| (name, role, kind(name))))
}

fn found_keys(schema: &[KeySchemaElement], types: &BTreeMap<&str, &str>) -> String {
    let role = |name: &str| types.get(name).copied().unwrap_or("?");
    keys_text(schema.iter().map(|key| (key.attribute_name(), key.key_type().as_str(), role(key.attribute_name()))))
}

fn keys_text<'k>(keys: impl Iterator<Item = (&'k str, &'k str, &'k str)>) -> String {
    keys.map(|(name, role, kind)| format!("{role} {name} ({kind})")).collect::<Vec<_>>().join(", ")
}

fn projected(projection: Option<&Projection>) -> String {
    projection.and_then(Projection::projection_type).map_or("nothing", ProjectionType::as_str).to_owned()
}

fn check_upkeep(wanted: &Wanted, described: &TableDescription, report: &mut Report) {
    let on_demand = described.billing_mode_summary().and_then(|summary| summary.billing_mode());
    let found = match (on_demand, described.provisioned_throughput()) {
        (Some(BillingMode::PayPerRequest), _) => billing(Billing::OnDemand),
        (_, units) => billing(Billing::Provisioned {
            read: units.and_then(|units| units.read_capacity_units()).unwrap_or(0),
            write: units.and_then(|units| units.write_capacity_units()).unwrap_or(0),
        }),
    };
    report.compare(Kind::Billing, &billing(wanted.extras.billing), &found);

    let status = described.sse_description().and_then(|described| described.status());
    let encrypted = matches!(status, Some(SseStatus::Enabled | SseStatus::Enabling | SseStatus::Updating));
    // DynamoDB Local takes the setting and forgets it.
    let forgets = described.table_arn().is_some_and(|arn| arn.contains(":ddblocal:"));
    if wanted.extras.sse && !encrypted && forgets {
        report.add(Kind::Unchecked("encryption"), "known", "DynamoDB Local does not tell");
    } else {
        let key = |own: bool| if own { "by the account's key" } else { "by a key of AWS" };
        report.compare(Kind::Encryption, key(wanted.extras.sse), key(encrypted));
    }

    let stream = described.stream_specification().filter(|stream| stream.stream_enabled());
    let view = stream.and_then(|stream| stream.stream_view_type()).map_or("off", StreamViewType::as_str);
    let wanted = if wanted.extras.stream { StreamViewType::NewAndOldImages.as_str() } else { "off" };
    report.compare(Kind::Stream, wanted, view);
}

fn billing(billing: Billing) -> String {
    match billing {
        Billing::OnDemand => "on demand".to_owned(),
        Billing::Provisioned { read, write } => format!("provisioned ({read} read, {write} write)"),
    }
}

async fn check_expiry(dynamo: &Dynamo, wanted: &Wanted, report: &mut Report) -> Result<(), Error> {
    let answer = dynamo.retry.run(|| Box::pin(time_to_live(dynamo, &wanted.table))).await;
    let Some(described) = report.told("expiry", answer)? else { return Ok(()) };
    let on = |status: &TimeToLiveStatus| matches!(status, TimeToLiveStatus::Enabled | TimeToLiveStatus::Enabling);
    let described = described.filter(|described| described.time_to_live_status().is_some_and(on));
    let found = described.as_ref().and_then(|described| described.attribute_name());
    report.compare(Kind::Expiry, &expiry(wanted.table.ttl_attribute()), &expiry(found));
    Ok(())
}

fn expiry(attribute: Option<&str>) -> String {
    attribute.map_or_else(|| "off".to_owned(), |attribute| format!("by {attribute}"))
}

async fn check_backups(dynamo: &Dynamo, wanted: &Wanted, report: &mut Report) -> Result<(), Error> {
    let name = dynamo.name(&wanted.table);
    let ask = || async {
        let output = dynamo.client.describe_continuous_backups().table_name(&name).send().await;
        output.map_err(|error| classify("DescribeContinuousBackups", error))
    };
    let answer = dynamo.retry.run(|| Box::pin(ask())).await;
    if !wanted.extras.pitr && matches!(answer, Err(Error::Failed { .. } | Error::Unreachable(_))) {
        // Not wanted, and not known either: nothing to report.
        return Ok(());
    }
    let Some(output) = report.told("point-in-time recovery", answer)? else { return Ok(()) };
    let described = output.continuous_backups_description().and_then(|all| all.point_in_time_recovery_description());
    let status = described.and_then(|described| described.point_in_time_recovery_status());
    let state = |on: bool| if on { "on" } else { "off" };
    let found = state(status == Some(&PointInTimeRecoveryStatus::Enabled));
    report.compare(Kind::Backups, state(wanted.extras.pitr), found);
    Ok(())
}

async fn check_tags(
    dynamo: &Dynamo,
    wanted: &Wanted,
    described: &TableDescription,
    report: &mut Report,
) -> Result<(), Error> {
    if wanted.extras.tags.is_empty() {
        return Ok(());
    }
    let mut tags = BTreeMap::new();
    let mut next = None;
    loop {
        let ask = || async {
            let request = dynamo.client.list_tags_of_resource().set_resource_arn(described.table_arn.clone());
            let output = request.set_next_token(next.clone()).send().await;
            output.map_err(|error| classify("ListTagsOfResource", error))
        };
        let answer = dynamo.retry.run(|| Box::pin(ask())).await;
        let Some(output) = report.told("tags", answer)? else { return Ok(()) };
        tags.extend(output.tags.unwrap_or_default().into_iter().map(|tag| (tag.key, tag.value)));
        next = output.next_token;
        if next.is_none() {
            break;
        }
    }
    for (key, value) in &wanted.extras.tags {
        report.compare(Kind::Tag(key.clone()), value, tags.get(key).map_or("missing", String::as_str));
    }
    Ok(())
}
