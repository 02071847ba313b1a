//! Creating what is missing, and finishing what an earlier run left half done.

use std::time::Duration;

use aws_sdk_dynamodb::error::{BuildError, ProvideErrorMetadata};
use aws_sdk_dynamodb::operation::create_table::builders::CreateTableFluentBuilder;
use aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, GlobalSecondaryIndex, IndexStatus, KeySchemaElement, LocalSecondaryIndex,
    PointInTimeRecoverySpecification, Projection, ProjectionType, ProvisionedThroughput, SseSpecification,
    StreamSpecification, StreamViewType, TableDescription, TableStatus, Tag, TimeToLiveSpecification, TimeToLiveStatus,
};
use futures_util::stream::{self, StreamExt, TryStreamExt};
use tidings_store::table::KeyAttribute;
use tidings_store::{Error, Index, KeyKind};

use super::AT_ONCE;
use super::check::{describe, time_to_live};
use super::{Billing, Wanted, indexes, key_attributes, letter, roles};
use crate::Dynamo;
use crate::failure::{Failure, classify, failed};
use crate::retry::{Policy, Retry};

/// What [`create`] did about a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Created {
    /// The table's name with DynamoDB.
    pub table: String,
    /// `false`: it was there before.
    pub new: bool,
    /// What was asked for and this endpoint does not offer.
    pub left_out: Vec<String>,
}

/// A table becomes active within seconds; an index of an existing large one may take longer, and a later run waits on.
const PATIENCE: Policy = Policy {
    budget: Duration::from_secs(300),
    base: Duration::from_millis(100),
    cap: Duration::from_secs(2),
    attempt_timeout: Duration::from_secs(10),
};

/// Creates the tables that are not there. One that is keeps its keys, indexes, billing and tags, which
/// [`super::check`] compares; indexes that it lacks are added, its expiry and backups are switched on where they are
/// off, so that a run which was cut short can be repeated, and a later version finds what it needs.
pub async fn create(dynamo: &Dynamo, wanted: &[Wanted]) -> Result<Vec<Created>, Error> {
    let Retry { place, ids, counters, .. } = &dynamo.retry;
    let retry = Retry { place: place.clone(), policy: PATIENCE, ids: ids.clone(), counters: counters.clone() };
    // Each takes seconds to become active, and none waits for another.
    let each = wanted.iter().map(|wanted| one(dynamo, &retry, wanted));
    stream::iter(each).buffered(AT_ONCE).try_collect().await
}

async fn one(dynamo: &Dynamo, retry: &Retry, wanted: &Wanted) -> Result<Created, Error> {
    let found = retry.run(|| Box::pin(create_one(dynamo, wanted))).await?;
    if found != Found::Made {
        retry.run(|| Box::pin(active(dynamo, wanted))).await?;
    }
    if found == Found::There {
        indexes::add(dynamo, retry, wanted).await?;
    }
    retry.run(|| Box::pin(expire(dynamo, wanted, found == Found::There))).await?;
    let backups = retry.run(|| Box::pin(keep_backups(dynamo, wanted))).await?;
    let left_out = backups.into_iter().collect();
    Ok(Created { table: dynamo.name(&wanted.table), new: found != Found::There, left_out })
}

/// How a table was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Found {
    There,
    /// New, and to be waited for.
    Begun,
    /// New, and ready.
    Made,
}

async fn create_one(dynamo: &Dynamo, wanted: &Wanted) -> Result<Found, Failure> {
    if describe(dynamo, &wanted.table).await?.is_some() {
        return Ok(Found::There);
    }
    let request = request(dynamo, wanted).map_err(|error| Failure::Final(failed(error.to_string())))?;
    match request.send().await {
        Ok(output) if output.table_description().is_some_and(is_active) => Ok(Found::Made),
        Ok(_) => Ok(Found::Begun),
        // Another node was quicker.
        Err(error) if error.code() == Some("ResourceInUseException") => Ok(Found::There),
        Err(error) => Err(classify("CreateTable", error)),
    }
}

fn request(dynamo: &Dynamo, wanted: &Wanted) -> Result<CreateTableFluentBuilder, BuildError> {
    let Wanted { table, extras } = wanted;
    let mut request = dynamo.client.create_table().table_name(dynamo.name(table));
    let definitions = key_attributes(table).into_iter().map(define).collect::<Result<_, _>>()?;
    request = request.set_attribute_definitions(Some(definitions));
    request = request.set_key_schema(Some(schema(table.partition_attribute(), table.sort_attribute())?));
    request = match throughput(extras.billing)? {
        None => request.billing_mode(BillingMode::PayPerRequest),
        Some(units) => request.billing_mode(BillingMode::Provisioned).provisioned_throughput(units),
    };
    for index in table.indexes() {
        request = if index.local {
            request.local_secondary_indexes(local(index)?)
        } else {
            request.global_secondary_indexes(global(index, extras.billing)?)
        };
    }
    if extras.sse {
        request = request.sse_specification(SseSpecification::builder().enabled(true).build());
    }
    if extras.stream {
        let stream = StreamSpecification::builder().stream_enabled(true);
        request = request.stream_specification(stream.stream_view_type(StreamViewType::NewAndOldImages).build()?);
    }
    for (key, value) in &extras.tags {
        request = request.tags(Tag::builder().key(key).value(value).build()?);
    }
    Ok(request)
}

