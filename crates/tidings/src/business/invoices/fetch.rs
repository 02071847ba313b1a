//! Files from elsewhere: by https, through the one client that refuses private addresses, within size and time.

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use axum::http::{HeaderMap, Method, header};
use bytes::Bytes;
use tempfile::TempPath;

use super::ocr::Failure;
use crate::config::Config;
use crate::outbound::{Outbound, Request, SystemResolver, Timeouts};

/// Steps from one address to the next at the most.
const REDIRECTS: usize = 3;

pub struct Fetcher {
    outbound: Outbound,
    most: usize,
}

impl Fetcher {
    /// # Errors
    ///
    /// A sentence, if TLS cannot be set up.
    pub fn new(config: &Config) -> Result<Self, String> {
        let timeouts = Timeouts { total: Duration::from_secs(120), ..Timeouts::default() };
        let outbound = Outbound::guarded_with(&config.outbound, Arc::new(SystemResolver), timeouts);
        let most = usize::try_from(config.limits.upload_bytes).unwrap_or(usize::MAX);
        Ok(Self { outbound: outbound.map_err(|error| error.to_string())?, most })
    }

    /// The file at that address.
    pub async fn fetch(&self, url: &str, limit: Duration) -> Result<TempPath, Failure> {
        let late = |_| Err(Failure::Here("fetching the file took longer than allowed".to_owned()));
        tokio::time::timeout(limit, self.follow(url)).await.unwrap_or_else(late)
    }

    async fn follow(&self, url: &str) -> Result<TempPath, Failure> {
        let mut url = url.to_owned();
        for _ in 0..=REDIRECTS {
            let target = self.outbound.check(&url).map_err(|error| Failure::File(error.to_string()))?;
            if target.scheme() != "https" {
                return Err(Failure::File("the file's address leads away from https".to_owned()));
            }
            let request =
                Request { method: Method::GET, url: target.clone(), headers: HeaderMap::new(), body: Bytes::new() };
            // One byte more than allowed tells "too large" from "just fits".
            let answer = self.outbound.send_up_to(request, self.most.saturating_add(1)).await.map_err(|error| {
                if error.is_permanent() { Failure::File(error.to_string()) } else { Failure::Here(error.to_string()) }
            })?;
            match answer.status {
                200 if answer.body.len() > self.most => {
                    return Err(Failure::File(format!("the file is larger than {} bytes", self.most)));
                }
                200 => return keep(&answer.body),
                301 | 302 | 303 | 307 | 308 => {
                    let location = answer.headers.get(header::LOCATION).and_then(|value| value.to_str().ok());
                    let next = location.and_then(|location| target.join(location).ok());
                    url = next.ok_or_else(|| Failure::File("the file's address leads nowhere".to_owned()))?.into();
                }
                status @ (408 | 425 | 429 | 500..=599) => {
                    return Err(Failure::Here(format!("the file's server answered {status}")));
                }
                status => return Err(Failure::File(format!("the file's server answered {status}"))),
            }
        }
        Err(Failure::File(format!("the file's address leads on more than {REDIRECTS} times")))
    }
}

fn keep(bytes: &[u8]) -> Result<TempPath, Failure> {
    let kept = tempfile::NamedTempFile::new().and_then(|mut file| file.write_all(bytes).map(|()| file));
    kept.map(tempfile::NamedTempFile::into_temp_path)
        .map_err(|error| Failure::Here(format!("there is no place for the file: {error}")))
}
