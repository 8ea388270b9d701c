use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::{Sqlite, stand_in};
use crate::backend::Backend;
use crate::stores::{StandIn, StoreDriver};
use crate::{Check, Error, Key};

/// A URL is a scheme and the path of a file. There are no credentials in it.
#[derive(Debug)]
pub(crate) struct Driver;

async fn open(url: &str) -> Result<Sqlite, Error> {
    Sqlite::open_url(split(url).1).await
}

fn split(url: &str) -> (&str, &str) {
    url.split_once(':').unwrap_or(("sqlite", url))
}

#[async_trait]
impl StoreDriver for Driver {
    async fn connect(&self, url: &str) -> Result<Arc<dyn Backend>, Error> {
        Ok(Arc::new(open(url).await?))
    }

    async fn connect_read_only(&self, url: &str) -> Result<Arc<dyn Backend>, Error> {
        let (path, _) = super::url::parse(split(url).1)?;
        Ok(Arc::new(Sqlite::open_read_only(path).await?))
    }

    fn stand_in(&self, url: &str) -> Result<Option<StandIn>, Error> {
        let (path, options) = super::url::parse(split(url).1)?;
        if !options.create {
            return Ok(None);
        }
        let found = stand_in::StandIn::of(Path::new(path))?;
        Ok(found.map(|found| StandIn::new(format!("sqlite:{}", found.file().display()), found)))
    }

    async fn forget(&self, url: &str, keys: &[Key]) -> Result<(), Error> {
        open(url).await?.forget(keys).await
    }

    async fn examine(&self, url: &str) -> Result<Vec<Check>, Error> {
        open(url).await?.examine().await
    }

    fn public_url(&self, url: &str) -> Result<String, Error> {
        let (scheme, rest) = split(url);
        super::url::public(scheme, rest)
    }

    fn absolute_url(&self, url: &str, directory: &Path) -> String {
        match split(url) {
            (scheme, file) if !file.starts_with('/') => format!("{scheme}:{}", directory.join(file).display()),
            _ => url.to_owned(),
        }
    }

    fn wait_until_closed(&self, timeout: Duration) -> bool {
        Sqlite::wait_until_closed(timeout)
    }
}
