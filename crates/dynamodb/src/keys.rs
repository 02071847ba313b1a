//! The keys that the SDK finds, for calls that are signed without it.

use std::error::Error as _;
use std::time::{Duration, UNIX_EPOCH};

use aws_config::SdkConfig;
use aws_sdk_dynamodb::config::ProvideCredentials;

use crate::options::Options;

/// Who asks, for the time being: the keys of a role are others every few hours.
#[derive(Clone)]
pub struct Keys {
    pub access: String,
    pub secret: String,
    pub token: Option<String>,
    /// Until then they are good, since 1970; absent: until further notice.
    pub expires: Option<Duration>,
}

/// Where keys come from: what [`Options`] says, else what every AWS tool looks at.
#[derive(Debug)]
pub struct KeyChain(SdkConfig);

impl KeyChain {
    pub async fn load(options: &Options) -> Self {
        Self(options.shared().await)
    }

    /// The region, as the options or the environment say.
    #[must_use]
    pub fn region(&self) -> Option<String> {
        self.0.region().map(ToString::to_string)
    }

    /// Keys that are good now.
    ///
    /// # Errors
    ///
    /// If there are none to be found: why, as a sentence.
    pub async fn keys(&self) -> Result<Keys, String> {
        let provider = self.0.credentials_provider().ok_or("no AWS credentials are known")?;
        let keys = provider.provide_credentials().await.map_err(|error| {
            let mut why = format!("no AWS credentials are to be had: {error}");
            let mut source = error.source();
            while let Some(inner) = source {
                why = format!("{why}: {inner}");
                source = inner.source();
            }
            why
        })?;
        let expires = keys.expiry().map(|at| at.duration_since(UNIX_EPOCH).unwrap_or_default());
        Ok(Keys {
            access: keys.access_key_id().to_owned(),
            secret: keys.secret_access_key().to_owned(),
            token: keys.session_token().map(ToOwned::to_owned),
            expires,
        })
    }
}
