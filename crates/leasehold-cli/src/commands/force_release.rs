use clap::Args;
use leasehold::{Fence, Key, LockInfo, Locks, Timestamp};
use serde_json::json;

use super::show;
use crate::exit::{self, Failure};
use crate::options::Common;
use crate::reporter::Reporter;
use crate::task::shell_line;
use crate::{event, mode, output, question, store, text};

/// End a lock, whoever holds it
///
/// If several hold it, the locks of all of them, or with --fence that of one. The holders are told,
/// but may go on working for a moment: only what checks the fence is safe from them. Those who wait
/// for the lock keep their places in line, and the first of them gets it. Asks first, unless --yes
/// is given.
#[derive(Args, Debug)]
#[command(after_help = exit::help())]
pub(crate) struct Options {
    /// Which lock
    #[arg(value_name = "KEY", value_parser = Key::new)]
    key: Key,
    /// Only the grant with this fence, as `leasehold show` tells it: nobody else's
    #[arg(long, value_name = "FENCE")]
    fence: Option<Fence>,
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
        let mut holders = locks.holders(&options.key).await?;
        holders.retain(|info| options.fence.is_none_or(|fence| info.fence == fence));
        if holders.is_empty() {
            return Err(not_held(options));
        }
        if !question::confirmed(reporter, &ask(&options.key, &holders, locks.now().await?)) {
            return Err(Failure::new(exit::NOTHING, "nothing was changed"));
        }
    }
    let ended = end(&locks, options).await?;
    if ended.is_empty() {
        return Err(not_held(options));
    }
    if options.common.json {
        return output::json(ended.iter().map(|info| {
            let mut object = json!({ "key": options.key, "holder": info.holder, "fence": info.fence });
            mode::add_fields(&mut object, info.mode, info.slot);
            object
        }))
        .map(|()| 0);
    }
    reporter.report(&event::force_released(&options.key, &ended));
    Ok(0)
}

async fn end(locks: &Locks, options: &Options) -> Result<Vec<LockInfo>, Failure> {
    Ok(match options.fence {
        Some(fence) => locks.force_release_grant(&options.key, fence).await?.into_iter().collect(),
        None => locks.force_release(&options.key).await?,
    })
}

/// What to ask, with everybody whose lock would end.
fn ask(key: &Key, holders: &[LockInfo], now: Timestamp) -> String {
    let held = text::list(holders.iter().map(|info| {
        let held_for = text::duration(now.since(info.acquired_at));
        format!("{} for {held_for}", text::holder(info.holder.as_ref()))
    }));
    format!("Release '{}', held by {held}?", key.as_str())
}

fn not_held(options: &Options) -> Failure {
    let key = options.key.as_str();
    let failure = match options.fence {
        Some(fence) => Failure::new(exit::NOTHING, format!("nobody holds '{key}' with the fence {fence}")),
        None => show::not_held(&options.key),
    };
    let dashes = key.starts_with('-').then_some("--");
    let line = shell_line(["leasehold", "show"].into_iter().chain(dashes).chain([key]));
    failure.hint(format!("{line} tells who holds it and who waits for it"))
}
