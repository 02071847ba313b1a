//! Creating tables, finding what differs, and the template.

use aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, GlobalSecondaryIndex, KeySchemaElement, KeyType, Projection, ProjectionType,
    ScalarAttributeType,
};
use serde_json::json;
use tidings_dynamodb::Dynamo;
use tidings_dynamodb::tables::{self, Billing, Difference, Extras, Kind, Wanted};
use tidings_store::table::KeyAttribute;
use tidings_store::{Item, Key, KeyKind, Query, Store, Table, Write};

use crate::support::proxy::Proxy;
use crate::support::{clock, endpoint, foreign, open, options, unique};

fn key(name: &'static str, kind: KeyKind) -> KeyAttribute {
    (name.into(), kind)
}

fn orders() -> Table {
    Table::new("orders", "customer", KeyKind::S)
        .sort("number", KeyKind::N)
        .index("status-created-index", key("status", KeyKind::S), Some(key("created", KeyKind::N)))
        .index("digest-index", key("digest", KeyKind::B), None)
        .local_index("by_title", key("title", KeyKind::S))
        .ttl("ttl")
}

fn wanted() -> Wanted {
    Wanted { table: orders(), extras: Extras { stream: true, ..Extras::default() } }
}

/// A store with a prefix of its own, straight on DynamoDB Local.
async fn store() -> Dynamo {
    open(&options(endpoint(), &format!("{}-", unique())), &[orders()], &clock()).await
}

/// Another description of the table, with what it changes.
fn changed(change: impl FnOnce(&mut Extras)) -> Wanted {
    let mut wanted = wanted();
    change(&mut wanted.extras);
    wanted
}

async fn differences(store: &Dynamo, wanted: Wanted) -> Vec<Difference> {
    tables::check(store, &[wanted]).await.expect("an answer")
}

fn kinds(differences: &[Difference]) -> Vec<Kind> {
    differences.iter().map(|difference| difference.kind.clone()).collect()
}

#[tokio::test]
async fn a_table_is_created_once_and_as_wanted() {
    let store = store().await;
    assert_eq!(kinds(&differences(&store, wanted()).await), [Kind::Missing]);
    let created = tables::create(&store, &[wanted()]).await.unwrap();
    assert!(created[0].new && created[0].table.ends_with("-orders"), "{created:?}");
    assert_eq!(differences(&store, wanted()).await, []);
    let again = tables::create(&store, &[wanted()]).await.unwrap();
    assert!(!again[0].new);
    assert_eq!(differences(&store, wanted()).await, []);

    let item = Item::new().with("customer", "c").with("number", 1).with("status", "new").with("created", 5);
    let item = item.with("digest", vec![1]).with("title", "t");
    store.transact(vec![Write::insert(&orders(), item.clone())]).await.unwrap();
    assert_eq!(store.get(&orders(), &Key::with_sort("c", 1)).await.unwrap(), Some(item.clone()));
    for query in [
        Query::new("new").index("status-created-index"),
        Query::new(vec![1]).index("digest-index"),
        Query::new("c").index("by_title"),
    ] {
        assert_eq!(store.query(&orders(), &query).await.unwrap().items, std::slice::from_ref(&item));
    }
}

#[tokio::test]
async fn two_nodes_may_create_at_once() {
    let (store, all) = (store().await, [wanted()]);
    let (one, two) = tokio::join!(tables::create(&store, &all), tables::create(&store, &all));
    let (one, two) = (one.unwrap(), two.unwrap());
    assert!(one[0].new != two[0].new, "{one:?} {two:?}");
    assert_eq!(differences(&store, wanted()).await, []);
}

