//! Which stores there are: a table of those that come with this library, open to those of other
//! crates.

mod credentials;
mod descriptor;
mod driver;
mod registry;
mod scratch;
mod table;

use std::path::Path;
use std::time::{Duration, Instant};

pub use credentials::Credentials;
pub use descriptor::StoreDescriptor;
pub use driver::{Migrated, StandIn, StoreDriver};
pub use registry::{all, register};
pub use scratch::ScratchKeys;

pub(crate) use registry::store_of;
pub(crate) use table::example_of;

/// `url` as others may see it: the same store, without user names and passwords. Of a URL that the
/// store cannot read, or of a store that does not say how to hide them or is not in this build,
/// only the scheme; of an unknown scheme `unknown:`.
///
/// ```
/// assert_eq!(leasehold::stores::public_url("memory:"), "memory:");
/// assert_eq!(leasehold::stores::public_url("nosuch://me:secret@host"), "unknown:");
/// ```
pub fn public_url(url: &str) -> String {
    match store_of(url) {
        Ok(store) => match store.driver() {
            Ok(driver) => driver.public_url(url).unwrap_or_else(|_| only_scheme(url)),
            Err(_) => only_scheme(url),
        },
        // What stands before the colon may be half of a password.
        Err(_) => "unknown:".to_owned(),
    }
}

/// What [`public_url`] leaves out of `url`; nothing if the store cannot read it.
pub fn credentials(url: &str) -> Credentials {
    match store_of(url).and_then(|store| store.driver()) {
        Ok(driver) => driver.credentials(url),
        Err(_) => Credentials::None,
    }
}

/// `url` for somebody who works in another directory: a file that it names from `directory` is
/// named from the root.
pub fn absolute_url(url: &str, directory: &Path) -> String {
    match store_of(url).and_then(|store| store.driver()) {
        Ok(driver) => driver.absolute_url(url, directory),
        Err(_) => url.to_owned(),
    }
}

/// Waits until every store of this process has put in order what it leaves behind, such as the log
/// beside a SQLite file; tells whether that came about in time. It blocks the thread: for the end
/// of a program, when all handles are gone or on their way.
pub fn wait_until_closed(timeout: Duration) -> bool {
    let started = Instant::now();
    let mut closed = true;
    for driver in all().iter().filter_map(|store| store.driver().ok()) {
        // Each of them gets what the others have left of the time.
        closed &= driver.wait_until_closed(timeout.saturating_sub(started.elapsed()));
    }
    closed
}

/// The scheme of a URL with its colon.
fn only_scheme(url: &str) -> String {
    format!("{}:", url.split(':').next().unwrap_or_default())
}
