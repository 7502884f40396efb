//! What a cell may reach: rules of names and addresses, and the addresses that stand for names
//! inside of it.

#![forbid(unsafe_code)]
// Nothing that a cell or a peer can influence may end in a panic.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod name;
mod network;
mod presets;
mod reason;
pub mod synthetic;

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

pub use name::{MAX_NAME, Name};
pub use network::Network;
pub use presets::{preset, preset_names};

pub use reason::Reason;

/// Whether names inside of a connection are checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NameChecks {
    /// They must be the name that was connected to.
    #[default]
    On,
    /// They are not looked at.
    Off,
}

/// The ports of a rule that writes none.
pub const DEFAULT_PORTS: [u16; 2] = [80, 443];

/// Mail between servers: unwanted mail is sent this way, so no rule allows it.
const MAIL_PORT: u16 = 25;

/// The shortest prefix of a network that can be written out, by family: what is written
/// out is not checked against the addresses that are refused otherwise.
const SHORTEST: (u8, u8) = (8, 16);

/// A rule that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` {problem}")]
pub struct RuleError {
    /// The text that was to be read.
    pub text: String,
    /// What is wrong with it, and what is allowed.
    pub problem: String,
}

impl RuleError {
    pub(crate) fn new(text: &str, problem: impl Into<String>) -> Self {
        Self {
            text: text.chars().take(MAX_NAME).collect(),
            problem: problem.into(),
        }
    }
}

/// What a rule is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    /// One name.
    Name(Name),
    /// All subdomains of a name, at any depth, without the name itself.
    Subdomains(Name),
    /// Addresses that are written out.
    Network(Network),
}

/// One rule: `HOST[:PORT]`, `*.example.com[:PORT]`, an address or a network.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Rule {
    /// What it is about.
    pub target: Target,
    /// The port, where one is written. Otherwise a rule allows [`DEFAULT_PORTS`] and denies
    /// every port.
    pub port: Option<u16>,
}

/// What a connection or a query asks for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Host {
    /// A name, which is resolved outside.
    Name(Name),
    /// An address.
    Address(IpAddr),
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => name.fmt(f),
            Self::Address(address) => address.fmt(f),
        }
    }
}

impl Target {
    fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Name(one), Self::Name(other)) => one == other,
            (Self::Subdomains(apex), Self::Name(name)) => name.is_below(apex),
            (Self::Subdomains(apex), Self::Subdomains(other)) => {
                apex == other || other.is_below(apex)
            }
            (Self::Network(one), Self::Network(other)) => one.covers(other),
            _ => false,
        }
    }

    fn matches(&self, host: &Host) -> bool {
        match (self, host) {
            (Self::Name(one), Host::Name(name)) => one == name,
            (Self::Subdomains(apex), Host::Name(name)) => name.is_below(apex),
            (Self::Network(network), Host::Address(address)) => network.contains(*address),
            _ => false,
        }
    }
}

impl Rule {
    fn allowed_ports(&self) -> Vec<u16> {
        self.port.map_or(DEFAULT_PORTS.to_vec(), |port| vec![port])
    }

    fn allows(&self, host: &Host, port: u16) -> bool {
        self.target.matches(host) && self.allowed_ports().contains(&port)
    }

    fn denies(&self, host: &Host, port: u16) -> bool {
        self.target.matches(host) && self.port.is_none_or(|denied| denied == port)
    }
}