#[tokio::test]
async fn a_run_that_was_cut_short_is_finished() {
    let store = store().await;
    let without = Wanted { table: Table::new("orders", "customer", KeyKind::S), extras: Extras::default() };
    tables::create(&store, std::slice::from_ref(&without)).await.unwrap();
    let with = Wanted { table: without.table.ttl("ttl"), extras: Extras::default() };
    assert_eq!(kinds(&differences(&store, with.clone()).await), [Kind::Expiry]);
    tables::create(&store, std::slice::from_ref(&with)).await.unwrap();
    assert_eq!(differences(&store, with).await, []);
}

// An index that came with a later version is added to a table that is there, with what is in it (SX-03).
#[tokio::test]
async fn an_index_that_is_missing_is_added() {
    let store = store().await;
    let old = Table::new("orders", "customer", KeyKind::S)
        .sort("number", KeyKind::N)
        .local_index("by_title", key("title", KeyKind::S))
        .ttl("ttl");
    tables::create(&store, &[Wanted { table: old.clone(), ..wanted() }]).await.unwrap();
    let item = Item::new().with("customer", "c").with("number", 1).with("status", "new").with("created", 5);
    let item = item.with("digest", vec![1]);
    store.transact(vec![Write::insert(&old, item.clone())]).await.unwrap();

    let created = tables::create(&store, &[wanted()]).await.unwrap();
    assert!(!created[0].new);
    assert_eq!(differences(&store, wanted()).await, []);
    for query in [Query::new("new").index("status-created-index"), Query::new(vec![1]).index("digest-index")] {
        assert_eq!(store.query(&orders(), &query).await.unwrap().items, std::slice::from_ref(&item));
    }
}

#[tokio::test]
async fn every_difference_is_found() {
    let store = store().await;
    tables::create(&store, &[wanted()]).await.unwrap();
    let index = |name: &str| Kind::Index(name.to_owned());
    let table = |table: Table| Wanted { table, ..wanted() };
    let base = |partition: &'static str, kind: KeyKind, sort: KeyKind| {
        Table::new("orders", partition, kind)
            .sort("number", sort)
            .index("status-created-index", key("status", KeyKind::S), Some(key("created", KeyKind::N)))
            .index("digest-index", key("digest", KeyKind::B), None)
    };
    let same = || base("customer", KeyKind::S, KeyKind::N);
    let title = || key("title", KeyKind::S);
    for (why, wanted, expected) in [
        (
            "a key's type",
            table(base("customer", KeyKind::S, KeyKind::S).local_index("by_title", title()).ttl("ttl")),
            { vec![Kind::Keys] },
        ),
        ("a key's name", table(base("client", KeyKind::S, KeyKind::N).local_index("by_title", title()).ttl("ttl")), {
            vec![Kind::Keys, index("by_title")]
        }),
        ("an index too many", table(same().ttl("ttl")), vec![Kind::Superfluous("by_title".to_owned())]),
        ("an index that is missing", table(orders().index("more", title(), None)), vec![index("more")]),
        ("a global index for a local one", table(same().index("by_title", title(), None).ttl("ttl")), {
            vec![index("by_title")]
        }),
        ("an index's key", table(same().local_index("by_title", key("name", KeyKind::S)).ttl("ttl")), {
            vec![index("by_title")]
        }),
        ("no expiry", table(same().local_index("by_title", title())), vec![Kind::Expiry]),
        ("another expiry", table(orders().ttl("expires")), vec![Kind::Expiry]),
        ("no stream", changed(|extras| extras.stream = false), vec![Kind::Stream]),
        ("billing", changed(|extras| extras.billing = Billing::Provisioned { read: 1, write: 2 }), vec![Kind::Billing]),
        ("encryption", changed(|extras| extras.sse = true), vec![Kind::Unchecked("encryption")]),
        ("backups", changed(|extras| extras.pitr = true), vec![Kind::Unchecked("point-in-time recovery")]),
        ("tags", changed(|extras| extras.tags = vec![("app".into(), "x".into())]), vec![Kind::Unchecked("tags")]),
    ] {
        let found = differences(&store, wanted).await;
        assert_eq!(kinds(&found), expected, "{why}: {found:?}");
        for difference in found {
            let text = difference.to_string();
            assert!(text.contains("-orders: ") && !text.contains('?'), "{text}");
        }
    }
}

