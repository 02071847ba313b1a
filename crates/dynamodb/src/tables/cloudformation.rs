//! The tables as a CloudFormation template, for those who do not let programs create tables.

use serde_json::{Map, Value, json};
use tidings_store::Table;
use tidings_store::table::KeyAttribute;

use super::{Billing, Wanted, key_attributes, letter, roles};

/// A template of all the tables. It is JSON, which CloudFormation takes as it is, and which is YAML as well.
#[must_use]
pub fn cloudformation(wanted: &[Wanted], prefix: &str) -> Value {
    let resources: Map<_, _> = wanted
        .iter()
        .map(|wanted| {
            let resource = json!({
                "Type": "AWS::DynamoDB::Table",
                // A stack that is deleted leaves the data alone.
                "DeletionPolicy": "Retain",
                "UpdateReplacePolicy": "Retain",
                "Properties": properties(wanted, prefix),
            });
            (logical_id(wanted.table.name()), resource)
        })
        .collect();
    json!({
        "AWSTemplateFormatVersion": "2010-09-09",
        "Description": "The tables of Tidings",
        "Resources": resources,
    })
}

fn properties(wanted: &Wanted, prefix: &str) -> Value {
    let Wanted { table, extras } = wanted;
    let definitions = key_attributes(table).into_iter();
    let definitions: Vec<_> =
        definitions.map(|(name, kind)| json!({"AttributeName": name, "AttributeType": letter(kind)})).collect();
    let mut all = Map::new();
    let mut set = |name: &str, value: Value| all.insert(name.to_owned(), value);
    set("TableName", format!("{prefix}{}", table.name()).into());
    set("AttributeDefinitions", definitions.into());
    set("KeySchema", schema(table.partition_attribute(), table.sort_attribute()));
    for (name, local) in [("GlobalSecondaryIndexes", false), ("LocalSecondaryIndexes", true)] {
        let indexes = indexes(table, local, extras.billing);
        if !indexes.is_empty() {
            set(name, indexes.into());
        }
    }
    match throughput(extras.billing) {
        Some(throughput) => {
            set("BillingMode", "PROVISIONED".into());
            set("ProvisionedThroughput", throughput);
        }
        None => {
            set("BillingMode", "PAY_PER_REQUEST".into());
        }
    }
    if let Some(attribute) = table.ttl_attribute() {
        set("TimeToLiveSpecification", json!({"AttributeName": attribute, "Enabled": true}));
    }
    if extras.sse {
        set("SSESpecification", json!({"SSEEnabled": true}));
    }
    if extras.pitr {
        set("PointInTimeRecoverySpecification", json!({"PointInTimeRecoveryEnabled": true}));
    }
    if extras.stream {
        set("StreamSpecification", json!({"StreamViewType": "NEW_AND_OLD_IMAGES"}));
    }
    if !extras.tags.is_empty() {
        let tags: Vec<_> = extras.tags.iter().map(|(key, value)| json!({"Key": key, "Value": value})).collect();
        set("Tags", tags.into());
    }
    Value::Object(all)
}

fn schema(partition: &KeyAttribute, sort: Option<&KeyAttribute>) -> Value {
    let roles = roles(partition, sort).into_iter();
    roles.map(|(name, role)| json!({"AttributeName": name, "KeyType": role})).collect()
}

fn indexes(table: &Table, local: bool, billing: Billing) -> Vec<Value> {
    let indexes = table.indexes().iter().filter(|index| index.local == local);
    let described = indexes.map(|index| {
        let mut described = json!({
            "IndexName": index.name,
            "KeySchema": schema(&index.partition, index.sort.as_ref()),
            "Projection": {"ProjectionType": "ALL"},
        });
        if let (false, Some(throughput), Some(map)) = (local, throughput(billing), described.as_object_mut()) {
            map.insert("ProvisionedThroughput".to_owned(), throughput);
        }
        described
    });
    described.collect()
}

fn throughput(billing: Billing) -> Option<Value> {
    match billing {
        Billing::OnDemand => None,
        Billing::Provisioned { read, write } => Some(json!({"ReadCapacityUnits": read, "WriteCapacityUnits": write})),
    }
}

/// `rez-agent-messages-dev` as `RezAgentMessagesDev`: CloudFormation takes letters and digits alone.
fn logical_id(name: &str) -> String {
    let words = name.split(|c: char| !c.is_ascii_alphanumeric());
    let capital = words.map(|word| {
        let mut letters = word.chars();
        letters.next().map(|first| first.to_ascii_uppercase()).into_iter().chain(letters).collect::<String>()
    });
    capital.collect()
}
