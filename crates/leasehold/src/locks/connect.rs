use super::Locks;
use crate::{Check, Error, Memory, Verdict};

impl Locks {
    /// A handle on the store at `url`. The scheme chooses the store:
    ///
    /// | URL | store | feature |
    /// | --- | --- | --- |
    /// | `memory:` | a new [`Memory`] of its own | |
    /// | `sqlite:locks.db`, `sqlite:/var/lib/app/locks.db` | `Sqlite`; `?synchronous=full` survives power cuts without loss | `sqlite` |
    /// | `redis://host:6379/0`, `rediss://host`, `unix:///run/redis.sock`, `redis+sentinel://host/mymaster` | `Redis`; `?prefix=app` names the locks | `redis` |
    /// | `postgres://user@host/database` | `Postgres`, after `leasehold migrate` | `postgres` |
    ///
    /// Cancel-safe.
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](crate::ErrorCode::InvalidArgument) if the URL names no store this build knows; the message
    /// does not repeat the URL, which may contain a password. Otherwise the store's error.
    pub async fn connect(url: &str) -> Result<Self, Error> {
        match scheme_of(url)? {
            ("memory", rest) if rest.trim_start_matches('/').is_empty() => Ok(Self::new(Memory::new())),
            ("memory", _) => Err(Error::invalid("a memory: URL takes nothing after the colon")),
            #[cfg(feature = "sqlite")]
            ("sqlite", rest) => Ok(Self::new(crate::Sqlite::open_url(rest).await?)),
            #[cfg(feature = "redis")]
            (scheme, _) if crate::redis::SCHEMES.contains(&scheme) => Ok(Self::new(crate::Redis::connect(url).await?)),
            #[cfg(feature = "postgres")]
            ("postgres" | "postgresql", _) => Ok(Self::new(crate::Postgres::connect(url).await?)),
            _ => Err(unknown_scheme()),
        }
    }

    /// Makes what the store at `url` needs before it can be used: the tables and functions of PostgreSQL. It may be run at any
    /// time and by many at once. Other stores need nothing.
    ///
    /// Cancel-safe: all of it is done, or nothing.
    ///
    /// # Errors
    ///
    /// As [`connect`](Locks::connect); [`AuthFailed`](crate::ErrorCode::AuthFailed) if the user may not make tables.
    pub async fn migrate(url: &str) -> Result<(), Error> {
        match scheme_of(url)? {
            #[cfg(feature = "postgres")]
            ("postgres" | "postgresql", _) => crate::Postgres::connect(url).await?.migrate().await,
            _ => Self::connect(url).await.map(drop),
        }
    }

    /// What [`migrate`](Locks::migrate) would run in the store at `url`, for somebody else to run; none if it needs nothing.
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](crate::ErrorCode::InvalidArgument) if the URL is wrong.
    pub fn migration(url: &str) -> Result<Option<String>, Error> {
        match scheme_of(url)? {
            #[cfg(feature = "postgres")]
            ("postgres" | "postgresql", _) => crate::Postgres::migration_for(url).map(Some),
            _ => Ok(None),
        }
    }

    /// Looks for whatever could break locks or fences in the store at `url`: what the store can tell of itself, beyond that
    /// its operations work.
    ///
    /// Cancel-safe.
    ///
    /// # Errors
    ///
    /// As [`connect`](Locks::connect).
    pub async fn examine(url: &str) -> Result<Vec<Check>, Error> {
        match scheme_of(url)? {
            ("memory", _) => {
                Ok(vec![Check::new("persistence", Verdict::Warn, "locks exist in this process only, and end with it")])
            }
            #[cfg(feature = "sqlite")]
            ("sqlite", rest) => crate::Sqlite::open_url(rest).await?.examine().await,
            #[cfg(feature = "redis")]
            (scheme, _) if crate::redis::SCHEMES.contains(&scheme) => crate::Redis::connect(url).await?.examine().await,
            #[cfg(feature = "postgres")]
            ("postgres" | "postgresql", _) => crate::Postgres::connect(url).await?.examine().await,
            _ => Err(unknown_scheme()),
        }
    }
}

fn scheme_of(url: &str) -> Result<(&str, &str), Error> {
    url.split_once(':').ok_or_else(|| Error::invalid("the store's URL has no scheme").with_hint("for example memory:"))
}

fn unknown_scheme() -> Error {
    let known = [
        ("memory:", true),
        ("sqlite:", cfg!(feature = "sqlite")),
        ("redis:, rediss:, redis+sentinel:, unix:", cfg!(feature = "redis")),
        ("postgres:", cfg!(feature = "postgres")),
    ];
    let known: Vec<_> = known.into_iter().filter(|(_, built)| *built).map(|(schemes, _)| schemes).collect();
    Error::invalid("the store's URL has a scheme this build does not know")
        .with_hint(format!("the known ones are: {}", known.join(", ")))
}
