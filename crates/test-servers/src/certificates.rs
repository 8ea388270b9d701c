use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair};
use tempfile::TempDir;

/// An authority, a certificate that it gave to a server and one that it gave to a client, as PEM
/// files that are removed when this is dropped.
///
/// The server is `localhost` and 127.0.0.1. The client's common name is `leasehold`.
#[derive(Debug)]
pub struct Certificates {
    directory: TempDir,
}

impl Certificates {
    /// Makes new keys and certificates, which nobody else trusts.
    ///
    /// # Panics
    ///
    /// If they cannot be written into the temporary directory.
    #[must_use]
    pub fn generate() -> Self {
        match Self::try_generate() {
            Ok(certificates) => certificates,
            Err(error) => panic!("no certificates: {error}"),
        }
    }

    fn try_generate() -> io::Result<Self> {
        let directory = TempDir::with_prefix("test-servers-certificates-")?;
        let authority = authority().map_err(io::Error::other)?;
        write(&directory.path().join("ca.crt"), &authority.pem())?;
        let server = ["localhost".to_owned(), "127.0.0.1".to_owned()];
        for (file, subject, names, purpose) in [
            ("server", "localhost", server.as_slice(), ExtendedKeyUsagePurpose::ServerAuth),
            ("client", "leasehold", &[], ExtendedKeyUsagePurpose::ClientAuth),
        ] {
            let (certificate, key) = signed(&authority, subject, names, purpose).map_err(io::Error::other)?;
            write(&directory.path().join(file).with_extension("crt"), &certificate)?;
            write(&directory.path().join(file).with_extension("key"), &key)?;
        }
        Ok(Self { directory })
    }

    /// The authority's certificate: what either side has to trust.
    #[must_use]
    pub fn ca_file(&self) -> PathBuf {
        self.directory.path().join("ca.crt")
    }

    /// The server's certificate.
    #[must_use]
    pub fn server_cert(&self) -> PathBuf {
        self.directory.path().join("server.crt")
    }

    /// The server's private key, which only its owner can read.
    #[must_use]
    pub fn server_key(&self) -> PathBuf {
        self.directory.path().join("server.key")
    }

    /// The client's certificate.
    #[must_use]
    pub fn client_cert(&self) -> PathBuf {
        self.directory.path().join("client.crt")
    }

    /// The client's private key, which only its owner can read.
    #[must_use]
    pub fn client_key(&self) -> PathBuf {
        self.directory.path().join("client.key")
    }
}

fn authority() -> Result<CertifiedIssuer<'static, KeyPair>, rcgen::Error> {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "test-servers authority");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate()?)
}

fn signed(
    authority: &CertifiedIssuer<'static, KeyPair>,
    subject: &str,
    names: &[String],
    purpose: ExtendedKeyUsagePurpose,
) -> Result<(String, String), rcgen::Error> {
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name.push(DnType::CommonName, subject);
    params.extended_key_usages.push(purpose);
    let key = KeyPair::generate()?;
    let certificate = params.signed_by(&key, authority)?;
    Ok((certificate.pem(), key.serialize_pem()))
}

/// PostgreSQL refuses a private key that others can read.
fn write(path: &Path, pem: &str) -> io::Result<()> {
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(pem.as_bytes())
}
