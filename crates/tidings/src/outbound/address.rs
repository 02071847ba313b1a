//! Which addresses are nobody's business: everything that is not plainly a public host on the internet.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Whether an address named by a stranger must not be connected to.
#[must_use]
pub fn is_forbidden(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => is_forbidden_v4(ip),
        IpAddr::V6(ip) => is_forbidden_v6(ip),
    }
}

/// The special-purpose registry of IANA (RFC 6890 and its successors), and one that a cloud made special.
const FORBIDDEN_V4: [(Ipv4Addr, u32); 16] = [
    (Ipv4Addr::new(0, 0, 0, 0), 8),        // this network
    (Ipv4Addr::new(10, 0, 0, 0), 8),       // private
    (Ipv4Addr::new(100, 64, 0, 0), 10),    // carrier-grade NAT, and Alibaba's metadata
    (Ipv4Addr::new(127, 0, 0, 0), 8),      // loopback
    (Ipv4Addr::new(168, 63, 129, 16), 32), // Azure's host agent, reachable from every virtual machine
    (Ipv4Addr::new(169, 254, 0, 0), 16),   // link-local, and most clouds' metadata
    (Ipv4Addr::new(172, 16, 0, 0), 12),    // private
    (Ipv4Addr::new(192, 0, 0, 0), 24),     // protocol assignments, and Oracle's metadata
    (Ipv4Addr::new(192, 0, 2, 0), 24),     // documentation
    (Ipv4Addr::new(192, 88, 99, 0), 24),   // 6to4 relays
    (Ipv4Addr::new(192, 168, 0, 0), 16),   // private
    (Ipv4Addr::new(198, 18, 0, 0), 15),    // benchmarking
    (Ipv4Addr::new(198, 51, 100, 0), 24),  // documentation
    (Ipv4Addr::new(203, 0, 113, 0), 24),   // documentation
    (Ipv4Addr::new(224, 0, 0, 0), 4),      // multicast
    (Ipv4Addr::new(240, 0, 0, 0), 4),      // reserved, and broadcast
];

fn is_forbidden_v4(ip: Ipv4Addr) -> bool {
    FORBIDDEN_V4.iter().any(|(network, prefix)| (ip.to_bits() ^ network.to_bits()).leading_zeros() >= *prefix)
}

/// Only global unicast (2000::/3) is public. Outside it are loopback, unspecified, IPv4-mapped and -compatible
/// addresses, NAT64 (64:ff9b::/96 and 64:ff9b:1::/48), unique local, link-local, site-local and multicast.
const PUBLIC_V6: (Ipv6Addr, u32) = (Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3);

const FORBIDDEN_V6: [(Ipv6Addr, u32); 4] = [
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23), // protocol assignments: Teredo, benchmarking, ORCHID
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32), // documentation
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16), // 6to4, which embeds any IPv4 address
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20), // documentation
];

fn is_forbidden_v6(ip: Ipv6Addr) -> bool {
    let within = |(network, prefix): &(Ipv6Addr, u32)| (ip.to_bits() ^ network.to_bits()).leading_zeros() >= *prefix;
    !within(&PUBLIC_V6) || FORBIDDEN_V6.iter().any(within)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn forbidden(text: &str) -> bool {
        is_forbidden(text.parse().unwrap())
    }

    // SX-20
    #[test]
    fn networks_are_forbidden_from_their_first_to_their_last_address() {
        for (first, last, before, after) in [
            ("10.0.0.0", "10.255.255.255", "9.255.255.255", "11.0.0.0"),
            ("100.64.0.0", "100.127.255.255", "100.63.255.255", "100.128.0.0"),
            ("127.0.0.0", "127.255.255.255", "126.255.255.255", "128.0.0.0"),
            ("169.254.0.0", "169.254.255.255", "169.253.255.255", "169.255.0.0"),
            ("172.16.0.0", "172.31.255.255", "172.15.255.255", "172.32.0.0"),
            ("192.168.0.0", "192.168.255.255", "192.167.255.255", "192.169.0.0"),
            ("198.18.0.0", "198.19.255.255", "198.17.255.255", "198.20.0.0"),
            ("192.0.0.0", "192.0.0.255", "191.255.255.255", "192.0.1.0"),
            ("168.63.129.16", "168.63.129.16", "168.63.129.15", "168.63.129.17"),
            ("2001::", "2001:1ff:ffff:ffff:ffff:ffff:ffff:ffff", "2000:ffff::1", "2001:200::"),
            ("2002::", "2002:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "2001:ffff::1", "2003::"),
        ] {
            assert!(forbidden(first) && forbidden(last), "{first} to {last}");
            assert!(!forbidden(before) && !forbidden(after), "{before} and {after}");
        }
    }

    #[test]
    fn the_public_internet_is_allowed() {
        for public in ["1.1.1.1", "8.8.8.8", "140.82.121.4", "223.255.255.255", "2606:4700::1111", "2a00:1450:4001::1"]
        {
            assert!(!forbidden(public), "{public}");
        }
    }
}
