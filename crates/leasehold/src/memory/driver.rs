use std::sync::Arc;

use async_trait::async_trait;

use super::Memory;
use crate::backend::Backend;
use crate::stores::StoreDriver;
use crate::url_option::UrlReader;
use crate::{Check, Error, Verdict};

/// Each URL is a new store: one that others should share has to be passed to them.
#[derive(Debug)]
pub(crate) struct Driver;

const READER: UrlReader = UrlReader { scheme: "memory" };

#[async_trait]
impl StoreDriver for Driver {
    async fn connect(&self, url: &str) -> Result<Arc<dyn Backend>, Error> {
        let (address, options) = READER.split(url)?;
        if !address.split_once(':').is_some_and(|(_, rest)| rest.trim_start_matches('/').is_empty()) {
            return Err(READER.unusable("has something after the colon, where nothing should be"));
        }
        if !options.is_empty() {
            return Err(READER.unknown_option("none"));
        }
        Ok(Arc::new(Memory::new()))
    }

    async fn examine(&self, _: &str) -> Result<Vec<Check>, Error> {
        Ok(vec![Check::new("persistence", Verdict::Warn, "locks exist in this process only, and end with it")])
    }

    fn public_url(&self, _: &str) -> Result<String, Error> {
        Ok("memory:".to_owned())
    }
}
