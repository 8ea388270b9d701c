use std::any::Any;
use std::sync::Mutex;

use super::StoreDescriptor;
use super::table::TABLE;
use crate::Error;
use crate::sync::lock;

/// The stores of other crates, in the order in which they came. None ever leaves.
static REGISTERED: Mutex<Vec<StoreDescriptor>> = Mutex::new(Vec::new());

/// Makes a store of your own known to this process, for all its threads: from now on
/// [`Locks::connect`](crate::Locks::connect) and whatever else takes a URL accept its schemes.
///
/// A scheme belongs to whoever had it first; the schemes of this library are taken, also those of
/// stores that are not in this build. Registering the same store again changes nothing, so a
/// library may do it whenever it is used: the same means the same type of driver, name and schemes.
///
/// ```
/// use std::sync::{Arc, LazyLock};
///
/// use leasehold::backend::Backend;
/// use leasehold::memory::Memory;
/// use leasehold::stores::{StoreDescriptor, StoreDriver};
/// use leasehold::{Error, Locks};
///
/// /// One store for the whole process, whatever the URL says.
/// static SHARED: LazyLock<Memory> = LazyLock::new(Memory::new);
///
/// #[derive(Debug)]
/// struct SharedDriver;
///
/// #[async_trait::async_trait]
/// impl StoreDriver for SharedDriver {
///     async fn connect(&self, _url: &str) -> Result<Arc<dyn Backend>, Error> {
///         Ok(Arc::new(SHARED.clone()))
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), leasehold::Error> {
/// let store = StoreDescriptor::new("Shared", &["shared"], "shared:", &SharedDriver);
/// leasehold::stores::register(store)?;
///
/// let locks = Locks::connect("shared:").await?;
/// let guard = locks.lock("report").acquire().await?;
/// assert!(Locks::connect("shared:").await?.lock("report").try_acquire().await?.is_none());
/// guard.release().await?;
///
/// assert!(Locks::examine("shared:").await?.iter().any(|check| check.name == "exclusion"));
/// assert_eq!(leasehold::stores::public_url("shared://me:secret@host"), "shared:");
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// [`InvalidArgument`](crate::ErrorCode::InvalidArgument) if one of the schemes belongs to another
/// store, is not a scheme (lowercase letters, digits, `+`, `.` and `-`, with a letter first), or
/// there is none, or the example has none of them. Then nothing is registered.
pub fn register(store: StoreDescriptor) -> Result<(), Error> {
    if store.schemes.is_empty() || !store.schemes.iter().all(|scheme| is_scheme(scheme)) {
        return Err(Error::invalid("the store has no scheme, or one that cannot start a URL")
            .with_hint("lowercase letters, digits, +, . and -, with a letter first"));
    }
    if !scheme_of(store.example).is_some_and(|scheme| store.schemes.contains(&scheme)) {
        return Err(Error::invalid("the store's example is not one of its URLs"));
    }
    let mut registered = lock(&REGISTERED);
    for other in TABLE.iter().chain(&*registered) {
        if is_same(&store, other) {
            return Ok(());
        }
        if let Some(scheme) = store.schemes.iter().find(|scheme| other.schemes.contains(scheme)) {
            return Err(Error::invalid(format!("the scheme {scheme}: belongs to the {} store", other.name)));
        }
    }
    registered.push(store);
    Ok(())
}

/// The stores that this process knows: those of this library, in this build or not, and those that
/// were [registered](register).
///
/// ```
/// let memory = leasehold::stores::all().into_iter().find(|store| store.name == "Memory").unwrap();
/// assert_eq!((memory.schemes, memory.feature), (&["memory"][..], None));
/// ```
pub fn all() -> Vec<StoreDescriptor> {
    TABLE.iter().chain(&*lock(&REGISTERED)).copied().collect()
}

/// The store to which `url` belongs.
///
/// # Errors
///
/// There is none. The message does not repeat the URL.
pub(crate) fn store_of(url: &str) -> Result<StoreDescriptor, Error> {
    let stores = all();
    let Some(scheme) = scheme_of(url) else {
        // Locks in memory exclude nobody else: whoever needs an example wants another store.
        let shared = stores.iter().filter(|store| store.is_built_in() && store.schemes != ["memory"]);
        let usable: Vec<_> = shared.map(|store| store.example).collect();
        let error = Error::invalid("the store's URL has no scheme");
        return Err(match usable[..] {
            [] => error.with_hint("build with a feature for a store, such as `sqlite`"),
            _ => error.with_hint(format!("for example {}", usable.join(", "))),
        });
    };
    stores.iter().find(|store| store.schemes.contains(&scheme)).copied().ok_or_else(|| {
        let usable = stores.iter().filter(|store| store.is_built_in()).flat_map(|store| store.schemes);
        let known: Vec<_> = usable.map(|scheme| format!("{scheme}:")).collect();
        Error::invalid("the store's URL has a scheme this build does not know")
            .with_hint(format!("the known ones are: {}", known.join(", ")))
    })
}

fn scheme_of(url: &str) -> Option<&str> {
    url.split_once(':').map(|(scheme, _)| scheme)
}

fn is_scheme(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_lowercase())
        && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "+.-".contains(c))
}

/// By the type of the driver: two versions of one crate are two stores.
fn is_same(one: &StoreDescriptor, other: &StoreDescriptor) -> bool {
    let driver = |store: &StoreDescriptor| {
        let any: &dyn Any = store.driver?;
        Some(any.type_id())
    };
    (one.name, one.schemes, driver(one)) == (other.name, other.schemes, driver(other))
}
