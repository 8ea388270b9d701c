use clap::Args;
use leasehold::LockId;

use super::extend::LockIds;
use crate::exit::{self, Failure};
use crate::options::Common;
use crate::own_lock::{self, Answer, Request};
use crate::reporter::Reporter;
use crate::store;

/// Give a lock back, by its lock id
///
/// If it is not there any more, the exit code is 79.
#[derive(Args, Debug)]
#[command(after_help = exit::help())]
pub(crate) struct Options {
    #[command(flatten)]
    lock_ids: LockIds,
    #[command(flatten)]
    pub(crate) common: Common,
}

pub(crate) async fn run(options: &Options, reporter: &Reporter) -> Result<u8, Failure> {
    let release =
        async |lock_id: &LockId| match own_lock::ask(&options.common, &Request::Release { lock_id: *lock_id }).await? {
            Some(answer) => Ok(answer == Answer::Done(true)),
            None => Ok(store::open(&options.common, reporter).await?.release(lock_id).await?),
        };
    options.lock_ids.each(release).await
}
