use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;

use super::url::{READER, Target};
use super::{Firestore, FirestoreOptions};
use crate::backend::Backend;
use crate::stores::{Credentials, StoreDriver};
use crate::{Check, Error, Key};

#[derive(Debug)]
pub(crate) struct Driver;

#[async_trait]
impl StoreDriver for Driver {
    async fn connect(&self, url: &str) -> Result<Arc<dyn Backend>, Error> {
        Ok(Arc::new(Firestore::connect(url).await?))
    }

    async fn examine(&self, url: &str) -> Result<Vec<Check>, Error> {
        Firestore::connect(url).await?.examine().await
    }

    async fn forget(&self, url: &str, keys: &[Key]) -> Result<(), Error> {
        Firestore::connect(url).await?.forget(keys).await
    }

    fn absolute_url(&self, url: &str, directory: &Path) -> String {
        READER.with_absolute_files(url, &["ca", "credentials"], directory)
    }

    fn credentials(&self, url: &str) -> Credentials {
        Target::read(url, FirestoreOptions::default()).map_or(Credentials::None, |target| target.credentials())
    }

    fn public_url(&self, url: &str) -> Result<String, Error> {
        Ok(Target::read(url, FirestoreOptions::default())?.public_url())
    }
}
