use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::Sqlite;
use crate::backend::Backend;
use crate::stores::StoreDriver;
use crate::{Check, Error};

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