pub(super) fn define((name, kind): (&str, KeyKind)) -> Result<AttributeDefinition, BuildError> {
    AttributeDefinition::builder().attribute_name(name).attribute_type(letter(kind).into()).build()
}

pub(super) fn schema(
    partition: &KeyAttribute,
    sort: Option<&KeyAttribute>,
) -> Result<Vec<KeySchemaElement>, BuildError> {
    let roles = roles(partition, sort).into_iter();
    roles.map(|(name, role)| KeySchemaElement::builder().attribute_name(name).key_type(role.into()).build()).collect()
}

fn local(index: &Index) -> Result<LocalSecondaryIndex, BuildError> {
    let schema = schema(&index.partition, index.sort.as_ref())?;
    LocalSecondaryIndex::builder().index_name(&index.name).set_key_schema(Some(schema)).projection(whole()).build()
}

fn global(index: &Index, billing: Billing) -> Result<GlobalSecondaryIndex, BuildError> {
    let schema = schema(&index.partition, index.sort.as_ref())?;
    let described = GlobalSecondaryIndex::builder().index_name(&index.name).set_key_schema(Some(schema));
    described.projection(whole()).set_provisioned_throughput(throughput(billing)?).build()
}

pub(super) fn whole() -> Projection {
    Projection::builder().projection_type(ProjectionType::All).build()
}

pub(super) fn throughput(billing: Billing) -> Result<Option<ProvisionedThroughput>, BuildError> {
    let Billing::Provisioned { read, write } = billing else { return Ok(None) };
    ProvisionedThroughput::builder().read_capacity_units(read).write_capacity_units(write).build().map(Some)
}

/// Waits until the table and its indexes can be used.
pub(super) async fn active(dynamo: &Dynamo, wanted: &Wanted) -> Result<(), Failure> {
    let described = describe(dynamo, &wanted.table).await?;
    if described.is_some_and(|described| is_active(&described)) {
        return Ok(());
    }
    Err(Failure::Busy(format!("table {} is not active yet", dynamo.name(&wanted.table))))
}

fn is_active(described: &TableDescription) -> bool {
    // A table that is being changed can be used.
    matches!(described.table_status(), Some(TableStatus::Active | TableStatus::Updating))
        && described.global_secondary_indexes().iter().all(|index| index.index_status() != Some(&IndexStatus::Creating))
}

/// Switches the table's expiry on, unless somebody has: perhaps by another attribute, which `check` tells.
async fn expire(dynamo: &Dynamo, wanted: &Wanted, was_there: bool) -> Result<(), Failure> {
    let Some(attribute) = wanted.table.ttl_attribute() else { return Ok(()) };
    let off = |status: &TimeToLiveStatus| *status == TimeToLiveStatus::Disabled;
    // A new one has none.
    let described = if was_there { time_to_live(dynamo, &wanted.table).await? } else { None };
    if !described.and_then(|described| described.time_to_live_status).as_ref().is_none_or(off) {
        return Ok(());
    }
    let setting = TimeToLiveSpecification::builder().enabled(true).attribute_name(attribute).build();
    let setting = setting.map_err(|error| Failure::Final(failed(error.to_string())))?;
    let request = dynamo.client.update_time_to_live().table_name(dynamo.name(&wanted.table));
    match request.time_to_live_specification(setting).send().await {
        Ok(_) => Ok(()),
        // Two nodes at once: the second is told so, and looks again.
        Err(error) if error.message().is_some_and(|message| message.contains("already enabled")) => Ok(()),
        Err(error) => Err(classify("UpdateTimeToLive", error)),
    }
}

/// Switches backups on; gives what this endpoint does not offer.
async fn keep_backups(dynamo: &Dynamo, wanted: &Wanted) -> Result<Option<String>, Failure> {
    if !wanted.extras.pitr {
        return Ok(None);
    }
    let setting = PointInTimeRecoverySpecification::builder().point_in_time_recovery_enabled(true).build();
    let setting = setting.map_err(|error| Failure::Final(failed(error.to_string())))?;
    let request = dynamo.client.update_continuous_backups().table_name(dynamo.name(&wanted.table));
    match request.point_in_time_recovery_specification(setting).send().await {
        Ok(_) => Ok(None),
        Err(error) if error.code() == Some("UnknownOperationException") => {
            Ok(Some("point-in-time recovery is not offered here".to_owned()))
        }
        // For a while after the table was created.
        Err(error) if error.code() == Some("ContinuousBackupsUnavailableException") => {
            Err(Failure::Busy("backups are not available yet".to_owned()))
        }
        Err(error) => Err(classify("UpdateContinuousBackups", error)),
    }
}
