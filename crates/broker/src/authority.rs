//! Certificates that are trusted inside of one cell only.

use std::io;
use std::time::{SystemTime, UNIX_EPOCH};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, date_time_ymd,
};
use ring::digest;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
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

/// The certificates of a PEM bundle as a Java keystore, with the usual password of `cacerts`.
/// Anything but certificates is left out.
pub fn java_store(bundle: &[u8]) -> Vec<u8> {
    const MAGIC: u32 = 0xfeed_feed;
    const VERSION: u32 = 2;
    const TRUSTED: u32 = 2;
    const PASSWORD: &str = "changeit";
    // The format puts this into its digest.
    const SALT: &[u8] = b"Mighty Aphrodite";
    let found = CertificateDer::pem_slice_iter(bundle).filter_map(Result::ok);
    let found: Vec<CertificateDer<'_>> = found.collect();
    let mut store = [MAGIC, VERSION, length(&found)]
        .map(u32::to_be_bytes)
        .concat();
    let put_text = |store: &mut Vec<u8>, text: &str| {
        store.extend((text.len() as u16).to_be_bytes());
        store.extend(text.as_bytes());
    };
    for (number, certificate) in found.iter().enumerate() {
        store.extend(TRUSTED.to_be_bytes());
        put_text(&mut store, &number.to_string());
        // When it was added, in milliseconds since 1970.
        store.extend(0_u64.to_be_bytes());
        put_text(&mut store, "X.509");
        store.extend(length(certificate).to_be_bytes());
        store.extend(certificate.as_ref());
    }
    let password: Vec<u8> = PASSWORD.encode_utf16().flat_map(u16::to_be_bytes).collect();
    let mut check = digest::Context::new(&digest::SHA1_FOR_LEGACY_USE_ONLY);
    for part in [&password[..], SALT, &store] {
        check.update(part);
    }
    store.extend(check.finish().as_ref());
    store
}

fn length<T>(list: &[T]) -> u32 {
    u32::try_from(list.len()).unwrap_or(u32::MAX)
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
