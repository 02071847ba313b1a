//! `[outbound]`: which private addresses may be reached by webhooks that were named through the API.

use std::net::IpAddr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::check::Check;
use super::problem::quote;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Outbound {
    /// Addresses, networks and host names: `127.0.0.1`, `10.1.0.0/16`, `hooks.internal`.
    pub allow: Vec<String>,
}

impl Outbound {
    /// The list, ready to ask. A valid configuration loses no entry.
    #[must_use]
    pub fn allowed(&self) -> Vec<Allowed> {
        self.allow.iter().filter_map(|entry| entry.parse().ok()).collect()
    }

    pub(super) fn check(&self, check: &mut Check<'_>) {
        let mut allow = check.key("allow");
        for (index, entry) in self.allow.iter().enumerate() {
            if let Err(why) = entry.parse::<Allowed>() {
                allow.item(index).problem(why);
            }
        }
    }
}

/// One entry of `outbound.allow`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Allowed {
    Network { address: IpAddr, prefix: u8 },
    Host(String),
}

impl Allowed {
    #[must_use]
    pub fn permits_address(&self, ip: IpAddr) -> bool {
        match self {
            Self::Network { address, prefix } => in_network(ip, *address, *prefix),
            Self::Host(_) => false,
        }
    }

    #[must_use]
    pub fn permits_host(&self, host: &str) -> bool {
        match self {
            Self::Network { .. } => false,
            Self::Host(name) => name.eq_ignore_ascii_case(host.trim_end_matches('.')),
        }
    }
}

/// `::ffff:10.0.0.1` is 10.0.0.1 in disguise, and counts as such.
fn in_network(ip: IpAddr, network: IpAddr, prefix: u8) -> bool {
    match (ip.to_canonical(), network) {
        (IpAddr::V4(ip), IpAddr::V4(network)) => {
            let shift = 32 - u32::from(prefix.min(32));
            (ip.to_bits() ^ network.to_bits()).checked_shr(shift).unwrap_or(0) == 0
        }
        (IpAddr::V6(ip), IpAddr::V6(network)) => {
            let shift = 128 - u32::from(prefix.min(128));
            (ip.to_bits() ^ network.to_bits()).checked_shr(shift).unwrap_or(0) == 0
        }
        _ => false,
    }
}

impl FromStr for Allowed {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("must be an address, a network like 10.1.0.0/16 or a host name, not {}", quote(text));
        if let Ok(address) = text.parse::<IpAddr>() {
            let address = address.to_canonical();
            return Ok(Self::Network { address, prefix: if address.is_ipv4() { 32 } else { 128 } });
        }
        if let Some((address, prefix)) = text.split_once('/') {
            let address: IpAddr = address.parse().map_err(|_| wrong())?;
            let longest = if address.is_ipv4() { 32 } else { 128 };
            let prefix: u8 = prefix.parse().ok().filter(|prefix| *prefix <= longest).ok_or_else(wrong)?;
            let plain = address.to_canonical();
            if plain.is_ipv4() == address.is_ipv4() {
                return Ok(Self::Network { address, prefix });
            }
            // An IPv4 network written as IPv6: of its 128 bits, the last 32 are its own.
            return match prefix.checked_sub(96) {
                Some(prefix) => Ok(Self::Network { address: plain, prefix }),
                None => Err(format!("must have a prefix from 96 to 128 in {}, or be an IPv4 network", quote(text))),
            };
        }
        let label = |label: &str| {
            !label.is_empty()
                && label.len() <= 63
                && label.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'))
        };
        // A name's last label is never all digits; this catches mistyped addresses such as 10.1.0.
        let numeric_end = text.rsplit('.').next().is_some_and(|last| last.chars().all(|c| c.is_ascii_digit()));
        if text.len() <= 253 && text.split('.').all(label) && !numeric_end {
            Ok(Self::Host(text.to_owned()))
        } else {
            Err(wrong())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn permits(entry: &str, ip: &str) -> bool {
        entry.parse::<Allowed>().unwrap().permits_address(ip.parse().unwrap())
    }

    #[test]
    fn networks_end_where_their_prefix_says() {
        assert!(permits("10.1.0.0/16", "10.1.255.255"));
        assert!(!permits("10.1.0.0/16", "10.2.0.0"));
        assert!(!permits("10.1.0.0/16", "10.0.255.255"));
        assert!(permits("127.0.0.1", "127.0.0.1"));
        assert!(permits("127.0.0.1", "::ffff:127.0.0.1"));
        assert!(!permits("127.0.0.1", "127.0.0.2"));
        assert!(permits("0.0.0.0/0", "8.8.8.8"));
        assert!(!permits("0.0.0.0/0", "::1"));
        assert!(permits("fd00::/8", "fdff::1"));
        assert!(!permits("fd00::/8", "fe80::1"));
    }

    #[test]
    fn an_ipv4_network_may_be_written_as_ipv6() {
        for (entry, ip, good) in [
            ("::ffff:7f00:0/104", "127.0.0.1", true),
            ("::ffff:127.0.0.0/104", "::ffff:127.255.255.255", true),
            ("::ffff:127.0.0.0/104", "128.0.0.0", false),
            ("::ffff:10.1.0.0/112", "10.1.255.255", true),
            ("::ffff:10.1.0.0/112", "10.2.0.0", false),
            ("::ffff:10.1.0.7/128", "10.1.0.7", true),
            ("::ffff:0:0/96", "8.8.8.8", true),
            ("::ffff:0:0/96", "::1", false),
        ] {
            assert_eq!(permits(entry, ip), good, "{entry} {ip}");
        }
        // It would be none of IPv4, and nothing else is there.
        for bad in ["::ffff:10.0.0.0/8", "::ffff:0:0/95"] {
            assert!(bad.parse::<Allowed>().unwrap_err().contains("must have a prefix from 96 to 128"), "{bad}");
        }
    }

    #[test]
    fn hosts_match_by_name_only() {
        let host: Allowed = "hooks.internal".parse().unwrap();
        assert!(host.permits_host("Hooks.Internal."));
        assert!(!host.permits_host("x.hooks.internal"));
        assert!(!host.permits_address("127.0.0.1".parse().unwrap()));
    }

    #[test]
    fn half_addresses_are_refused() {
        for bad in ["", "10.1.0", "10.1.0.0/33", "::/129", "10.1.0.0/", "a b", "http://x", "a..b", "*"] {
            assert!(bad.parse::<Allowed>().is_err(), "{bad}");
        }
        assert!("10.1.0.0/32".parse::<Allowed>().is_ok());
        assert!("::/128".parse::<Allowed>().is_ok());
    }
}
