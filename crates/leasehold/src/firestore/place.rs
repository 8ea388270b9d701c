//! Where a database is, and how to get there.

use std::fmt;
use std::path::PathBuf;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tokio::net::TcpStream;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Uri};
use tower_service::Service;

use super::FirestoreOptions;
use super::url::READER;
use crate::Error;
use crate::remote::resolve::resolve;

/// Google's own servers.
const GOOGLE: &str = "firestore.googleapis.com";

/// A server that is gone without a word is noticed after these two, while it is waited for.
const KEEP_ALIVE: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(5));

/// A database, and the server that has it.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) project: String,
    /// `projects/PROJECT/databases/DATABASE`.
    pub(super) database: String,
    pub(super) server: Server,
    pub(super) timeout: Duration,
}

/// How a server is spoken to.
pub(super) struct Server {
    endpoint: Endpoint,
    host: String,
    port: u16,
    timeout: Duration,
    pub(super) access: Access,
}

/// How a server knows who we are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// It takes everybody for the owner.
    Emulator,
    /// By the key file of a service account, or application default credentials.
    Google(Option<PathBuf>),
}

impl Server {
    /// An emulator at `host:port`.
    pub(super) fn emulator(address: &str, timeout: Duration) -> Result<Self, Error> {
        let (host, port) = split(address, None)?;
        let endpoint = endpoint("http", &host, port)?;
        Ok(Self { endpoint, host, port, timeout, access: Access::Emulator })
    }

    /// Google's servers, or what stands in their place, with TLS.
    pub(super) fn google(options: &FirestoreOptions) -> Result<Self, Error> {
        let (host, port) = split(options.endpoint.as_deref().unwrap_or(GOOGLE), Some(443))?;
        let mut tls = ClientTlsConfig::new().domain_name(host.trim_matches(['[', ']']));
        tls = match &options.ca {
            None => tls.with_native_roots(),
            Some(file) => {
                let pem = std::fs::read(file).map_err(|source| {
                    Error::invalid("a file for TLS cannot be read").with_hint("check the option ca").with_source(source)
                })?;
                if !CertificateDer::pem_slice_iter(&pem).any(|found| found.is_ok()) {
                    return Err(Error::invalid("the file of trusted authorities has no certificate")
                        .with_hint("the option ca must name a file in PEM format"));
                }
                tls.ca_certificate(Certificate::from_pem(pem))
            }
        };
        let endpoint = endpoint("https", &host, port)?.tls_config(tls).map_err(|source| {
            Error::invalid("the certificates for TLS cannot be used")
                .with_hint("check the option ca, or the certificates of the operating system")
                .with_source(source)
        })?;
        Ok(Self { endpoint, host, port, timeout: options.timeout, access: Access::Google(options.credentials.clone()) })
    }

    /// What carries requests to the server. It connects with the first of them, and again when the
    /// connection was lost.
    pub(super) fn channel(&self) -> Channel {
        let connector = Connector { host: self.host.clone(), port: self.port, timeout: self.timeout };
        self.endpoint.connect_with_connector_lazy(connector)
    }
}

fn endpoint(scheme: &str, host: &str, port: u16) -> Result<Endpoint, Error> {
    let endpoint = Endpoint::from_shared(format!("{scheme}://{host}:{port}"));
    let endpoint = endpoint.map_err(|_| READER.unusable("names a host that cannot be one"))?;
    Ok(endpoint.tcp_nodelay(true).http2_keep_alive_interval(KEEP_ALIVE.0).keep_alive_timeout(KEEP_ALIVE.1))
}

/// The host, in brackets if it is an address with colons, and the port.
pub(super) fn split(address: &str, usual: Option<u16>) -> Result<(String, u16), Error> {
    let unusable = || READER.unusable("names a host that cannot be one").with_hint("for example localhost:8080");
    let after_address = address.rfind(']').map_or(0, |end| end + 1);
    let (host, port) = match (address[after_address..].find(':'), usual) {
        (Some(colon), _) => {
            let (host, port) = address.split_at(after_address + colon);
            (host, port[1..].parse().map_err(|_| unusable())?)
        }
        (None, Some(usual)) => (address, usual),
        (None, None) => return Err(unusable()),
    };
    if host.is_empty() || port == 0 || host.contains(['/', '@', '?', '#', ' ']) {
        return Err(unusable());
    }
    Ok((host.to_owned(), port))
}

/// Opens connections. The name of the host is looked up on a thread of our own.
#[derive(Clone, Debug)]
struct Connector {
    host: String,
    port: u16,
    timeout: Duration,
}

/// Nothing was sent, because there is no connection.
#[derive(Debug)]
pub(super) struct NotConnected(pub(super) std::io::Error);

impl Connector {
    async fn connect(self) -> Result<TokioIo<TcpStream>, NotConnected> {
        let addresses = resolve(self.host.trim_matches(['[', ']']), self.port).await.map_err(NotConnected)?;
        // One that leads nowhere must not use up the time of the others.
        let share = self.timeout / u32::try_from(addresses.len()).unwrap_or(u32::MAX).max(1);
        let mut last = std::io::Error::from(std::io::ErrorKind::NotFound);
        for address in addresses {
            match tokio::time::timeout(share, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => {
                    stream.set_nodelay(true).map_err(NotConnected)?;
                    return Ok(TokioIo::new(stream));
                }
                Ok(Err(error)) => last = error,
                Err(_) => last = std::io::ErrorKind::TimedOut.into(),
            }
        }
        Err(NotConnected(last))
    }
}

impl Service<Uri> for Connector {
    type Response = TokioIo<TcpStream>;
    type Error = NotConnected;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, NotConnected>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), NotConnected>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        Box::pin(self.clone().connect())
    }
}

impl fmt::Display for NotConnected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no connection: {}", self.0)
    }
}

impl std::error::Error for NotConnected {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.0)
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("host", &self.host).field("port", &self.port).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_have_a_port_or_the_usual_one() {
        let split = |text, usual| split(text, usual).ok();
        assert_eq!(split("h:1", None), Some(("h".to_owned(), 1)));
        assert_eq!(split("h", Some(443)), Some(("h".to_owned(), 443)));
        assert_eq!(split("[::1]:8080", None), Some(("[::1]".to_owned(), 8080)));
        assert_eq!(split("[::1]", Some(443)), Some(("[::1]".to_owned(), 443)));
        for wrong in ["h", "", ":1", "h:0", "h:x", "h:1:2", "http://h:1", "me@h:1", "h:99999"] {
            assert_eq!(split(wrong, None), None, "{wrong}");
        }
    }
}
