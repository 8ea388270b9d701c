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
    #[command(flatten)]
    lock_ids: LockIds,
    /// When the lock ends from now on
    #[arg(long, value_name = "DUR", default_value = "30s", value_parser = ttl)]
    ttl: Ttl,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// Which locks.
#[derive(Args, Debug)]
pub(super) struct LockIds {
    /// The lock id that `leasehold acquire` printed; several are separated by commas
    #[arg(value_name = "LOCK_ID", env = "LEASEHOLD_LOCK_ID", hide_env_values = true)]
    #[arg(required = true, value_delimiter = ',')]
    all: Vec<LockId>,
}

impl LockIds {
    /// Does something with each of them, also if another one is not there any more.
    ///
    /// # Errors
    ///
    /// One of them is not there, or something else went wrong.
    pub(super) async fn each(&self, work: impl AsyncFn(&LockId) -> Result<bool, Failure>) -> Result<u8, Failure> {
        let mut absent = 0;
        for lock_id in &self.all {
            absent += usize::from(!work(lock_id).await?);
        }
        let message = match (absent, self.all.len()) {
            (0, _) => return Ok(0),
            (_, 1) => "the lock is not there any more".to_owned(),
            (absent, all) => format!("{absent} of {all} locks are not there any more"),
        };
        Err(Failure::new(exit::LOST, message)
            .hint("it ran out, was released, or was taken by somebody else; stop what it protected"))
    }
}

pub(crate) async fn run(options: &Options, reporter: &Reporter) -> Result<u8, Failure> {
    let extend = async |lock_id: &LockId| {
        let request = Request::Extend { lock_id: *lock_id, ttl_ms: options.ttl.as_millis() };
        match own_lock::ask(&options.common, &request).await? {
            Some(answer) => Ok(answer == Answer::Done(true)),
            None => extend(&store::open(&options.common, reporter).await?, lock_id, options.ttl).await,
        }
    };
    options.lock_ids.each(extend).await
}

/// Never makes it end earlier: its holder would not know.
async fn extend(locks: &Locks, lock_id: &LockId, ttl: Ttl) -> Result<bool, Failure> {
    let wanted = locks.now().await?.expiry(ttl);
    if locks.get_by_id(lock_id).await?.is_some_and(|info| info.expires_at >= wanted) {
        return Ok(true);
    }
    Ok(locks.extend(lock_id, ttl).await?)
}