#[tokio::test]
async fn an_index_that_lacks_attributes_is_found() {
    let prefix = format!("{}-", unique());
    let key = |name: &str| KeySchemaElement::builder().attribute_name(name).key_type(KeyType::Hash).build().unwrap();
    let text = |name: &str| {
        let text = AttributeDefinition::builder().attribute_name(name).attribute_type(ScalarAttributeType::S);
        text.build().unwrap()
    };
    let keys_only = Projection::builder().projection_type(ProjectionType::KeysOnly).build();
    let index = GlobalSecondaryIndex::builder().index_name("by-b").key_schema(key("b")).projection(keys_only);
    let request = foreign().create_table().table_name(format!("{prefix}narrow")).key_schema(key("a"));
    let request = request.attribute_definitions(text("a")).attribute_definitions(text("b"));
    let request = request.global_secondary_indexes(index.build().unwrap());
    request.billing_mode(BillingMode::PayPerRequest).send().await.unwrap();

    let table = Table::new("narrow", "a", KeyKind::S).index("by-b", ("b".into(), KeyKind::S), None);
    let store = open(&options(endpoint(), &prefix), std::slice::from_ref(&table), &clock()).await;
    let found = differences(&store, Wanted::from(table)).await;
    assert_eq!(kinds(&found), [Kind::Projection("by-b".to_owned())]);
    assert!(found[0].to_string().contains("KEYS_ONLY, not ALL"), "{}", found[0]);
}

/// What DynamoDB Local does not have, as the service would answer.
// S002-74, S002-75
#[tokio::test]
async fn backups_tags_and_encryption_are_compared_where_they_are_told() {
    let prefix = format!("{}-", unique());
    let proxy = Proxy::start().await;
    let store = open(&options(proxy.endpoint.clone(), &prefix), &[orders()], &clock()).await;
    let wanted = Wanted {
        table: Table::new("kept", "a", KeyKind::S),
        extras: Extras {
            sse: true,
            pitr: true,
            tags: vec![("app".into(), "one".into()), ("stage".into(), "prod".into())],
            ..Extras::default()
        },
    };
    let created = tables::create(&store, std::slice::from_ref(&wanted)).await.unwrap();
    assert_eq!(created[0].left_out, ["point-in-time recovery is not offered here"]);

    let described = |sse: &str| {
        json!({"Table": {
            "TableName": format!("{prefix}kept"),
            "TableStatus": "ACTIVE",
            "TableArn": "arn:aws:dynamodb:eu-west-1:000000000000:table/kept",
            "AttributeDefinitions": [{"AttributeName": "a", "AttributeType": "S"}],
            "KeySchema": [{"AttributeName": "a", "KeyType": "HASH"}],
            "BillingModeSummary": {"BillingMode": "PAY_PER_REQUEST"},
            "SSEDescription": {"Status": sse},
        }})
    };
    let backups = |status: &str| {
        json!({"ContinuousBackupsDescription": {
            "ContinuousBackupsStatus": "ENABLED",
            "PointInTimeRecoveryDescription": {"PointInTimeRecoveryStatus": status},
        }})
    };
    let tag = |key: &str, value: &str| json!({"Key": key, "Value": value});
    proxy.answer_to("DescribeTable", described("DISABLED"));
    proxy.answer_to("DescribeContinuousBackups", backups("DISABLED"));
    proxy.answer_to("ListTagsOfResource", json!({"Tags": [tag("app", "two"), tag("extra", "x")]}));
    let found = kinds(&differences(&store, wanted.clone()).await);
    let tags = ["app", "stage"].map(|key| Kind::Tag(key.to_owned()));
    assert_eq!(found, [[Kind::Encryption, Kind::Backups], tags].concat());

    proxy.answer_to("DescribeTable", described("ENABLED"));
    proxy.answer_to("DescribeContinuousBackups", backups("ENABLED"));
    proxy.answer_to("ListTagsOfResource", json!({"Tags": [tag("app", "one"), tag("stage", "prod")]}));
    assert_eq!(differences(&store, wanted.clone()).await, []);
    let plain = Wanted::from(wanted.table);
    assert_eq!(kinds(&differences(&store, plain).await), [Kind::Encryption, Kind::Backups]);
}

