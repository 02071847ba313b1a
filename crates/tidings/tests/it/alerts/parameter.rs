//! The list of authorised accounts from AWS Systems Manager, by a stand-in for it.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tidings::alerts::parameter::Parameter;
use tidings::config::process_alerts::ProcessAlerts;

use super::server;
use crate::channels::http_server::{Reply, Server};

const NAME: &str = "/ado-process-alert/authorized-service-accounts";

fn answer(status: u16, body: &Value) -> Reply {
    Reply::Answer {
        status,
        headers: vec![("content-type", "application/x-amz-json-1.1".to_owned())],
        body: body.to_string(),
    }
}

fn parameter(kind: &str, value: &str) -> Reply {
    let content = json!({ "Name": NAME, "Type": kind, "Value": value, "Version": 1, "DataType": "text" });
    answer(200, &json!({ "Parameter": content }))
}

/// A stand-in that answers what the test wants.
struct Systems {
    server: Server,
    reply: Arc<Mutex<Reply>>,
}

impl Systems {
    async fn start() -> Self {
        let reply = Arc::new(Mutex::new(answer(400, &json!({ "__type": "ParameterNotFound" }))));
        let told = Arc::clone(&reply);
        Self { server: Server::start(move |_| told.lock().unwrap().clone()).await, reply }
    }

    fn says(&self, reply: Reply) {
        *self.reply.lock().unwrap() = reply;
    }

    fn parameter(&self) -> Parameter {
        let settings = ProcessAlerts {
            ssm_parameter: Some(NAME.to_owned()),
            endpoint: Some(self.server.url("")),
            ..ProcessAlerts::default()
        };
        let variable = |name: &str| match name {
            "AWS_ACCESS_KEY_ID" => Some("AKIDEXAMPLE".to_owned()),
            "AWS_SECRET_ACCESS_KEY" => Some("hush-hush".to_owned()),
            "AWS_SESSION_TOKEN" => Some("session".to_owned()),
            "AWS_REGION" => Some("eu-central-1".to_owned()),
            _ => None,
        };
        Parameter::configured(&settings, variable).unwrap().unwrap()
    }
}

// S000-52 to S000-54
#[tokio::test]
async fn the_parameter_is_read_and_taken_over_when_it_changes() {
    let systems = Systems::start().await;
    let parameter_ = systems.parameter();
    let server = server().await;
    let client = server.client();
    let refresh = || server.services.refresh_authorized_accounts(&parameter_);
    assert_eq!(refresh().await, Ok(false), "no such parameter: nobody is excluded");
    client.get("/authorized-accounts").await.problem(404);
    systems.says(parameter("SecureString", r#"["svc-cicd@organization.com","aad|12345-67890-abcdef"]"#));
    assert_eq!(refresh().await, Ok(true));
    assert_eq!(refresh().await, Ok(false), "nothing new");
    let list = client.get("/authorized-accounts").await.expect(200).json();
    assert_eq!(list, json!(["svc-cicd@organization.com", "aad|12345-67890-abcdef"]));
    let log = client.get("/audit-log?action=authorized-accounts.set").await.json();
    assert_eq!((&log["items"][0]["user"], log["items"].as_array().unwrap().len()), (&json!("parameter"), 1));
    systems.says(parameter("StringList", "a@b.c, d@e.f"));
    assert_eq!(refresh().await, Ok(true));
    assert_eq!(client.get("/authorized-accounts").await.json(), json!(["a@b.c", "d@e.f"]));
    // The call is signed, for the parameter's own service and region.
    let asked = systems.server.asked().remove(0);
    assert_eq!(asked.headers["x-amz-target"], "AmazonSSM.GetParameter");
    assert_eq!(asked.headers["content-type"], "application/x-amz-json-1.1");
    assert_eq!(asked.headers["x-amz-date"], "20260301T120000Z");
    assert_eq!(asked.headers["x-amz-security-token"], "session");
    let authorization = &asked.headers["authorization"];
    assert!(authorization.contains("Credential=AKIDEXAMPLE/20260301/eu-central-1/ssm/aws4_request"), "{authorization}");
    let signed = "SignedHeaders=content-type;host;x-amz-date;x-amz-security-token;x-amz-target";
    assert!(authorization.contains(signed), "{authorization}");
    let body: Value = serde_json::from_slice(&asked.body).unwrap();
    assert_eq!(body, json!({ "Name": NAME, "WithDecryption": true }));
}

// What cannot be read, or is no list, leaves the list as it is.
#[tokio::test]
async fn a_bad_answer_changes_nothing() {
    let systems = Systems::start().await;
    let parameter_ = systems.parameter();
    let server = server().await;
    let client = server.client();
    systems.says(parameter("String", r#"["a@b.c"]"#));
    server.services.refresh_authorized_accounts(&parameter_).await.unwrap();
    let many = json!((0..101).map(|n| format!("a{n}@b.c")).collect::<Vec<_>>()).to_string();
    for reply in [
        parameter("String", "[]"),
        parameter("String", "not JSON"),
        parameter("String", r#"{"accounts":[]}"#),
        parameter("String", r#"["a", ""]"#),
        parameter("String", &many),
        answer(400, &json!({ "__type": "AccessDeniedException", "message": "no hush-hush for you" })),
        answer(500, &json!({})),
        answer(200, &json!({ "odd": true })),
        Reply::Drop,
    ] {
        systems.says(reply);
        let why = server.services.refresh_authorized_accounts(&parameter_).await.unwrap_err();
        assert!(!why.contains("hush-hush"), "{why}");
        assert_eq!(client.get("/authorized-accounts").await.json(), json!(["a@b.c"]));
    }
}

#[test]
fn what_is_missing_is_named() {
    let settings = ProcessAlerts { ssm_parameter: Some(NAME.to_owned()), ..ProcessAlerts::default() };
    let why = |region: Option<&str>| {
        let settings = ProcessAlerts { region: region.map(ToOwned::to_owned), ..settings.clone() };
        Parameter::configured(&settings, |_| None).err().unwrap()
    };
    assert!(why(None).contains("process_alerts.region"));
    assert!(why(Some("us-east-1")).contains("AWS_ACCESS_KEY_ID"));
    assert!(Parameter::configured(&ProcessAlerts::default(), |_| None).unwrap().is_none());
}
