use clap::Args;
use leasehold::LockId;

use super::extend::absent;
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
    /// The lock id that `leasehold acquire` printed
    #[arg(value_name = "LOCK_ID", env = "LEASEHOLD_LOCK_ID", hide_env_values = true)]
    lock_id: LockId,
    #[command(flatten)]
    pub(crate) common: Common,
}

pub(crate) async fn run(options: &Options, reporter: &Reporter) -> Result<u8, Failure> {
    let request = Request::Release { lock_id: options.lock_id };
    let released = match own_lock::ask(&options.common, &request).await? {
        Some(answer) => answer == Answer::Done(true),
        None => store::open(&options.common, reporter).await?.release(&options.lock_id).await?,
    };
    if released { Ok(0) } else { Err(absent()) }
}
