use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;

use super::public_url::public_url;
use super::url::{READER, credentials, parse};
use super::{Postgres, PostgresOptions};
use crate::backend::Backend;
use crate::stores::{Credentials, Migrated, StoreDriver};
use crate::url_option::UrlOption;
use crate::{Check, Error, Key};

#[derive(Debug)]
pub(crate) struct Driver;

#[async_trait]
impl StoreDriver for Driver {
    async fn connect(&self, url: &str) -> Result<Arc<dyn Backend>, Error> {
        Ok(Arc::new(Postgres::connect(url).await?))
    }

    async fn examine(&self, url: &str) -> Result<Vec<Check>, Error> {
        Postgres::connect(url).await?.examine().await
    }

    async fn forget(&self, url: &str, keys: &[Key]) -> Result<(), Error> {
        Postgres::connect(url).await?.forget(keys).await
    }

    async fn migrate(&self, url: &str) -> Result<Migrated, Error> {
        Postgres::connect(url).await?.migrate().await
    }

    async fn migration_warnings(&self, url: &str) -> Result<Vec<String>, Error> {
        Postgres::connect(url).await?.migration_warnings().await
    }

    fn migration(&self, url: &str) -> Result<Option<String>, Error> {
        Postgres::migration_for(url).map(Some)
    }

    fn absolute_url(&self, url: &str, directory: &Path) -> String {
        // Not a file: the authorities that the operating system trusts.
        let system = |option: &UrlOption<'_>| option.name == "sslrootcert" && option.value == "system";
        let roots = READER.split(url).is_ok_and(|(_, options)| !options.iter().any(system));
        let files: &[&str] = if roots { &["sslrootcert", "sslcert", "sslkey"] } else { &["sslcert", "sslkey"] };
        READER.with_absolute_files(url, files, directory)
    }

    fn credentials(&self, url: &str) -> Credentials {
        credentials(url).unwrap_or_default()
    }

    fn public_url(&self, url: &str) -> Result<String, Error> {
        let scheme = url.split(':').next().unwrap_or_default();
        public_url(scheme, &parse(url, PostgresOptions::default())?)
    }
}
