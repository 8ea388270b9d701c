use super::{Locks, LocksBuilder};
use crate::Error;
use crate::stores::{Migrated, store_of};

impl Locks {
    /// A handle on the store at `url`, with the default settings. The scheme chooses the store:
    ///
    /// | URL | store | feature |
    /// | --- | --- | --- |
    /// | `memory:` | a new [`Memory`](crate::memory::Memory) of its own | |
    /// | `sqlite:locks.db`, `sqlite:/var/lib/app/locks.db` | `Sqlite`; `?synchronous=full` survives power cuts without loss | `sqlite` |
    /// | `redis://host:6379/0`, `rediss://host`, `unix:///run/redis.sock`, `redis+sentinel://host/mymaster` | `Redis`; `?prefix=app` names the locks | `redis` |
    /// | `postgres://user@host/database` | `Postgres`, after `leasehold migrate` | `postgres` |
    /// | `firestore://project` | `Firestore` | `firestore` |
    ///
    /// [`stores::register`](crate::stores::register) adds stores of your own, and
    /// [`stores`](crate::stores) lists all.
    ///
    /// Cancel-safe.
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](crate::ErrorCode::InvalidArgument) if the URL names no store that this
    /// process knows, or one whose feature is off; the message does not repeat the URL, which may
    /// contain a password. Otherwise the store's error.
    pub async fn connect(url: &str) -> Result<Self, Error> {
        Self::connect_with(url, |builder| builder).await
    }

    /// A handle on the store at `url`, with the settings that `configure` chooses.
    ///
    /// ```
    /// use leasehold::layers::TelemetryLayer;
    /// use leasehold::{Holder, Locks};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), leasehold::Error> {
    /// let holder = Holder::new("billing/worker-1")?;
    /// let locks = Locks::connect_with("memory:", |builder| {
    ///     let report = |event: &leasehold::layers::LockEvent| println!("{event:?}");
    ///     builder.holder(holder).layer(|store| TelemetryLayer::new(store, report))
    /// })
    /// .await?;
    /// # locks.lock("invoice:7").acquire().await?.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Cancel-safe.
    ///
    /// # Errors
    ///
    /// As [`connect`](Locks::connect).
    pub async fn connect_with(url: &str, configure: impl FnOnce(LocksBuilder) -> LocksBuilder) -> Result<Self, Error> {
        let store = store_of(url)?.driver()?.connect(url).await?;
        Ok(configure(LocksBuilder::new(store)).build())
    }

    /// A handle for somebody who only looks at locks: [`list`](Locks::list),
    /// [`get_by_key`](Locks::get_by_key), [`now`](Locks::now). It needs no right to write, and
    /// makes nothing: in a SQLite file that does not exist there are no locks. What would change
    /// something may fail or be in vain.
    ///
    /// Cancel-safe.
    ///
    /// # Errors
    ///
    /// As [`connect`](Locks::connect).
    pub async fn connect_read_only(url: &str) -> Result<Self, Error> {
        Ok(LocksBuilder::new(store_of(url)?.driver()?.connect_read_only(url).await?).build())
    }

    /// Makes what the store at `url` needs before it can be used, such as the tables and functions
    /// of PostgreSQL, and tells whether there was anything to do. It may be run at any time and by
    /// many at once. Most stores need nothing, and are only reached.
    ///
    /// Cancel-safe: all of it is done, or nothing.
    ///
    /// # Errors
    ///
    /// As [`connect`](Locks::connect); [`AuthFailed`](crate::ErrorCode::AuthFailed) if the user may
    /// not make tables.
    pub async fn migrate(url: &str) -> Result<Migrated, Error> {
        store_of(url)?.driver()?.migrate(url).await
    }

    /// What somebody should know before [`migrate`](Locks::migrate) is run on the store at `url`:
    /// whom it may disturb, and whose locks would not be shared. `leasehold migrate` asks first if
    /// there is anything. Nothing is changed.
    ///
    /// Cancel-safe.
    ///
    /// # Errors
    ///
    /// As [`connect`](Locks::connect).
    pub async fn migration_warnings(url: &str) -> Result<Vec<String>, Error> {
        store_of(url)?.driver()?.migration_warnings(url).await
    }

    /// What [`migrate`](Locks::migrate) would run in the store at `url`, for somebody else to run;
    /// none if it needs nothing.
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](crate::ErrorCode::InvalidArgument) if the URL is wrong.
    pub fn migration(url: &str) -> Result<Option<String>, Error> {
        store_of(url)?.driver()?.migration(url)
    }
}
