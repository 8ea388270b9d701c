use clap::Args;
use leasehold::{Key, Locked};

use crate::exit::{self, Failure};
use crate::locks_view::{details, json_object};
use crate::options::Common;
use crate::reporter::Reporter;
use crate::{output, store};

/// Show who holds a lock
#[derive(Args, Debug)]
#[command(after_help = exit::help())]
pub(crate) struct Options {
    /// Which lock
    #[arg(value_name = "KEY", value_parser = Key::new)]
    key: Key,
    #[command(flatten)]
    pub(crate) common: Common,
}

pub(crate) async fn run(options: &Options, reporter: &Reporter) -> Result<u8, Failure> {
    let locks = store::open(&options.common, reporter).await?;
    let Some(info) = locks.get_by_key(&options.key).await? else {
        return Err(not_held(&options.key));
    };
    let locked = Locked::new(options.key.clone(), info);
    if options.common.json {
        output::json([json_object(&locked)])?;
    } else {
        output::text(&details(&locked))?;
    }
    Ok(0)
}

/// What `show` and `force-release` say of a lock that nobody holds.
pub(super) fn not_held(key: &Key) -> Failure {
    Failure::new(exit::NOTHING, format!("nobody holds '{}'", key.as_str()))
}
