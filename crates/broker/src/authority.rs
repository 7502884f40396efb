//! Certificates that are trusted inside of one cell only.

use std::io;
use std::time::{SystemTime, UNIX_EPOCH};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, date_time_ymd,
};
use zeroize::Zeroizing;

/// A certificate authority that has signed one certificate. Its own key is gone.
#[derive(Debug)]
pub struct Authority {
    /// Its certificate, as PEM: what clients in the cell trust.
    pub certificate: String,
    /// The certificate for the hosts, as DER.
    pub signed: Vec<u8>,
    /// That one's key, as PKCS #8.
    pub key: Zeroizing<Vec<u8>>,
}

/// Makes an authority and its one certificate, which is for `hosts`.
///
/// # Errors
/// A host is not a name in ASCII; there is no randomness.
pub fn make(hosts: &[String]) -> io::Result<Authority> {
    let mut authority = params(Vec::new(), "cellblock: this cell only")?;
    authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let authority_key = KeyPair::generate().map_err(io::Error::other)?;
    let certificate = authority
        .self_signed(&authority_key)
        .map_err(io::Error::other)?;
    let name = hosts.first().map_or("", String::as_str);
    let mut server = params(hosts.to_vec(), name)?;
    server.use_authority_key_identifier_extension = true;
    server.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let key = KeyPair::generate().map_err(io::Error::other)?;
    let signed = server
        .signed_by(&key, &Issuer::from_params(&authority, &authority_key))
        .map_err(io::Error::other)?;
    Ok(Authority {
        certificate: certificate.pem(),
        signed: signed.der().to_vec(),
        key: Zeroizing::new(key.serialize_der()),
    })
}

fn params(hosts: Vec<String>, name: &str) -> io::Result<CertificateParams> {
    let mut params = CertificateParams::new(hosts).map_err(io::Error::other)?;
    params.distinguished_name = DistinguishedName::new();
    // An X.509 name is bounded; what counts are the alternative names.
    let name: String = name.chars().take(60).collect();
    params.distinguished_name.push(DnType::CommonName, name);
    // No cell lives for years, and clocks differ by less than one.
    let year = i32::try_from(now_in_years()).unwrap_or(2100);
    params.not_before = date_time_ymd(year - 1, 1, 1);
    params.not_after = date_time_ymd(year + 2, 1, 1);
    Ok(params)
}

/// The year, give or take one day.
fn now_in_years() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    1970 + now.map_or(0, |since| since.as_secs()) / 31_556_952
}
