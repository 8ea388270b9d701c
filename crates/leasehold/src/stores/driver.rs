use std::any::Any;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::Credentials;
use crate::backend::Backend;
use crate::{Check, Error, Key};

/// What a [migration](crate::Locks::migrate) came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Migrated {
    /// Something was made or brought up to date.
    Changed,
    /// All was there and as it should be.
    UpToDate,
    /// This store makes what it needs by itself.
    NotNeeded,
}

/// A store that is examined in the place of another one, and is there until this is dropped.
#[derive(Debug)]
pub struct StandIn {
    url: String,
    _keeps: Box<dyn fmt::Debug + Send + Sync>,
}

impl StandIn {
    /// The store at `url`, which goes away with `keeps`.
    pub fn new(url: impl Into<String>, keeps: impl fmt::Debug + Send + Sync + 'static) -> Self {
        Self { url: url.into(), _keeps: Box::new(keeps) }
    }

    /// Where it is.
    pub fn url(&self) -> &str {
        &self.url
    }
}

/// What a kind of store does with its URLs. Each is one whose scheme is in the store's
/// [descriptor](crate::stores::StoreDescriptor).
///
/// Only [`connect`](StoreDriver::connect) has to be written. What differs from store to store
/// belongs into the URL, not into the driver, of which there is one in the process.
///
/// No error may repeat the URL, which may contain a password. Every future may be dropped at any
/// point.
///
/// [`register`](crate::stores::register) has an example.
#[async_trait]
pub trait StoreDriver: Any + fmt::Debug + Send + Sync {
    /// The store at `url`.
    async fn connect(&self, url: &str) -> Result<Arc<dyn Backend>, Error>;

    /// The store at `url` for somebody who only looks: see
    /// [`Locks::connect_read_only`](crate::Locks::connect_read_only). By default as
    /// [`connect`](StoreDriver::connect).
    async fn connect_read_only(&self, url: &str) -> Result<Arc<dyn Backend>, Error> {
        self.connect(url).await
    }

    /// Looks for whatever could break locks or fences in the store at `url`, beyond that its
    /// operations work, which [`Locks::examine`](crate::Locks::examine) finds out for every store.
    /// By default nothing.
    async fn examine(&self, url: &str) -> Result<Vec<Check>, Error> {
        let _ = url;
        Ok(Vec::new())
    }

    /// What to examine in the place of a store that is not there yet, so that the examination does
    /// not make it. By default nothing: the store itself is examined.
    fn stand_in(&self, url: &str) -> Result<Option<StandIn>, Error> {
        let _ = url;
        Ok(None)
    }

    /// Removes what `keys`, which only an examination or a [try](super::ScratchKeys) used and
    /// nobody holds, have left in the store: their fences. By default nothing.
    async fn forget(&self, url: &str, keys: &[Key]) -> Result<(), Error> {
        let _ = (url, keys);
        Ok(())
    }

    /// Makes what the store at `url` needs before it can be used: all of it or nothing, at any
    /// time, also by many at once. By default it needs nothing but that it can be reached.
    async fn migrate(&self, url: &str) -> Result<Migrated, Error> {
        self.connect(url).await.map(|_| Migrated::NotNeeded)
    }

    /// What somebody should know before [`migrate`](StoreDriver::migrate) is run: see
    /// [`Locks::migration_warnings`](crate::Locks::migration_warnings). By default nothing.
    async fn migration_warnings(&self, url: &str) -> Result<Vec<String>, Error> {
        let _ = url;
        Ok(Vec::new())
    }

    /// What [`migrate`](StoreDriver::migrate) would run in the store at `url`, for somebody else to
    /// run. By default nothing.
    fn migration(&self, url: &str) -> Result<Option<String>, Error> {
        let _ = url;
        Ok(None)
    }

    /// `url` as others may see it: see [`public_url`](crate::stores::public_url). Written anew from
    /// what [`connect`](StoreDriver::connect) would use of it, without credentials: who cuts them
    /// out of the text has to know all the ways to spell them. By default, and if it fails, only
    /// the scheme is shown.
    fn public_url(&self, url: &str) -> Result<String, Error> {
        let _ = url;
        Err(Error::invalid("the store does not say what others may see of its URLs"))
    }

    /// What [`public_url`](StoreDriver::public_url) leaves out of `url`. By default nothing.
    fn credentials(&self, url: &str) -> Credentials {
        let _ = url;
        Credentials::None
    }

    /// `url` for somebody who works in another directory: see
    /// [`absolute_url`](crate::stores::absolute_url). By default the same.
    fn absolute_url(&self, url: &str, directory: &Path) -> String {
        let _ = directory;
        url.to_owned()
    }

    /// Waits until what the stores of this kind leave behind is in order: see
    /// [`wait_until_closed`](crate::stores::wait_until_closed). By default there is nothing to wait
    /// for.
    fn wait_until_closed(&self, timeout: Duration) -> bool {
        let _ = timeout;
        true
    }
}
