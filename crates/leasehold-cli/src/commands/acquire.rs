use clap::Args;
use leasehold::Key;
use serde_json::json;
use tokio::time::Instant;

use crate::acquire::{Asked, Wanted};
use crate::exit::{self, End, Failure};
use crate::granted::Granted;
use crate::options::{Common, LockOptions};
use crate::reporter::Reporter;
use crate::signals::Signals;
use crate::store::{self, Store};
use crate::{event, mode, output};

/// Take a lock and print it as JSON, for scripts
///
/// The lock is not renewed: it ends when its ttl has passed, unless `leasehold extend` or
/// `leasehold release` is called with its lock id. Whoever knows the lock id can do so: treat it
/// like a password.
#[derive(Args, Debug)]
#[command(after_help = exit::help())]
pub(crate) struct Options {
    /// What to lock
    #[arg(value_name = "KEY", value_parser = Key::new)]
    key: Key,
    #[command(flatten)]
    lock: LockOptions,
    #[command(flatten)]
    pub(crate) common: Common,
}

pub(crate) async fn run(options: &Options, reporter: &Reporter) -> Result<End, Failure> {
    if options.lock.steal_same_holder && options.lock.holder.is_none() {
        return Err(Failure::new(exit::USAGE, "--steal-same-holder needs a --holder here")
            .hint("without one every script on this host has the same name"));
    }
    let store = Store::choose(&options.common, reporter)?;
    if let Some(warning) = store.locking_warning() {
        reporter.report(&event::warning(&warning));
    }
    let wanted = Wanted {
        keys: std::slice::from_ref(&options.key),
        store: &store,
        options: &options.lock,
        holder: options.lock.holder.clone().unwrap_or_default(),
        metadata: options.lock.metadata(&[])?,
        max_hold: None,
        since: Instant::now(),
    };
    let mut signals = Signals::install().map_err(|error| Failure::signals(&error))?;
    let locks = tokio::select! {
        connected = wanted.connect(reporter) => connected?,
        signal = signals.next_to_stop() => return Ok(End::Signal(signal)),
    };
    let result = match wanted.ask(&locks, &mut signals, reporter).await {
        Asked::Stopped(signal) => Ok(End::Signal(signal)),
        Asked::Refused(refused) => Err(refused.failure(&wanted)),
        Asked::Granted(granted) => print(&wanted, granted).await,
    };
    store::close(&locks, store::CLOSING).await;
    result
}

/// Prints the lock, and leaves it to whoever reads that.
async fn print(wanted: &Wanted<'_>, granted: Granted) -> Result<End, Failure> {
    let lines = granted.iter().map(|guard| {
        let mut line = json!({
            "key": guard.key(),
            "lock_id": guard.lock_id().expose(),
            "fence": guard.fence(),
            "acquired_at_ms": guard.acquired_at(),
            "expires_at_ms": guard.expires_at(),
            "holder": wanted.holder,
        });
        mode::add_fields(&mut line, guard.mode(), guard.slot());
        line
    });
    match (output::json(lines), granted) {
        (Ok(()), Granted::One(guard)) => {
            guard.leak();
            Ok(End::Code(0))
        }
        // Nobody has read the lock id, so nobody could give the lock back. Several are not asked for.
        (printed, granted) => {
            let _ = granted.release().await;
            printed.map(|()| End::Code(0))
        }
    }
}
