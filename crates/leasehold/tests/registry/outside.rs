//! A store of another crate is a store like any other.

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex};

use async_trait::async_trait;
use leasehold::backend::Backend;
use leasehold::memory::Memory;
use leasehold::stores::{Migrated, StoreDescriptor, StoreDriver, absolute_url, all, public_url, register};
use leasehold::testing::{Fault, FaultLayer};
use leasehold::{Check, Error, ErrorCode, Locks, Operation, Verdict};

/// Places with locks, by the host in the URL; to be migrated before they are used.
static PLACES: LazyLock<Mutex<HashMap<String, Memory>>> = LazyLock::new(Mutex::default);

/// A store with everything that a store can have.
#[derive(Debug)]
struct Complete;

fn host(url: &str) -> String {
    url.rsplit(['/', '@']).next().unwrap_or_default().to_owned()
}

#[async_trait]
impl StoreDriver for Complete {
    async fn connect(&self, url: &str) -> Result<Arc<dyn Backend>, Error> {
        let place = PLACES.lock().unwrap().get(&host(url)).cloned();
        Ok(Arc::new(place.ok_or_else(|| Error::new(ErrorCode::InvalidArgument, "the store was not migrated"))?))
    }

    async fn examine(&self, url: &str) -> Result<Vec<Check>, Error> {
        Ok(vec![Check::new("place", Verdict::Warn, host(url))])
    }

    async fn migrate(&self, url: &str) -> Result<Migrated, Error> {
        PLACES.lock().unwrap().entry(host(url)).or_default();
        Ok(Migrated::Changed)
    }

    fn migration(&self, url: &str) -> Result<Option<String>, Error> {
        Ok(Some(format!("make {}", host(url))))
    }

    fn public_url(&self, url: &str) -> Result<String, Error> {
        Ok(format!("complete://{}", host(url)))
    }

    fn absolute_url(&self, url: &str, directory: &Path) -> String {
        format!("{url}?from={}", directory.display())
    }
}

const COMPLETE: StoreDescriptor =
    StoreDescriptor::new("Complete", &["complete", "complete+tls"], "complete://host", &Complete);

/// A store with nothing but what it must have, which does not work.
#[derive(Debug)]
struct Faulty;

#[async_trait]
impl StoreDriver for Faulty {
    async fn connect(&self, url: &str) -> Result<Arc<dyn Backend>, Error> {
        let (store, faults) = FaultLayer::new(Memory::new());
        let code = if url.ends_with("auth") { ErrorCode::AuthFailed } else { ErrorCode::Internal };
        faults.always(Operation::Release, Fault::FailBefore(code));
        Ok(Arc::new(store))
    }
}

const FAULTY: StoreDescriptor = StoreDescriptor::new("Faulty", &["faulty"], "faulty:", &Faulty);

fn check<'a>(checks: &'a [Check], name: &str) -> &'a Check {
    checks.iter().find(|check| check.name == name).unwrap_or_else(|| panic!("no check {name} in {checks:?}"))
}

#[tokio::test]
async fn a_registered_store_is_connected_examined_and_migrated_by_its_url() {
    register(COMPLETE).unwrap();
    let url = "complete+tls://me:secret@one";
    assert_eq!(Locks::connect(url).await.unwrap_err().to_string(), "the store was not migrated");
    assert_eq!(Locks::migration(url).unwrap().as_deref(), Some("make one"));
    assert_eq!(Locks::migrate(url).await.unwrap(), Migrated::Changed);

    let locks = Locks::connect(url).await.unwrap();
    let guard = locks.lock("k").acquire().await.unwrap();
    assert!(Locks::connect("complete://one").await.unwrap().lock("k").try_acquire().await.unwrap().is_none());

    let checks = Locks::examine(url).await.unwrap();
    for name in ["reachable", "exclusion", "lookup", "release", "fences grow", "time", "wake-ups", "fence floor"] {
        assert_eq!(check(&checks, name).verdict, Verdict::Ok, "{checks:?}");
    }
    assert_eq!(check(&checks, "place"), &Check::new("place", Verdict::Warn, "one"));
    assert_eq!(PLACES.lock().unwrap()["one"].len(), 1, "an examination leaves nothing behind");
    guard.release().await.unwrap();
}

