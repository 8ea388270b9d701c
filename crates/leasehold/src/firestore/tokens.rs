//! Who we are: the word that every request says to the server.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gcp_auth::{CustomServiceAccount, TokenProvider};
use tokio::sync::Mutex as AsyncMutex;
use tonic::metadata::{Ascii, MetadataValue};

use super::place::Access;
use crate::remote::driver_error::not_connected_in_time;
use crate::sync::lock;
use crate::{Error, ErrorCode, Operation};

/// What a token must allow.
const SCOPES: &[&str] = &["https://www.googleapis.com/auth/datastore"];

/// What to do about credentials that are missing or of no use.
const HINT: &str = "name the key file of a service account in GOOGLE_APPLICATION_CREDENTIALS or in the option \
    credentials, or run `gcloud auth application-default login`";

/// Gets tokens, and new ones when they have expired. It belongs to one runtime, as its connections
/// do.
pub(super) struct Tokens {
    access: Access,
    provider: Mutex<Option<Provider>>,
    /// Held by the task that looks for credentials.
    looking: AsyncMutex<()>,
}

/// Where tokens come from, until the server does not take one of them.
#[derive(Clone)]
struct Provider {
    generation: Generation,
    source: Arc<dyn TokenProvider>,
}

/// Tells tokens from those that came after them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Generation(u64);

impl Tokens {
    pub(super) fn new(access: Access) -> Self {
        Self { access, provider: Mutex::default(), looking: AsyncMutex::default() }
    }

    /// What to say in the header `authorization`, and which of the tokens that is.
    ///
    /// Cancel-safe.
    ///
    /// # Errors
    ///
    /// `AuthFailed` if there are no credentials, or nobody takes them.
    pub(super) async fn authorization(&self) -> Result<(MetadataValue<Ascii>, Generation), Error> {
        let Access::Google(file) = &self.access else {
            return Ok((MetadataValue::from_static("Bearer owner"), Generation::default()));
        };
        let Provider { generation, source } =
            self.provider(file.as_deref()).await.map_err(|source| no_credentials(&source))?;
        let token = source.token(SCOPES).await.map_err(|source| {
            Error::new(ErrorCode::AuthFailed, "no token is to be had for the credentials")
                .with_hint(HINT)
                .with_source(Said::new(&source))
        })?;
        let value = format!("Bearer {}", token.as_str()).parse::<MetadataValue<Ascii>>();
        let mut value = value.map_err(|_| Error::new(ErrorCode::AuthFailed, "the token cannot be sent"))?;
        value.set_sensitive(true);
        Ok((value, generation))
    }

    /// The server did not take a token, whatever its date says: the next one is a new one, unless
    /// somebody else has seen to that already. Tells whether there can be another.
    pub(super) fn discard(&self, refused: Generation) -> bool {
        lock(&self.provider).take_if(|provider| provider.generation == refused);
        self.access != Access::Emulator
    }

    /// There was no time left to get one.
    pub(super) fn late(&self, operation: Operation, after: Duration) -> Error {
        match self.access {
            Access::Emulator => not_connected_in_time(operation, after),
            Access::Google(_) => {
                Error::new(ErrorCode::NetworkTimeout, format!("no token was to be had within {after:?}"))
                    .with_hint(HINT)
                    .during(operation)
            }
        }
    }

    async fn provider(&self, file: Option<&std::path::Path>) -> Result<Provider, gcp_auth::Error> {
        let known = || lock(&self.provider).clone();
        if let Some(provider) = known() {
            return Ok(provider);
        }
        let _looking = self.looking.lock().await;
        if let Some(provider) = known() {
            return Ok(provider);
        }
        let source: Arc<dyn TokenProvider> = match file {
            Some(file) => Arc::new(CustomServiceAccount::from_file(file)?),
            None => gcp_auth::provider().await?,
        };
        let found = Provider { generation: Generation(fastrand::u64(1..)), source };
        *lock(&self.provider) = Some(found.clone());
        Ok(found)
    }
}

fn no_credentials(source: &gcp_auth::Error) -> Error {
    Error::new(ErrorCode::AuthFailed, "no credentials for Google Cloud can be used")
        .with_hint(HINT)
        .with_source(Said::new(source))
}

/// What the library said, which may be the content of a file.
#[derive(Debug)]
struct Said(&'static str);

impl Said {
    fn new(error: &gcp_auth::Error) -> Self {
        use gcp_auth::Error as Known;
        Self(match error {
            Known::NoAuthMethod(..) => "no credentials were found",
            Known::Http(what, _) | Known::Io(what, _) | Known::Json(what, _) | Known::Other(what, _) => what,
            Known::Str(what) => what,
        })
    }
}

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for Said {}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tokens").finish_non_exhaustive()
    }
}