impl FromStr for Rule {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Self, RuleError> {
        let problem = |problem: &str| RuleError::new(text, problem);
        if text.is_empty() {
            return Err(problem(
                "is empty: write HOST, HOST:PORT, an address or a network",
            ));
        }
        let (host, port) = split_port(text)?;
        if port == Some(MAIL_PORT) {
            return Err(problem(
                "names port 25, which is never allowed: send mail by port 465 or 587",
            ));
        }
        let looks_like_network =
            host.contains(['/', ':']) || host.parse::<std::net::Ipv4Addr>().is_ok();
        let target = if looks_like_network {
            Target::Network(written_out(text, host)?)
        } else if let Some(apex) = host.strip_prefix("*.") {
            Target::Subdomains(Name::parse(apex).map_err(|error| problem(&error.problem))?)
        } else if host.contains('*') {
            return Err(problem(
                "has a * in the wrong place: *.example.com stands for all subdomains of \
                 example.com, and no rule stands for every host",
            ));
        } else {
            Target::Name(Name::parse(host).map_err(|error| problem(&error.problem))?)
        };
        Ok(Self { target, port })
    }
}

/// A network of a rule, within the bounds of what can be written out.
fn written_out(text: &str, host: &str) -> Result<Network, RuleError> {
    let network = Network::parse(host).map_err(|error| RuleError::new(text, error.problem))?;
    let shortest = match network.address() {
        IpAddr::V4(_) => SHORTEST.0,
        IpAddr::V6(_) => SHORTEST.1,
    };
    if network.prefix() < shortest {
        let problem = format!("is too large a network: its prefix must be {shortest} or longer");
        return Err(RuleError::new(text, problem));
    }
    if synthetic::networks().iter().any(|own| own.meets(&network)) {
        let problem = "is within 198.18.0.0/15 or fd00:cb::/64, whose addresses stand for names \
                       inside of a cell";
        return Err(RuleError::new(text, problem));
    }
    Ok(network)
}

/// Takes the port off: `host:443`, `[2001:db8::1]:443`, `2001:db8::1`.
fn split_port(text: &str) -> Result<(&str, Option<u16>), RuleError> {
    let problem = |problem: &str| RuleError::new(text, problem);
    if text.contains("://") {
        return Err(problem("is a URL: write the host alone, or HOST:PORT"));
    }
    let (host, port) = if let Some(rest) = text.strip_prefix('[') {
        let (address, rest) = rest
            .split_once(']')
            .ok_or_else(|| problem("lacks the closing bracket of an IPv6 address"))?;
        if !address.contains(':') {
            return Err(problem(
                "has brackets around something else than an IPv6 address",
            ));
        }
        // The prefix of a network can be inside of the brackets or behind them.
        match rest.split_once(':') {
            _ if rest.is_empty() => (address, None),
            Some(("", port)) => (address, Some(port)),
            _ => return Err(problem("has something else than :PORT behind the bracket")),
        }
    } else {
        match text.rsplit_once(':') {
            // More than one colon: an IPv6 address without brackets has no port.
            Some((host, _)) if host.contains(':') => (text, None),
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        }
    };
    let port = port.map(|digits| {
        let number = digits.bytes().all(|byte| byte.is_ascii_digit());
        let port = digits.parse().ok().filter(|port| number && *port > 0);
        port.ok_or_else(|| problem("has a port that is not a number from 1 to 65535"))
    });
    Ok((host, port.transpose()?))
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.target {
            Target::Name(name) => write!(f, "{name}")?,
            Target::Subdomains(apex) => write!(f, "*.{apex}")?,
            Target::Network(network) if network.address().is_ipv6() && self.port.is_some() => {
                write!(f, "[{network}]")?;
            }
            Target::Network(network) => write!(f, "{network}")?,
        }
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

impl TryFrom<String> for Rule {
    type Error = RuleError;

    fn try_from(text: String) -> Result<Self, RuleError> {
        text.parse()
    }
}

impl From<Rule> for String {
    fn from(rule: Rule) -> Self {
        rule.to_string()
    }
}

/// What a cell may reach: all that `allow` names and `deny` does not.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Rules {
    /// What it may reach.
    pub allow: Vec<Rule>,
    /// What it may not reach; this wins.
    pub deny: Vec<Rule>,
}

