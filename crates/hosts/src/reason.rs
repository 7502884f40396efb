//! Why a connection is refused, or fails.

use serde::{Deserialize, Serialize};

macro_rules! reasons {
    ($($(#[$doc:meta])+ $reason:ident = $text:literal,)+) => {
        /// Why a connection or a name was refused, or failed.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum Reason {
            $($(#[$doc])+ $reason,)+
        }

        impl Reason {
            /// Every reason.
            pub const ALL: &[Self] = &[$(Self::$reason),+];

            /// The reason in words, to end a sentence with.
            pub const fn explain(self) -> &'static str {
                match self {
                    $(Self::$reason => $text,)+
                }
            }
        }
    };
}

reasons! {
    /// No rule allows the host.
    NotAllowed = "no rule allows this host",
    /// A rule allows the host, but another port.
    PortNotAllowed = "no rule allows this port of the host",
    /// A rule denies it.
    Denied = "a rule denies it",
    /// Port 25 is never allowed.
    MailPort = "port 25 is never allowed",
    /// The synthetic address stands for no name.
    UnknownAddress = "the address stands for no name",
    /// It is no host name.
    InvalidName = "it is not a valid host name",
    /// Too many names were asked for.
    TooManyNames = "too many names were looked up",
    /// Every address of the name is private, local or otherwise refused.
    RefusedAddress = "the name resolves to an address that is private, local or reserved",
    /// The name in the ClientHello is another.
    OtherTlsName = "the TLS server name is another one",
    /// The ClientHello has no name.
    NoTlsName = "the TLS handshake names no server",
    /// The ClientHello's name is encrypted.
    EncryptedTlsName = "the TLS server name is encrypted (ECH)",
    /// The host of the HTTP request is another.
    OtherHttpHost = "the host of the HTTP request is another one",
    /// TRACE to a host whose requests get a secret field.
    HttpTrace = "an HTTP TRACE would show a secret field",
    /// The HTTP request has no Host field, or several.
    NoHttpHost = "the HTTP request does not name one host",
    /// Port 443 begins with something else than TLS.
    NotTls = "it does not begin with a TLS handshake",
    /// Port 80 begins with something else than HTTP/1.
    NotHttp = "it does not begin with an HTTP/1 request",
    /// A proxy's request is malformed.
    BadProxyRequest = "the request to the proxy is malformed",
    /// A request to the SOCKS proxy is for something else than a TCP connection.
    NotTcp = "the proxy carries TCP connections only",
    /// An HTTP request's framing is ambiguous.
    AmbiguousHttp = "the framing of the HTTP request is ambiguous",
    /// The client was too slow in saying what it wants.
    TooSlow = "the client did not say what it wants in time",
    /// The client reset the connection, after which there was nobody to carry it for.
    ClientReset = "the program reset the connection",
    /// The client left before it said what it wants.
    ClientGone = "the client closed the connection first",
    /// The name has no address.
    NoAddress = "the name has no address",
    /// No DNS server answered.
    NoResolver = "no DNS server answered",
    /// The target refused the connection.
    ConnectionRefused = "the host refused the connection",
    /// The target cannot be reached.
    Unreachable = "the host cannot be reached",
    /// The target did not answer in time.
    DialTimeout = "the host did not answer in time",
    /// The host's certificate does not verify, where TLS ends in the broker.
    UntrustedHost = "the host's certificate is not trusted on this machine",
    /// A client does not take the broker's certificate.
    CellTrust = "the program does not trust the certificate authority of its cell",
    /// One side broke TLS.
    BrokenTls = "the TLS connection broke",
    /// The connection was reset.
    Reset = "the connection was reset",
    /// Nothing was sent for too long.
    Idle = "nothing was sent for too long",
    /// A limit of bytes was reached.
    ByteLimit = "a limit of bytes was reached",
    /// A limit of connections was reached.
    ConnectionLimit = "a limit of connections was reached",
    /// The limit of DNS queries was reached.
    QueryLimit = "the limit of DNS queries was reached",
    /// The cell ended.
    CellEnded = "the cell ended",
    /// The broker lacks descriptors or memory.
    Resources = "the broker lacks descriptors or memory",
}
