//! Header fields that the broker puts into requests, and where their values come from.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use hosts::Name;
use serde::Serialize;

/// The most of them: their values are sent to the broker without waiting.
pub(super) const MOST: usize = 8;

/// A header field of requests to one host. The value is read when the broker starts, and
/// never kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SecretHeader {
    /// The host's name.
    pub host: String,
    /// The port.
    pub port: u16,
    /// Whether requests are made by TLS, which the broker ends.
    pub tls: bool,
    /// The field's name.
    pub name: String,
    /// Where its value is.
    pub source: SecretSource,
}

/// Where a secret value is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SecretSource {
    /// In this variable of the caller's environment.
    Env(String),
    /// In this file of the host, without the line's end.
    File(PathBuf),
}

/// Fields that say how a request is read; replacing one would break requests.
const FRAMING: [&str; 8] = [
    "host",
    "content-length",
    "transfer-encoding",
    "connection",
    "upgrade",
    "te",
    "trailer",
    "expect",
];

impl FromStr for SecretHeader {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wanted = "is not [http://]HOST[:PORT]:NAME=env:VARIABLE or …=file:PATH";
        let (field, source) = text.split_once('=').ok_or(wanted)?;
        let (tls, field) = match field.strip_prefix("http://") {
            Some(rest) => (false, rest),
            None => (true, field.strip_prefix("https://").unwrap_or(field)),
        };
        let (place, name) = field.rsplit_once(':').ok_or(wanted)?;
        let (host, port) = match place.split_once(':') {
            Some((host, port)) => {
                let port = port.parse().ok().filter(|port| *port > 0);
                (host, port.ok_or("has a port that is not 1 to 65535")?)
            }
            None => (place, if tls { 443 } else { 80 }),
        };
        let host = Name::parse(host).ok().filter(|host| {
            // An address has no name that a certificate or a request could be compared with.
            host.as_str().parse::<std::net::IpAddr>().is_err()
        });
        let host = host.ok_or("has a host that is not one name")?;
        let is_token =
            |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        if name.is_empty() || !name.bytes().all(is_token) {
            return Err("has a field name that HTTP does not have".to_owned());
        }
        if FRAMING.iter().any(|other| name.eq_ignore_ascii_case(other)) {
            return Err(format!(
                "names the field {name}, which is the request's own"
            ));
        }
        let source = match source.split_once(':') {
            Some(("env", name)) if !name.is_empty() && !name.contains(['=', '\0']) => {
                SecretSource::Env(name.to_owned())
            }
            Some(("file", path)) if path.starts_with('/') => SecretSource::File(path.into()),
            _ => return Err("has no source: env:VARIABLE or file:PATH, absolute".to_owned()),
        };
        Ok(Self {
            host: host.as_str().to_owned(),
            port,
            tls,
            name: name.to_owned(),
            source,
        })
    }
}

impl fmt::Display for SecretSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Env(name) => write!(f, "env:{name}"),
            Self::File(path) => write!(f, "file:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_names_one_host_a_field_and_a_source() {
        let header: SecretHeader = "API.example.com:X-Api-Key=env:KEY".parse().unwrap();
        assert_eq!(
            (header.host.as_str(), header.port),
            ("api.example.com", 443)
        );
        assert!(header.tls);
        assert_eq!(header.source, SecretSource::Env("KEY".to_owned()));
        let header: SecretHeader = "http://a.example:8080:X=file:/k=y".parse().unwrap();
        assert_eq!((header.port, header.tls), (8080, false));
        assert_eq!(header.source.to_string(), "file:/k=y");
        for (text, why) in [
            ("a.example:X", "is not"),
            ("X=env:K", "is not"),
            ("*.a.example:X=env:K", "one name"),
            ("192.0.2.1:X=env:K", "one name"),
            ("a.example:0:X=env:K", "port"),
            ("a.example:Host=env:K", "the request's own"),
            ("a.example:X y=env:K", "field name"),
            ("a.example:X=K", "no source"),
            ("a.example:X=file:k", "no source"),
        ] {
            let error = text.parse::<SecretHeader>().unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
