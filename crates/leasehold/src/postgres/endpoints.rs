use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio_postgres::config::{Host, LoadBalanceHosts};
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{Client, Config, Connection, Socket};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::error::{translate, unresolved};
use super::places::PORT;
use crate::remote::driver_error::not_connected_in_time;
use crate::remote::resolve::resolve;
use crate::{Error, ErrorCode, Operation};

/// What moves the data of a [`Client`].
pub(super) type Wire = Connection<Socket, <MakeRustlsConnect as MakeTlsConnect<Socket>>::Stream>;

/// One server that a URL names, and how to connect to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Endpoint {
    pub(super) config: Config,
    /// Why a password that may be meant for it is not used.
    pub(super) no_password: Option<&'static str>,
}

/// The servers that a URL names. If there are several, they are copies of one another, of which one
/// accepts writes.
pub(super) struct Endpoints {
    all: Vec<Endpoint>,
    pub(super) tls: MakeRustlsConnect,
    /// The longest that it may take to connect to one of them.
    limit: Duration,
    /// The one that was of use last, which is tried first.
    last: AtomicUsize,
}

impl Endpoints {
    /// Connecting to all of them takes `timeout` at most, unless they have a limit of their own.
    pub(super) fn new(all: Vec<Endpoint>, tls: MakeRustlsConnect, timeout: Duration) -> Self {
        let shared = timeout / u32::try_from(all.len().max(1)).unwrap_or(u32::MAX);
        let limit = all.first().and_then(|endpoint| endpoint.config.get_connect_timeout().copied()).unwrap_or(shared);
        Self { all, tls, limit, last: AtomicUsize::new(0) }
    }

    /// Connects to the first that will have us: as a rule, that accepts writes.
    ///
    /// # Errors
    ///
    /// What one of them answered, or else why the last could not be reached.
    pub(super) async fn connect(&self, operation: Operation) -> Result<(Client, Wire), Error> {
        let start = self.start();
        let mut kept: Option<(Error, bool)> = None;
        for index in (0..self.all.len()).map(|step| (start + step) % self.all.len()) {
            let endpoint = &self.all[index];
            let connecting = async {
                let config = endpoint.resolved().await.map_err(|error| (unresolved(error), false, false))?;
                config.connect(self.tls.clone()).await.map_err(|error| {
                    let (answered, is_final) = (error.code().is_some(), ends_the_search(&error));
                    (endpoint.explain(translate(error, false)), answered, is_final)
                })
            };
            let (error, answered, is_final) = match tokio::time::timeout(self.limit, connecting).await {
                Ok(Ok(connected)) => {
                    self.last.store(index, Ordering::Relaxed);
                    return Ok(connected);
                }
                Ok(Err(failure)) => failure,
                Err(_) => (not_connected_in_time(operation, self.limit), false, false),
            };
            // What a server says tells more than that another is silent.
            if answered || kept.as_ref().is_none_or(|(_, answered)| !answered) {
                kept = Some((error, answered));
            }
            if is_final {
                break;
            }
        }
        let error = kept.map(|(error, _)| error);
        Err(error.unwrap_or_else(|| Error::new(ErrorCode::Internal, "there is no server")).during(operation))
    }

    fn start(&self) -> usize {
        let is_random = |endpoint: &Endpoint| endpoint.config.get_load_balance_hosts() == LoadBalanceHosts::Random;
        if self.all.first().is_some_and(is_random) {
            return fastrand::usize(..self.all.len());
        }
        self.last.load(Ordering::Relaxed)
    }
}

impl Endpoint {
    /// With the addresses of its host, which the driver would look up in a way that may panic.
    async fn resolved(&self) -> std::io::Result<Config> {
        let mut config = self.config.clone();
        let port = config.get_ports().first().copied().unwrap_or(PORT);
        if let ([Host::Tcp(name)], []) = (self.config.get_hosts(), self.config.get_hostaddrs()) {
            for (number, address) in resolve(name, port).await?.iter().enumerate() {
                // The driver wants a name for each address.
                if number > 0 {
                    config.host(name);
                }
                config.hostaddr(address.ip());
            }
        }
        Ok(config)
    }

    fn explain(&self, error: Error) -> Error {
        match self.no_password {
            Some(why) if error.code() == ErrorCode::AuthFailed => error.with_hint(why),
            _ => error,
        }
    }
}

/// Whether no other server is asked. As the server's own clients do: what one refuses is not shown
/// to the next, unless it only has no room or no time.
fn ends_the_search(error: &tokio_postgres::Error) -> bool {
    error.code().is_some_and(|state| state.code() != "57P03" && !state.code().starts_with("53"))
}
