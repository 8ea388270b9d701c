use clap::Args;
use leasehold::{Key, LockInfo, Timestamp};
use serde_json::json;

use super::show::not_held;
use crate::exit::{self, Failure};
use crate::options::Common;
use crate::reporter::Reporter;
use crate::{event, output, question, store, text};

/// End a lock, whoever holds it
///
/// Its holder is told, but may go on working for a moment: only what checks the fence is
/// safe from it. Asks first, unless --yes is given.
#[derive(Args, Debug)]
#[command(after_help = exit::help())]
pub(crate) struct Options {
    /// Which lock
    #[arg(value_name = "KEY", value_parser = Key::new)]
    key: Key,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
    #[command(flatten)]
    pub(crate) common: Common,
}

pub(crate) async fn run(options: &Options, reporter: &Reporter) -> Result<u8, Failure> {
    if !options.yes && !question::can_ask() {
        return Err(
            Failure::new(exit::USAGE, "there is no terminal to ask on").hint("add --yes to do it without asking")
        );
    }
    let locks = store::open(&options.common, reporter).await?;
    if !options.yes {
        let Some(info) = locks.get_by_key(&options.key).await? else { return Err(not_held(&options.key)) };
        if !confirmed(&options.key, &info, locks.now().await?, reporter) {
            return Err(Failure::new(exit::NOTHING, "nothing was changed"));
        }
    }
    let Some(info) = locks.force_release(&options.key).await? else { return Err(not_held(&options.key)) };
    if options.common.json {
        output::json([json!({ "key": options.key, "holder": info.holder, "fence": info.fence })])?;
    } else {
        reporter.report(&event::force_released(&options.key, info.holder.as_ref()));
    }
    Ok(0)
}

fn confirmed(key: &Key, info: &LockInfo, now: Timestamp, reporter: &Reporter) -> bool {
    let held_for = text::duration(now.since(info.acquired_at));
    let holder = text::holder(info.holder.as_ref());
    question::confirmed(reporter, &format!("Release '{}', held by {holder} for {held_for}?", key.as_str()))
}
