//! The guard before every connection to an address that a stranger named.
//!
//! It judges the addresses a name resolves to, and hands on only those that passed: what is connected to is what was
//! judged, so a name that answers differently the second time gains nothing.

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use async_trait::async_trait;
use reqwest::Url;

use super::address::is_forbidden;
use crate::config::outbound::Allowed;

/// Where names become addresses. A trait, so that tests can let a name change its mind.
#[async_trait]
pub trait Resolver: Send + Sync + 'static {
    async fn lookup(&self, host: &str) -> io::Result<Vec<IpAddr>>;
}

/// The operating system's resolver.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemResolver;

#[async_trait]
impl Resolver for SystemResolver {
    async fn lookup(&self, host: &str) -> io::Result<Vec<IpAddr>> {
        Ok(tokio::net::lookup_host((host, 0)).await?.map(|address| address.ip()).collect())
    }
}

/// Marks a refusal in the chain of causes that comes back through the HTTP client.
#[derive(Debug)]
pub(super) struct Forbidden;

impl fmt::Display for Forbidden {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("the address is private, local or reserved")
    }
}

impl std::error::Error for Forbidden {}

#[derive(Clone)]
pub(super) struct Guard {
    allow: Arc<[Allowed]>,
    resolver: Arc<dyn Resolver>,
}

impl Guard {
    pub(super) fn new(allow: Vec<Allowed>, resolver: Arc<dyn Resolver>) -> Self {
        Self { allow: allow.into(), resolver }
    }

    /// An address in the URL itself is never looked up, so it is judged here. Names pass, and are judged on connecting.
    pub(super) fn check_literal(&self, url: &Url) -> Result<(), Forbidden> {
        // The parser has turned decimal, hexadecimal and octal forms into dotted quads by now.
        let host = url.host_str().unwrap_or_default();
        match host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>() {
            Ok(ip) if !self.permits(ip) => Err(Forbidden),
            _ => Ok(()),
        }
    }

    /// The addresses of a name that may be connected to.
    pub(super) async fn addresses(&self, host: &str) -> Result<Vec<IpAddr>, Box<dyn std::error::Error + Send + Sync>> {
        let all = self.resolver.lookup(host).await?;
        if self.allow.iter().any(|allowed| allowed.permits_host(host)) {
            return Ok(all);
        }
        let none_found = all.is_empty();
        let permitted: Vec<_> = all.into_iter().filter(|ip| self.permits(*ip)).collect();
        if permitted.is_empty() && !none_found { Err(Box::new(Forbidden)) } else { Ok(permitted) }
    }

    fn permits(&self, ip: IpAddr) -> bool {
        !is_forbidden(ip) || self.allow.iter().any(|allowed| allowed.permits_address(ip))
    }
}