#[tokio::test]
async fn its_credentials_are_hidden_and_it_is_listed_and_named() {
    register(COMPLETE).unwrap();
    register(FAULTY).unwrap();
    assert_eq!(public_url("complete://me:secret@one"), "complete://one");
    assert_eq!(public_url("faulty://me:secret@one"), "faulty:", "only the scheme, unless the store knows better");
    assert_eq!(absolute_url("complete://one", Path::new("/srv")), "complete://one?from=/srv");
    assert_eq!(absolute_url("faulty:one", Path::new("/srv")), "faulty:one");
    assert!(all().iter().any(|store| store.name == "Complete" && store.is_built_in()));
    let error = Locks::connect("nosuch:").await.unwrap_err();
    assert!(error.hint().unwrap().contains("complete+tls:"), "{error:?}");
}

#[tokio::test]
async fn a_store_without_examinations_of_its_own_is_examined_and_what_fails_is_told() {
    register(FAULTY).unwrap();
    assert_eq!(Locks::migrate("faulty:").await.unwrap(), Migrated::NotNeeded);
    assert_eq!(Locks::migration("faulty:").unwrap(), None);
    for (url, code) in [("faulty:auth", ErrorCode::AuthFailed), ("faulty:", ErrorCode::Internal)] {
        let checks = Locks::examine(url).await.unwrap();
        let found = check(&checks, "operations");
        assert_eq!((found.verdict, found.error), (Verdict::Fail, Some(code)), "{checks:?}");
        assert_eq!(check(&checks, "reachable").verdict, Verdict::Ok);
    }
}

#[test]
fn a_scheme_belongs_to_whoever_had_it_first() {
    #[derive(Debug)]
    struct Other;
    #[async_trait]
    impl StoreDriver for Other {
        async fn connect(&self, _: &str) -> Result<Arc<dyn Backend>, Error> {
            Err(Error::new(ErrorCode::Internal, "the other"))
        }
    }
    register(COMPLETE).unwrap();
    register(COMPLETE).expect("the same again");
    assert_eq!(all().iter().filter(|store| store.name == "Complete").count(), 1);

    let refused = |store: StoreDescriptor| {
        let error = register(store).unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidArgument, "{error:?}");
        assert!(!all().iter().any(|store| store.name == "Other"), "all or nothing");
        error.to_string()
    };
    let other = |schemes, example| StoreDescriptor::new("Other", schemes, example, &Other);
    let taken = "the scheme complete: belongs to the Complete store";
    assert_eq!(refused(other(&["other-new", "complete"], "complete:")), taken);
    let same_name = StoreDescriptor::new(COMPLETE.name, COMPLETE.schemes, COMPLETE.example, &Other);
    assert_eq!(refused(same_name), taken, "the name does not matter");
    for store in all() {
        // Also of stores that are not in this build: another build of the same program has them.
        let schemes: &'static [&'static str] = store.schemes;
        assert!(refused(other(schemes, store.example)).ends_with(&format!("the {} store", store.name)));
    }
    for wrong in ["", "Upper", "1st", "a b", "a:", "ä", "a/b"] {
        refused(other(vec![wrong].leak(), "x:"));
    }
    refused(other(&[], "x:"));
    refused(other(&["other-new"], "elsewhere:"));
}

#[test]
fn of_many_threads_with_one_scheme_one_succeeds() {
    #[derive(Debug)]
    struct Numbered<const N: usize>;
    #[async_trait]
    impl<const N: usize> StoreDriver for Numbered<N> {
        async fn connect(&self, _: &str) -> Result<Arc<dyn Backend>, Error> {
            Ok(Arc::new(Memory::new()))
        }
    }
    let registered = AtomicUsize::new(0);
    let drivers: [&'static dyn StoreDriver; 4] = [&Numbered::<0>, &Numbered::<1>, &Numbered::<2>, &Numbered::<3>];
    std::thread::scope(|scope| {
        for driver in drivers {
            let registered = &registered;
            scope.spawn(move || {
                let store = StoreDescriptor::new("Raced", &["raced"], "raced:", driver);
                registered.fetch_add(usize::from(register(store).is_ok()), Ordering::Relaxed);
            });
        }
    });
    assert_eq!(registered.into_inner(), 1);
    assert_eq!(all().iter().filter(|store| store.name == "Raced").count(), 1);
}
