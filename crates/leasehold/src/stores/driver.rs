use std::any::Any;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::Credentials;
use crate::backend::Backend;
use crate::{Check, Error};

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

    /// Looks for whatever could break locks or fences in the store at `url`, beyond that its
    /// operations work, which [`Locks::examine`](crate::Locks::examine) finds out for every store.
    /// By default nothing.
    async fn examine(&self, url: &str) -> Result<Vec<Check>, Error> {
        let _ = url;
        Ok(Vec::new())
    }

    /// Makes what the store at `url` needs before it can be used: all of it or nothing, at any
    /// time, also by many at once. By default it needs nothing but that it can be reached.
    async fn migrate(&self, url: &str) -> Result<(), Error> {
        self.connect(url).await.map(drop)
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
