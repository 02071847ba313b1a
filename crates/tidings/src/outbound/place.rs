//! Where requests go: what follows from an address, worked out once for all that are sent there.

use http::header::HeaderValue;
use http::uri::{InvalidUri, Uri};
use reqwest::Url;

use super::{Error, origin};

/// An address that was judged, and what a request to it says of it.
#[derive(Clone)]
pub struct Place {
    url: Url,
    origin: String,
    /// Path and query.
    target: Uri,
    host: HeaderValue,
}

impl Place {
    pub(super) fn new(url: Url) -> Result<Self, Error> {
        let origin = origin(&url);
        let broken = |why: String| Error::Broken { origin: origin.clone(), why };
        let target = target(&url).map_err(|why| broken(why.to_string()))?;
        let host = origin.split_once("://").map_or(&*origin, |(_, host)| host);
        let host = HeaderValue::from_str(host).map_err(|why| broken(why.to_string()))?;
        Ok(Self { url, origin, target, host })
    }

    #[must_use]
    pub const fn url(&self) -> &Url {
        &self.url
    }

    /// `https://host:port`: all that may be shown of it.
    #[must_use]
    pub fn origin(&self) -> &str {
        &self.origin
    }

    pub(super) const fn target(&self) -> &Uri {
        &self.target
    }

    pub(super) const fn host(&self) -> &HeaderValue {
        &self.host
    }
}

fn target(url: &Url) -> Result<Uri, InvalidUri> {
    match url.query() {
        Some(query) => Uri::try_from(format!("{}?{query}", url.path())),
        None => Uri::try_from(url.path()),
    }
}
