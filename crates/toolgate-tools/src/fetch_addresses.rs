//! Which addresses belong to the public network, and names that lead to no others.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use reqwest::dns::{Addrs, Name, Resolve, Resolving};

/// Looks names up and leaves out every address that is not public.
///
/// The client connects to what this returns and to nothing else, so a name that is looked up a second time cannot
/// lead somewhere else than the one that was checked.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PublicOnly;

/// The name leads only to addresses that are not public.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the name leads to no public address")]
pub(crate) struct NotPublic;

impl Resolve for PublicOnly {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let found: Vec<SocketAddr> =
                tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            let public: Vec<SocketAddr> = found
                .into_iter()
                .filter(|address| is_public(address.ip()))
                .collect();
            match public.is_empty() {
                true => Err(NotPublic.into()),
                false => Ok(Box::new(public.into_iter()) as Addrs),
            }
        })
    }
}

/// Whether an address is one that anybody in the world would reach under it.
pub(crate) fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    /// The first address and the length of the part that counts.
    const OTHERS: [(Ipv4Addr, u32); 16] = [
        (Ipv4Addr::new(0, 0, 0, 0), 8),
        (Ipv4Addr::new(10, 0, 0, 0), 8),
        // Shared by customers of one provider, and by some clouds for their own services.
        (Ipv4Addr::new(100, 64, 0, 0), 10),
        (Ipv4Addr::new(127, 0, 0, 0), 8),
        // With what clouds tell their machines, keys included.
        (Ipv4Addr::new(169, 254, 0, 0), 16),
        (Ipv4Addr::new(168, 63, 129, 16), 32),
        (Ipv4Addr::new(172, 16, 0, 0), 12),
        (Ipv4Addr::new(192, 0, 0, 0), 24),
        (Ipv4Addr::new(192, 0, 2, 0), 24),
        (Ipv4Addr::new(192, 88, 99, 0), 24),
        (Ipv4Addr::new(192, 168, 0, 0), 16),
        (Ipv4Addr::new(198, 18, 0, 0), 15),
        (Ipv4Addr::new(198, 51, 100, 0), 24),
        (Ipv4Addr::new(203, 0, 113, 0), 24),
        (Ipv4Addr::new(224, 0, 0, 0), 4),
        (Ipv4Addr::new(240, 0, 0, 0), 4),
    ];
    let within = |(first, length): &(Ipv4Addr, u32)| {
        (address.to_bits() ^ first.to_bits()) >> (32 - length) == 0
    };
    !OTHERS.iter().any(within)
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    /// Inside of what is given out to the world; nothing outside of that is public.
    const OTHERS: [(Ipv6Addr, u32); 4] = [
        // Tunnels, which end at an address of their own, and other special uses.
        (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23),
        (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32),
        (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16),
        (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20),
    ];
    let within = |(first, length): &(Ipv6Addr, u32)| {
        (address.to_bits() ^ first.to_bits()) >> (128 - length) == 0
    };
    within(&(Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3)) && !OTHERS.iter().any(within)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_of_the_world_are_public() {
        for address in [
            "1.1.1.1",
            "93.184.216.34",
            "172.32.0.1",
            "100.128.0.1",
            "198.20.0.1",
            "2606:4700::1",
            "2a00:1450::1",
        ] {
            assert!(is_public(address.parse().expect("an address")), "{address}");
        }
        for address in [
            "0.0.0.0",
            "0.1.2.3",
            "10.1.2.3",
            "100.64.0.1",
            "100.100.100.200",
            "127.0.0.1",
            "127.255.255.254",
            "168.63.129.16",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.192",
            "192.0.2.1",
            "192.88.99.1",
            "192.168.1.1",
            "198.19.0.1",
            "198.51.100.1",
            "203.0.113.1",
            "224.0.0.1",
            "239.255.255.255",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::127.0.0.1",
            "::ffff:127.0.0.1",
            "::ffff:1.1.1.1",
            "64:ff9b::7f00:1",
            "64:ff9b:1::1",
            "100::1",
            "2001::1",
            "2001:db8::1",
            "2002:7f00:1::",
            "3fff::1",
            "fc00::1",
            "fd00:ec2::254",
            "fe80::1",
            "fec0::1",
            "ff02::1",
            "5f00::1",
        ] {
            assert!(
                !is_public(address.parse().expect("an address")),
                "{address}"
            );
        }
    }

    #[tokio::test]
    async fn a_name_that_leads_home_leads_nowhere() {
        let name = "localhost".parse().expect("a name");
        let Err(error) = PublicOnly.resolve(name).await else {
            panic!("it leads home")
        };
        assert_eq!(error.downcast_ref(), Some(&NotPublic));
    }
}