#[test]
fn the_template_describes_the_whole_table() {
    let extras = Extras {
        sse: true,
        pitr: true,
        stream: true,
        tags: vec![("app".into(), "notificationcenter".into())],
        billing: Billing::OnDemand,
    };
    let template = tables::cloudformation(&[Wanted { table: orders(), extras }], "eu-");
    let hash = |name: &str| json!({"AttributeName": name, "KeyType": "HASH"});
    let range = |name: &str| json!({"AttributeName": name, "KeyType": "RANGE"});
    let typed = |name: &str, kind: &str| json!({"AttributeName": name, "AttributeType": kind});
    let all = json!({"ProjectionType": "ALL"});
    let expected = json!({
        "Type": "AWS::DynamoDB::Table",
        "DeletionPolicy": "Retain",
        "UpdateReplacePolicy": "Retain",
        "Properties": {
            "TableName": "eu-orders",
            "BillingMode": "PAY_PER_REQUEST",
            "AttributeDefinitions": [
                typed("created", "N"), typed("customer", "S"), typed("digest", "B"), typed("number", "N"),
                typed("status", "S"), typed("title", "S"),
            ],
            "KeySchema": [hash("customer"), range("number")],
            "GlobalSecondaryIndexes": [
                {"IndexName": "status-created-index", "KeySchema": [hash("status"), range("created")], "Projection": all},
                {"IndexName": "digest-index", "KeySchema": [hash("digest")], "Projection": all},
            ],
            "LocalSecondaryIndexes": [
                {"IndexName": "by_title", "KeySchema": [hash("customer"), range("title")], "Projection": all},
            ],
            "TimeToLiveSpecification": {"AttributeName": "ttl", "Enabled": true},
            "SSESpecification": {"SSEEnabled": true},
            "PointInTimeRecoverySpecification": {"PointInTimeRecoveryEnabled": true},
            "StreamSpecification": {"StreamViewType": "NEW_AND_OLD_IMAGES"},
            "Tags": [{"Key": "app", "Value": "notificationcenter"}],
        },
    });
    assert_eq!(template["Resources"]["Orders"], expected);

    // What is not wanted is not mentioned.
    let plain = Wanted::from(Table::new("rez-agent-messages-dev", "id", KeyKind::S));
    let template = tables::cloudformation(&[plain], "");
    let properties = template["Resources"]["RezAgentMessagesDev"]["Properties"].as_object().unwrap();
    let names: Vec<_> = properties.keys().map(String::as_str).collect();
    assert_eq!(names, ["AttributeDefinitions", "BillingMode", "KeySchema", "TableName"]);
}

#[tokio::test]
async fn provisioned_tables_are_created_and_described() {
    let store = store().await;
    let wanted = changed(|extras| extras.billing = Billing::Provisioned { read: 3, write: 2 });
    tables::create(&store, std::slice::from_ref(&wanted)).await.unwrap();
    assert_eq!(differences(&store, wanted.clone()).await, []);
    let template = tables::cloudformation(&[wanted], "");
    let properties = &template["Resources"]["Orders"]["Properties"];
    let units = json!({"ReadCapacityUnits": 3, "WriteCapacityUnits": 2});
    assert_eq!(properties["ProvisionedThroughput"], units);
    assert_eq!(properties["GlobalSecondaryIndexes"][0]["ProvisionedThroughput"], units);
    assert_eq!(properties["LocalSecondaryIndexes"][0].get("ProvisionedThroughput"), None);
}
