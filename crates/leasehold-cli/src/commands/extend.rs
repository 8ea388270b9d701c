use clap::Args;
use leasehold::{LockId, Locks, Ttl};

use crate::exit::{self, Failure};
use crate::options::{Common, ttl};
use crate::own_lock::{self, Answer, Request};
use crate::reporter::Reporter;
use crate::store;

/// Make a lock last longer, by its lock id
///
/// The lock ends --ttl from now at the earliest: one that lasts longer is left as it is. A lock
/// that is not there any more is not taken again: the exit code is 79.
///
/// The lock of a `leasehold run` is renewed anyway. Inside its command, a longer --ttl is what it
/// is renewed to from then on.
#[derive(Args, Debug)]
#[command(after_help = exit::help())]
pub(crate) struct Options {
    /// The lock id that `leasehold acquire` printed
    #[arg(value_name = "LOCK_ID", env = "LEASEHOLD_LOCK_ID", hide_env_values = true)]
    lock_id: LockId,
    /// When the lock ends from now on
    #[arg(long, value_name = "DUR", default_value = "30s", value_parser = ttl)]
    ttl: Ttl,
    #[command(flatten)]
    pub(crate) common: Common,
}

pub(crate) async fn run(options: &Options, reporter: &Reporter) -> Result<u8, Failure> {
    let request = Request::Extend { lock_id: options.lock_id, ttl_ms: options.ttl.as_millis() };
    let extended = match own_lock::ask(&options.common, &request).await? {
        Some(answer) => answer == Answer::Done(true),
        None => extend(&store::open(&options.common, reporter).await?, &options.lock_id, options.ttl).await?,
    };
    if extended { Ok(0) } else { Err(absent()) }
}

/// Never makes it end earlier: its holder would not know.
async fn extend(locks: &Locks, lock_id: &LockId, ttl: Ttl) -> Result<bool, Failure> {
    let wanted = locks.now().await?.expiry(ttl);
    if locks.get_by_id(lock_id).await?.is_some_and(|info| info.expires_at >= wanted) {
        return Ok(true);
    }
    Ok(locks.extend(lock_id, ttl).await?)
}

/// What `extend` and `release` say of a lock that is not there.
pub(super) fn absent() -> Failure {
    Failure::new(exit::LOST, "the lock is not there any more")
        .hint("it ran out, was released, or was taken by somebody else; stop what it protected")
}
