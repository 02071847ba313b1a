//! Indexes that a table which is there lacks: one that came with a later version. DynamoDB fills them by itself.

use aws_sdk_dynamodb::error::{BuildError, ProvideErrorMetadata};
use aws_sdk_dynamodb::operation::update_table::builders::UpdateTableFluentBuilder;
use aws_sdk_dynamodb::types::{
    AttributeDefinition, CreateGlobalSecondaryIndexAction, GlobalSecondaryIndexUpdate, TableDescription,
};
use tidings_store::{Error, Index};

use super::Wanted;
use super::check::describe;
use super::create::{active, define, schema, throughput, whole};
use crate::Dynamo;
use crate::failure::{Failure, classify, failed};
use crate::retry::Retry;

/// Makes the global indexes that are missing, one after the other as DynamoDB wants it, and waits for each. A local one
/// can only be made with its table. One that has other keys stays: [`super::check`] tells of both.
pub(super) async fn add(dynamo: &Dynamo, retry: &Retry, wanted: &Wanted) -> Result<(), Error> {
    for index in wanted.table.indexes().iter().filter(|index| !index.local) {
        if retry.run(|| Box::pin(add_one(dynamo, wanted, index))).await? {
            let made = retry.run(|| Box::pin(active(dynamo, wanted))).await;
            made.map_err(|error| match error {
                Error::Throttled(_) => Error::Throttled(format!(
                    "DynamoDB is still filling the index {} of {}; run tidings tables create again later",
                    index.name,
                    dynamo.name(&wanted.table)
                )),
                error => error,
            })?;
        }
    }
    Ok(())
}

/// Says whether there is one to wait for.
async fn add_one(dynamo: &Dynamo, wanted: &Wanted, index: &Index) -> Result<bool, Failure> {
    let Some(described) = describe(dynamo, &wanted.table).await? else { return Ok(false) };
    let mut names = described.global_secondary_indexes().iter().map(|index| index.index_name());
    if names.any(|name| name == Some(index.name.as_str())) {
        return Ok(false);
    }
    let request =
        request(dynamo, wanted, index, &described).map_err(|error| Failure::Final(failed(error.to_string())))?;
    match request.send().await {
        Ok(_) => Ok(true),
        // Another is being made, perhaps by another node: it is this one's turn after that.
        Err(error) if matches!(error.code(), Some("ResourceInUseException" | "LimitExceededException")) => {
            Err(Failure::Busy(format!("table {} is being changed", dynamo.name(&wanted.table))))
        }
        Err(error) => Err(classify("UpdateTable", error)),
    }
}

fn request(
    dynamo: &Dynamo,
    wanted: &Wanted,
    index: &Index,
    described: &TableDescription,
) -> Result<UpdateTableFluentBuilder, BuildError> {
    let action = CreateGlobalSecondaryIndexAction::builder()
        .index_name(&index.name)
        .set_key_schema(Some(schema(&index.partition, index.sort.as_ref())?))
        .projection(whole())
        .set_provisioned_throughput(throughput(wanted.extras.billing)?)
        .build()?;
    let request = dynamo.client.update_table().table_name(dynamo.name(&wanted.table));
    let request = request.set_attribute_definitions(Some(definitions(described, index)?));
    Ok(request.global_secondary_index_updates(GlobalSecondaryIndexUpdate::builder().create(action).build()))
}

/// Every key attribute that the table has then, and no other: DynamoDB takes none that is not used.
fn definitions(described: &TableDescription, index: &Index) -> Result<Vec<AttributeDefinition>, BuildError> {
    let mut all = described.attribute_definitions().to_vec();
    for (name, kind) in [Some(&index.partition), index.sort.as_ref()].into_iter().flatten() {
        if !all.iter().any(|known| known.attribute_name() == name.as_ref()) {
            all.push(define((name.as_ref(), *kind))?);
        }
    }
    Ok(all)
}
