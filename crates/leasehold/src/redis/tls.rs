//! Connections with TLS, and without where none is wanted.

use redis::{Client, ClientTlsConfig, ConnectionAddr, ConnectionInfo, TlsCertificates};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use super::error::translate;
use super::options::RedisOptions;
use super::url::unusable;
use crate::Error;

/// What connects to the server. Opens nothing but the files for TLS.
pub(super) fn client(info: ConnectionInfo, options: &RedisOptions) -> Result<Client, Error> {
    if !matches!(info.addr(), ConnectionAddr::TcpTls { .. }) {
        if options.tls != Default::default() {
            return Err(unusable("has TLS options but no TLS").with_hint("use rediss:// instead of redis://"));
        }
        return Client::open(info).map_err(|error| translate(error, false));
    }
    install_cryptography();
    Client::build_with_tls(info, certificates(options)?).map_err(|source| {
        Error::invalid("a certificate or key for TLS cannot be used")
            .with_hint("they must be in PEM format")
            .with_source(source)
    })
}

/// The TLS library needs one implementation of cryptography for the whole process. A program that
/// chose one keeps it.
fn install_cryptography() {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // Another thread may have been faster.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
}

fn certificates(options: &RedisOptions) -> Result<TlsCertificates, Error> {
    let read = |path: &std::path::Path| {
        std::fs::read(path).map_err(|source| {
            Error::invalid("a file for TLS cannot be read")
                .with_hint("check the options ca, cert and key")
                .with_source(source)
        })
    };
    let tls = &options.tls;
    let client_tls = match (&tls.cert, &tls.key) {
        (Some(cert), Some(key)) => Some(ClientTlsConfig { client_cert: read(cert)?, client_key: read(key)? }),
        (None, None) => None,
        _ => return Err(unusable("has only one of cert and key").with_hint("a certificate comes with its private key")),
    };
    let root_cert = tls.ca.as_deref().map(read).transpose()?;
    // The driver would go on without it, and trust nobody.
    if root_cert.as_deref().is_some_and(|pem| !CertificateDer::pem_slice_iter(pem).any(|found| found.is_ok())) {
        return Err(Error::invalid("the file of trusted authorities has no certificate")
            .with_hint("the option ca must name a file in PEM format"));
    }
    Ok(TlsCertificates { client_tls, root_cert })
}
