use std::path::PathBuf;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio_postgres::config::SslMode;
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::Error;

/// How far a connection is protected, in the words of the server's own clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Protection {
    Disable,
    /// Encrypted if the server can, with whoever answers.
    #[default]
    Prefer,
    /// Encrypted, with whoever answers.
    Require,
    /// With a server that has a certificate of a trusted authority.
    VerifyCa,
    /// With the server of this name.
    VerifyFull,
}

impl Protection {
    pub(super) fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "disable" => Self::Disable,
            "allow" | "prefer" => Self::Prefer,
            "require" => Self::Require,
            "verify-ca" => Self::VerifyCa,
            "verify-full" => Self::VerifyFull,
            _ => return None,
        })
    }

    /// What [`parse`](Protection::parse) takes for it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Disable => "disable",
            Self::Prefer => "prefer",
            Self::Require => "require",
            Self::VerifyCa => "verify-ca",
            Self::VerifyFull => "verify-full",
        }
    }

    pub(super) fn mode(self) -> SslMode {
        match self {
            Self::Disable => SslMode::Disable,
            Self::Prefer => SslMode::Prefer,
            Self::Require | Self::VerifyCa | Self::VerifyFull => SslMode::Require,
        }
    }
}

/// What is known about both sides of a connection with TLS.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Tls {
    pub(super) protection: Protection,
    /// A file of authorities, or `system`.
    pub(super) roots: Option<PathBuf>,
    pub(super) cert: Option<PathBuf>,
    pub(super) key: Option<PathBuf>,
}

impl Tls {
    /// # Errors
    ///
    /// `InvalidArgument` if a file cannot be read or used.
    pub(super) fn connector(&self) -> Result<MakeRustlsConnect, Error> {
        let provider = CryptoProvider::get_default()
            .cloned()
            .unwrap_or_else(|| Arc::new(rustls::crypto::ring::default_provider()));
        let builder = ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(unusable)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(self.verifier(provider)?));
        let config = match (&self.cert, &self.key) {
            (Some(cert), Some(key)) => {
                let chain: Result<Vec<_>, _> = CertificateDer::pem_file_iter(cert).map_err(unusable)?.collect();
                let key = PrivateKeyDer::from_pem_file(key).map_err(unusable)?;
                builder.with_client_auth_cert(chain.map_err(unusable)?, key).map_err(unusable)?
            }
            (None, None) => builder.with_no_client_auth(),
            _ => {
                return Err(Error::invalid("only one of sslcert and sslkey is given")
                    .with_hint("a certificate comes with its private key"));
            }
        };
        Ok(MakeRustlsConnect::new(config))
    }

    fn verifier(&self, provider: Arc<CryptoProvider>) -> Result<Verifier, Error> {
        let authorities = self.roots.clone().or_else(default_roots);
        // As the server's own clients do: who names an authority wants it to be checked.
        let protection = match self.protection {
            Protection::Require if authorities.is_some() => Protection::VerifyCa,
            protection => protection,
        };
        if protection < Protection::VerifyCa {
            return Ok(Verifier { inner: None, check_name: false, provider });
        }
        let roots = roots(authorities)?;
        let inner =
            WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build().map_err(unusable)?;
        Ok(Verifier { inner: Some(inner), check_name: protection == Protection::VerifyFull, provider })
    }
}

fn default_roots() -> Option<PathBuf> {
    Some(std::env::home_dir()?.join(".postgresql/root.crt")).filter(|path| path.exists())
}

fn roots(file: Option<PathBuf>) -> Result<RootCertStore, Error> {
    let mut roots = RootCertStore::empty();
    match file.filter(|file| file.as_os_str() != "system") {
        Some(file) => {
            for certificate in CertificateDer::pem_file_iter(file).map_err(unusable)? {
                roots.add(certificate.map_err(unusable)?).map_err(unusable)?;
            }
        }
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    Ok(roots)
}

fn unusable(source: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::invalid("a certificate or key for TLS cannot be used")
        .with_hint("check sslrootcert, sslcert and sslkey; the files must be in PEM format")
        .with_source(source)
}

/// Checks as much of a server's certificate as was asked for. If that is nothing, it may be one
/// that we could not even read, such as those of version 1 that PostgreSQL's manual makes.
#[derive(Debug)]
struct Verifier {
    inner: Option<Arc<WebPkiServerVerifier>>,
    check_name: bool,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Some(inner) = &self.inner else { return Ok(ServerCertVerified::assertion()) };
        match inner.verify_server_cert(end_entity, intermediates, server_name, ocsp, now) {
            Err(rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if !self.check_name => Ok(ServerCertVerified::assertion()),
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        if self.inner.is_none() {
            return Ok(HandshakeSignatureValid::assertion());
        }
        verify_tls12_signature(message, cert, signed, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        if self.inner.is_none() {
            return Ok(HandshakeSignatureValid::assertion());
        }
        verify_tls13_signature(message, cert, signed, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
