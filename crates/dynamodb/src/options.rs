//! How to reach DynamoDB: the region, the endpoint, who we are, and the one HTTP client.

use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::retry::RetryConfig;
use aws_sdk_dynamodb::config::timeout::TimeoutConfig;
use aws_sdk_dynamodb::config::{Credentials, SharedHttpClient, StalledStreamProtectionConfig};
use aws_smithy_http_client::Builder;
use aws_smithy_http_client::tls::{Provider, rustls_provider::CryptoMode};
use tidings_store::Error;

use crate::retry::Policy;

/// What [`crate::Dynamo::open`] needs to know.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// The region; without one, what the environment or the profile says.
    pub region: Option<String>,
    /// An address to use in place of the region's own: DynamoDB Local, or another store that speaks DynamoDB.
    pub endpoint: Option<String>,
    /// Stands in front of every table's name.
    pub table_prefix: String,
    pub identity: Identity,
    pub retry: Policy,
}

/// Who asks.
#[derive(Clone, Default)]
pub enum Identity {
    /// The first that is there: environment variables, the shared profile, a web identity token, the
    /// container's and the machine's own roles.
    #[default]
    Standard,
    /// These keys.
    Keys { access: String, secret: String },
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Standard => f.write_str("Standard"),
            // Never the secret.
            Self::Keys { access, .. } => write!(f, "Keys({access})"),
        }
    }
}

impl Options {
    /// A client with our own retries in place of the SDK's.
    pub(crate) async fn client(&self) -> Result<Client, Error> {
        let shared = self.shared().await;
        if shared.region().is_none() {
            let why = "no AWS region is known; set it in the configuration or in AWS_REGION";
            return Err(Error::Open(why.to_owned()));
        }
        let timeouts = TimeoutConfig::builder()
            .connect_timeout(self.retry.attempt_timeout)
            .operation_attempt_timeout(self.retry.attempt_timeout)
            .build();
        let mut config = aws_sdk_dynamodb::config::Builder::from(&shared)
            .retry_config(RetryConfig::disabled())
            .timeout_config(timeouts)
            .stalled_stream_protection(StalledStreamProtectionConfig::disabled())
            .http_client(self.http_client());
        if let Some(endpoint) = &self.endpoint {
            config = config.endpoint_url(endpoint);
        }
        Ok(Client::from_conf(config.build()))
    }

    pub(crate) async fn shared(&self) -> SdkConfig {
        let region = self.region.clone().map(Region::new);
        match &self.identity {
            // Asks nobody, and loads neither certificates nor profiles.
            Identity::Keys { access, secret } if region.is_some() => {
                let keys = Credentials::new(access, secret, None, None, "configuration");
                let keys = aws_sdk_dynamodb::config::SharedCredentialsProvider::new(keys);
                SdkConfig::builder()
                    .behavior_version(BehaviorVersion::latest())
                    .region(region)
                    .credentials_provider(keys)
                    .build()
            }
            identity => {
                let mut loader = aws_config::defaults(BehaviorVersion::latest()).http_client(https());
                if let Some(region) = region {
                    loader = loader.region(region);
                }
                if let Identity::Keys { access, secret } = identity {
                    loader = loader.credentials_provider(Credentials::new(access, secret, None, None, "configuration"));
                }
                Box::pin(loader.load()).await
            }
        }
    }

    fn http_client(&self) -> SharedHttpClient {
        let plain = self.endpoint.as_ref().is_some_and(|endpoint| endpoint.starts_with("http://"));
        if plain { Builder::new().build_http() } else { https() }
    }
}

fn https() -> SharedHttpClient {
    Builder::new().tls_provider(Provider::Rustls(CryptoMode::Ring)).build_https()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_not_shown() {
        let keys = Identity::Keys { access: "AKIA1".to_owned(), secret: "hush".to_owned() };
        let shown = format!("{:?}", Options { identity: keys, ..Options::default() });
        assert!(shown.contains("AKIA1") && !shown.contains("hush"), "{shown}");
    }
}
