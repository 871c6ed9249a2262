//! The list of hosts that boxes may reach.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// Where encrypted connections go unless a rule says otherwise.
const PORT: u16 = 443;

/// A list that nobody can read any more protects nobody.
const RULES_MAX: usize = 1_000;

const HOST_BYTES_MAX: usize = 253;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidRule {
    #[error("{rule:?} is not host, *.host, host:port or *.host:port")]
    Form { rule: String },
    #[error("there are {count} rules; at most {RULES_MAX} are taken")]
    TooMany { count: usize },
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AllowList {
    rules: Vec<Rule>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Rule {
    host: String,
    /// Also every name below it.
    below: bool,
    port: u16,
}

impl AllowList {
    pub fn new<'a>(rules: impl IntoIterator<Item = &'a str>) -> Result<AllowList, InvalidRule> {
        let rules: Vec<Rule> = rules.into_iter().map(str::parse).collect::<Result<_, _>>()?;
        match rules.len() {
            count if count > RULES_MAX => Err(InvalidRule::TooMany { count }),
            _ => Ok(AllowList { rules }),
        }
    }

    #[must_use]
    pub fn allows(&self, host: &str, port: u16) -> bool {
        let host = host.trim_end_matches('.').to_ascii_lowercase();
        self.rules.iter().any(|rule| rule.port == port && rule.covers(&host))
    }

    /// Addresses of this machine and of local networks only where a rule names one outright.
    #[must_use]
    pub(super) fn allows_address(&self, host: &str, address: IpAddr) -> bool {
        let named = host == "localhost" || host.parse::<IpAddr>().is_ok();
        named || is_public(address)
    }
}

impl Rule {
    fn covers(&self, host: &str) -> bool {
        let is_below = || host.strip_suffix(&self.host).is_some_and(|rest| rest.ends_with('.'));
        host == self.host && !self.below || self.below && is_below()
    }
}

impl FromStr for Rule {
    type Err = InvalidRule;

    fn from_str(text: &str) -> Result<Rule, InvalidRule> {
        let wrong = || InvalidRule::Form { rule: text.into() };
        let (name, port) = match text.rsplit_once(':') {
            Some((name, port)) => (name, port.parse().map_err(|_| wrong())?),
            None => (text, PORT),
        };
        let (host, below) = match name.strip_prefix("*.") {
            Some(host) => (host, true),
            None => (name, false),
        };
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.' || c == '_';
        // A rule for a whole top-level domain is a rule for everybody.
        let too_wide = below && !host.contains('.');
        if host.is_empty() || host.len() > HOST_BYTES_MAX || !host.chars().all(plain) || too_wide {
            return Err(wrong());
        }
        Ok(Rule { host: host.to_ascii_lowercase(), below, port })
    }
}

fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(four) => is_public_four(four),
        IpAddr::V6(six) => match six.to_ipv4_mapped() {
            Some(four) => is_public_four(four),
            None => is_public_six(six),
        },
    }
}

fn is_public_four(address: Ipv4Addr) -> bool {
    let [first, second, ..] = address.octets();
    let is_shared = first == 100 && (64..128).contains(&second);
    !(first == 0
        || is_shared
        || address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_multicast()
        || address.is_broadcast())
}

fn is_public_six(address: Ipv6Addr) -> bool {
    !(address.is_loopback()
        || address.is_unspecified()
        || address.is_multicast()
        || address.is_unique_local()
        || address.is_unicast_link_local())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_names_a_host_or_what_is_below_it() {
        let list = AllowList::new(["crates.io", "*.crates.io", "Example.org:8080"]).unwrap();
        let cases = [
            ("crates.io", 443, true),
            ("CRATES.IO.", 443, true),
            ("static.crates.io", 443, true),
            ("crates.io", 80, false),
            ("evilcrates.io", 443, false),
            ("crates.io.evil.org", 443, false),
            ("example.org", 8_080, true),
            ("sub.example.org", 8_080, false),
        ];
        for (host, port, expected) in cases {
            assert_eq!(list.allows(host, port), expected, "{host}:{port}");
        }
        assert!(!AllowList::default().allows("crates.io", 443), "an empty list allows nothing");
    }

    #[test]
    fn a_rule_that_says_nothing_or_everything_is_refused() {
        for rule in ["", "*", "*.", "*.com", "a b", "host:port", "http://host", "host/path"] {
            assert!(AllowList::new([rule]).is_err(), "{rule:?}");
        }
    }

    /// The addresses behind which clouds keep their keys, and routers their settings.
    #[test]
    fn a_name_out_there_cannot_lead_back_in() {
        let list = AllowList::new(["rebound.example"]).unwrap();
        for address in [
            "127.0.0.1",
            "169.254.169.254",
            "10.1.2.3",
            "192.168.0.1",
            "100.64.0.1",
            "::1",
            "::ffff:127.0.0.1",
            "fd00::1",
            "fe80::1",
            "0.0.0.0",
        ] {
            assert!(!list.allows_address("rebound.example", address.parse().unwrap()), "{address}");
        }
        assert!(list.allows_address("rebound.example", "93.184.216.34".parse().unwrap()));
        assert!(list.allows_address("127.0.0.1", "127.0.0.1".parse().unwrap()));
    }
}
