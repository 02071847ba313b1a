//! The tables on DynamoDB: the seeds' four as the seeds have them.

use serde_json::{Value, json};
use tidings::config::{Config, Stage};
use tidings::engine;
use tidings_dynamodb::tables::cloudformation;

use crate::support::process::tidings;

fn hash(name: &str) -> Value {
    json!({ "AttributeName": name, "KeyType": "HASH" })
}

fn keys(partition: &str, sort: &str) -> Value {
    json!([hash(partition), { "AttributeName": sort, "KeyType": "RANGE" }])
}

/// A table's properties in the template of a stage, without what is the same for all.
fn properties(stage: Stage, name: &str) -> Value {
    let template = cloudformation(&engine::tables::wanted(stage), "");
    let resources = template["Resources"].as_object().unwrap();
    let found = resources.values().find(|resource| resource["Properties"]["TableName"] == name);
    let found = &found.unwrap_or_else(|| panic!("there is no table {name}"))["Properties"];
    // S002-76, S004-04: paid by request.
    assert_eq!(found["BillingMode"], "PAY_PER_REQUEST", "{name}");
    found.clone()
}

fn index(properties: &Value, kind: &str, name: &str) -> Value {
    let all = properties[kind].as_array().unwrap();
    let found = all.iter().find(|index| index["IndexName"] == name).unwrap_or_else(|| panic!("no index {name}"));
    assert_eq!(found["Projection"], json!({ "ProjectionType": "ALL" }), "{name}");
    found["KeySchema"].clone()
}

const GLOBAL: &str = "GlobalSecondaryIndexes";
const LOCAL: &str = "LocalSecondaryIndexes";

#[test]
fn the_seeds_tables_are_as_the_seeds_have_them() {
    let typed = |properties: &Value, name: &str| {
        let all = properties["AttributeDefinitions"].as_array().unwrap();
        all.iter().find(|one| one["AttributeName"] == name).unwrap()["AttributeType"].as_str().unwrap().to_owned()
    };
    // S000-01, S000-29, S000-31, S000-34
    let alerts = properties(Stage::Dev, "ProcessChangeAlerts");
    assert_eq!(alerts["KeySchema"], keys("PartitionKey", "SortKey"));
    assert_eq!(index(&alerts, GLOBAL, "EventTimestamp-index"), keys("PartitionKey", "EventTimestamp"));
    assert_eq!(typed(&alerts, "EventTimestamp"), "N");
    assert_eq!(alerts["TimeToLiveSpecification"], json!({ "AttributeName": "TTL", "Enabled": true }));

    // S001-66, S001-70
    let centre = properties(Stage::Dev, "tbff2022_notification_centro");
    assert_eq!(centre["KeySchema"], keys("cod_chav_patc", "cod_ordenar_chav"));
    assert_eq!(index(&centre, LOCAL, "xxnc_2022"), keys("cod_chav_patc", "status_ordenar"));
    assert_eq!(index(&centre, LOCAL, "xxnc_2022_v1"), keys("cod_chav_patc", "tipo_ordenar"));
    assert_eq!(centre["SSESpecification"], json!({ "SSEEnabled": true }));
    assert_eq!(centre["Tags"], json!([{ "Key": "app", "Value": "notificationcenter" }]));

    // S002-01, S002-19, S002-24, S002-28, S002-29, S002-71, S002-74, S002-75: a table for each stage.
    for (stage, name, restorable) in
        [(Stage::Dev, "dev", false), (Stage::Stage, "stage", true), (Stage::Prod, "prod", true)]
    {
        let messages = properties(stage, &format!("rez-agent-messages-{name}"));
        assert_eq!(messages["KeySchema"], json!([hash("message_id")]));
        for of in ["stage", "status", "message_type"] {
            assert_eq!(index(&messages, GLOBAL, &format!("{of}-created_date-index")), keys(of, "created_date"));
        }
        assert_eq!(messages["TimeToLiveSpecification"], json!({ "AttributeName": "ttl", "Enabled": true }));
        let pitr = messages.pointer("/PointInTimeRecoverySpecification/PointInTimeRecoveryEnabled");
        assert_eq!(pitr.is_some_and(|on| on == true), restorable, "{name}");
        assert_eq!(messages["SSESpecification"], json!({ "SSEEnabled": true }));
    }

    // S004-02, S004-03, S004-06, S004-16, S004-41
    let tickets = properties(Stage::Dev, "poc-itsm-tickets");
    assert_eq!(tickets["KeySchema"], json!([hash("ticket_id")]));
    assert_eq!(index(&tickets, GLOBAL, "CallerIdIndex"), keys("caller_id", "created_at"));
    let tags = json!([{ "Key": "Environment", "Value": "PoC" }, { "Key": "Project", "Value": "AI-L1-Support" }]);
    assert_eq!(tickets["Tags"], tags);
}

// S002-73: DynamoDB removes what has expired without asking; nobody is left to believe that it was kept.
#[test]
fn an_archive_is_refused_where_the_tables_expire_by_themselves() {
    let text = |engine: &str| format!("store.engine = \"{engine}\"\nretention.archive = [\"messages\"]\n");
    Config::parse(&text("embedded"), std::iter::empty()).unwrap();
    let problems = Config::parse(&text("dynamodb"), std::iter::empty()).unwrap_err();
    let problem = problems.iter().next().unwrap();
    assert_eq!((problem.key.as_str(), problem.line), ("retention.archive", Some(2)), "{problems}");
}

// One sentence that says where and what to do, without the insides of a library.
#[test]
fn a_dynamodb_that_is_not_there_is_named_in_one_sentence() {
    let directory = tempfile::tempdir().unwrap();
    // Nobody listens there: it was free a moment ago.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for command in [&["tables", "check"][..], &["serve", "--listen", "127.0.0.1:0"]] {
        let mut tried = tidings(directory.path(), command);
        tried
            .env("TIDINGS__STORE__ENGINE", "dynamodb")
            .env("TIDINGS__STORE__REGION", "eu-west-1")
            .env("TIDINGS__STORE__ENDPOINT", format!("http://{free}"));
        let ended = tried.output().unwrap();
        let said = String::from_utf8(ended.stderr).unwrap();
        let sentence: Vec<&str> = said.lines().filter(|line| line.starts_with("tidings: ")).collect();
        assert_eq!((ended.status.code(), sentence.len()), (Some(1), 1), "{said}");
        assert!(sentence[0].contains(&format!("DynamoDB at http://{free}")), "{said}");
        assert!(sentence[0].contains("store.endpoint") && sentence[0].contains("onnection refused"), "{said}");
        assert!(!said.contains("DispatchFailure") && sentence[0].len() < 400, "{said}");
    }
}
