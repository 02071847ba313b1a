//! The list of authorised accounts from AWS Systems Manager: one signed call, now and then (S000-52, S000-53).

use serde::Deserialize;
use serde_json::{Value, json};
use tidings_core::time::Timestamp;

use super::accounts::{self, Origin};
use crate::app::Services;
use crate::aws::{Credentials, Refusal, Service};
use crate::config::process_alerts::ProcessAlerts;
use crate::outbound::{Outbound, Request};

const TARGET: &str = "AmazonSSM.GetParameter";
const MEDIA_TYPE: &str = "application/x-amz-json-1.1";

/// A parameter that holds the list.
pub struct Parameter {
    name: String,
    outbound: Outbound,
    service: Service,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Answer {
    parameter: Content,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Content {
    value: String,
    #[serde(default)]
    r#type: String,
}

impl Parameter {
    /// The configured parameter, if there is one. `variable` reads the environment, as every AWS tool does.
    ///
    /// # Errors
    ///
    /// What is missing, as a sentence.
    pub fn configured(
        settings: &ProcessAlerts,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Option<Self>, String> {
        let Some(name) = settings.ssm_parameter.clone() else { return Ok(None) };
        let given = |name: &str| variable(name).filter(|value| !value.is_empty());
        let region = settings.region.clone().or_else(|| given("AWS_REGION")).or_else(|| given("AWS_DEFAULT_REGION"));
        let region = region.ok_or("`process_alerts.ssm_parameter` needs `process_alerts.region` or AWS_REGION")?;
        let credentials = Credentials::from_variables(given)
            .ok_or("`process_alerts.ssm_parameter` needs AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")?;
        let outbound = Outbound::trusted().map_err(|error| error.to_string())?;
        let endpoint = settings.endpoint.clone().unwrap_or_else(|| format!("https://ssm.{region}.amazonaws.com"));
        let url = format!("{}/", endpoint.trim_end_matches('/'));
        let service = Service::new(&outbound, &url, ("ssm", region), credentials)
            .map_err(|error| format!("`process_alerts.endpoint`: {error}"))?;
        Ok(Some(Self { name, outbound, service }))
    }

    /// What the parameter holds; `None` if there is no such parameter, which excludes nobody (S000-54).
    ///
    /// # Errors
    ///
    /// Why that is not known, as a sentence without secrets.
    pub async fn fetch(&self, now: Timestamp) -> Result<Option<Vec<String>>, String> {
        let response = self.outbound.send(self.request(now)).await.map_err(|error| error.to_string())?;
        if response.status != 200 {
            let refusal: Refusal = serde_json::from_slice(&response.body).unwrap_or_default();
            if refusal.kind.ends_with("ParameterNotFound") {
                return Ok(None);
            }
            let why = crate::channel::quote(
                &format!("{} {}", refusal.kind, refusal.message),
                &self.service.credentials.secrets(),
            );
            return Err(format!("Systems Manager answered {}: {why}", response.status));
        }
        let answer: Answer =
            serde_json::from_slice(&response.body).map_err(|_| "Systems Manager's answer cannot be read".to_owned())?;
        let Content { value, r#type } = answer.parameter;
        let list = match serde_json::from_str::<Value>(&value) {
            Ok(list) => list,
            Err(_) if r#type == "StringList" => value.split(',').map(str::trim).collect(),
            Err(_) => return Err(format!("{} holds no JSON array", self.name)),
        };
        let list = accounts::read(&list).map_err(|errors| {
            let named: Vec<_> = errors.iter().map(|e| format!("{} {}", e.field, e.message)).collect();
            format!("{} is not as it should be: {}", self.name, named.join("; "))
        })?;
        Ok(Some(list))
    }

    fn request(&self, now: Timestamp) -> Request {
        let body = json!({ "Name": self.name, "WithDecryption": true }).to_string();
        self.service.post(MEDIA_TYPE, Some(TARGET), body, now)
    }
}

impl Services {
    /// Reads the parameter and takes over what is new in it. What cannot be read leaves the list as it is.
    pub async fn refresh_authorized_accounts(&self, parameter: &Parameter) -> Result<bool, String> {
        let now = self.clock.now();
        let list = parameter.fetch(now).await?;
        let correlation = self.ids.uuid(now).to_string();
        let offered = self.alerts.accounts.offer(&self.audit, Origin::Parameter, list, &correlation).await;
        offered.map_err(|error| error.to_string())
    }
}

impl Services {
    /// Starts reading the parameter now and then, if one is configured.
    pub(crate) fn start_parameter_refresh(&self) {
        let settings = &self.config.process_alerts;
        let parameter = match Parameter::configured(settings, |name| std::env::var(name).ok()) {
            Ok(Some(parameter)) => std::sync::Arc::new(parameter),
            Ok(None) => return,
            Err(error) => return tracing::error!(error, "the authorised accounts stay as they are"),
        };
        let (services, every) = (self.clone(), std::time::Duration::from_secs(settings.refresh_seconds));
        self.workers.spawn("authorized-accounts", every, move || {
            let (services, parameter) = (services.clone(), std::sync::Arc::clone(&parameter));
            async move { services.refresh_authorized_accounts(&parameter).await.map(drop) }
        });
    }
}