impl Rules {
    /// Whether a connection to `host` and `port` is allowed.
    ///
    /// # Errors
    /// Why it is not.
    pub fn check(&self, host: &Host, port: u16) -> Result<(), Reason> {
        if port == MAIL_PORT {
            return Err(Reason::MailPort);
        }
        if self.deny.iter().any(|rule| rule.denies(host, port)) {
            return Err(Reason::Denied);
        }
        if self.allow.iter().any(|rule| rule.allows(host, port)) {
            return Ok(());
        }
        match self.allow.iter().any(|rule| rule.target.matches(host)) {
            true => Err(Reason::PortNotAllowed),
            false => Err(Reason::NotAllowed),
        }
    }

    /// Whether some port of `host` is allowed.
    ///
    /// # Errors
    /// Why none is.
    pub fn check_name(&self, name: &Name) -> Result<(), Reason> {
        let host = Host::Name(name.clone());
        let mut reason = Reason::NotAllowed;
        for rule in self.allow.iter().filter(|rule| rule.target.matches(&host)) {
            for port in rule.allowed_ports() {
                match self.check(&host, port) {
                    Ok(()) => return Ok(()),
                    Err(why) => reason = why,
                }
            }
        }
        if self
            .deny
            .iter()
            .any(|rule| rule.port.is_none() && rule.target.matches(&host))
        {
            reason = Reason::Denied;
        }
        Err(reason)
    }

    /// Whether a rule writes out this address and port, so that it may be reached although
    /// it is private or otherwise refused.
    pub fn writes_out(&self, address: IpAddr, port: u16) -> bool {
        self.check(&Host::Address(address), port).is_ok()
    }

    /// Whether a rule denies this address and port, to whichever name it belongs.
    pub fn denies_address(&self, address: IpAddr, port: u16) -> bool {
        let host = Host::Address(address);
        self.deny.iter().any(|rule| rule.denies(&host, port))
    }

    /// The ports on which a cell's connections must be accepted.
    pub fn ports(&self) -> BTreeSet<u16> {
        self.allow.iter().flat_map(Rule::allowed_ports).collect()
    }

    /// The networks that are written out, for which a cell needs routes.
    pub fn networks(&self) -> Vec<Network> {
        let networks: BTreeSet<Network> = self
            .allow
            .iter()
            .filter_map(|rule| match rule.target {
                Target::Network(network) => Some(network),
                _ => None,
            })
            .collect();
        networks.into_iter().collect()
    }

    /// Whether these rules allow nothing that `other` does not: each allowed target and
    /// port is one of `other`'s, and all that `other` denies is denied.
    pub fn narrower_than(&self, other: &Self) -> bool {
        self.first_beyond(other).is_none()
            && other.deny.iter().all(|denied| {
                self.deny.iter().any(|own| {
                    own.target.covers(&denied.target)
                        && (own.port.is_none() || own.port == denied.port)
                })
            })
    }

    /// What a request gets that asks for `self` where an operator allows `other`: what it
    /// asks for, without all that either denies.
    ///
    /// # Errors
    /// The first rule that allows more than the operator does.
    pub fn within(mut self, other: &Self) -> Result<Self, RuleError> {
        if let Some(rule) = self.first_beyond(other) {
            let allowed: Vec<String> = other.allow.iter().map(Rule::to_string).collect();
            let problem = match allowed.is_empty() {
                true => "is more than is allowed here: no host".to_owned(),
                false => format!("is more than is allowed here: {}", allowed.join(", ")),
            };
            return Err(RuleError::new(&rule.to_string(), problem));
        }
        for denied in &other.deny {
            if !self.deny.contains(denied) {
                self.deny.push(denied.clone());
            }
        }
        Ok(self)
    }

    fn first_beyond(&self, other: &Self) -> Option<&Rule> {
        self.allow.iter().find(|rule| {
            rule.allowed_ports().iter().any(|port| {
                !other.allow.iter().any(|wider| {
                    wider.target.covers(&rule.target) && wider.allowed_ports().contains(port)
                })
            })
        })
    }
}

#[cfg(test)]
mod tests;
