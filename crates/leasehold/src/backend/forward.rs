use std::sync::Arc;

use async_trait::async_trait;

use super::{
    Acquire, AcquireAll, AcquireRequest, Backend, Capabilities, Extend, Inspected, ListPage, ListRequest, LookupBy,
    Record, Release, Subscription, Topic,
};
use crate::{Error, Fence, Key, LockId, Timestamp, Ttl};

/// Shared and boxed stores are stores, so that a store chosen at run time fits wherever one is
/// asked for.
macro_rules! forward {
    ($pointer:ident) => {
        #[async_trait]
        impl<B: Backend + ?Sized> Backend for $pointer<B> {
            async fn acquire(&self, request: &AcquireRequest) -> Result<Acquire, Error> {
                (**self).acquire(request).await
            }

            async fn acquire_all(&self, requests: &[AcquireRequest]) -> Result<AcquireAll, Error> {
                (**self).acquire_all(requests).await
            }

            async fn release(&self, id: &LockId) -> Result<Release, Error> {
                (**self).release(id).await
            }

            async fn extend(&self, id: &LockId, ttl: Ttl) -> Result<Extend, Error> {
                (**self).extend(id, ttl).await
            }

            async fn extend_many(&self, locks: &[(LockId, Ttl)]) -> Vec<Result<Extend, Error>> {
                (**self).extend_many(locks).await
            }

            async fn release_many(&self, ids: &[LockId]) -> Vec<Result<Release, Error>> {
                (**self).release_many(ids).await
            }

            async fn is_locked(&self, key: &Key) -> Result<bool, Error> {
                (**self).is_locked(key).await
            }

            async fn lookup(&self, by: LookupBy<'_>) -> Result<Option<Record>, Error> {
                (**self).lookup(by).await
            }

            async fn inspect(&self, key: &Key) -> Result<Inspected, Error> {
                (**self).inspect(key).await
            }

            async fn list(&self, request: &ListRequest) -> Result<ListPage, Error> {
                (**self).list(request).await
            }

            async fn subscribe(&self, topic: Topic<'_>) -> Result<Subscription, Error> {
                (**self).subscribe(topic).await
            }

            async fn force_release(&self, key: &Key, only: Option<Fence>) -> Result<Vec<Record>, Error> {
                (**self).force_release(key, only).await
            }

            async fn now(&self) -> Result<Timestamp, Error> {
                (**self).now().await
            }

            fn capabilities(&self) -> Capabilities {
                (**self).capabilities()
            }
        }
    };
}

forward!(Arc);
forward!(Box);
