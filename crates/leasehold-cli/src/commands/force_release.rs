use std::io::Write;

use clap::Args;
use leasehold::{Holder, Key, LockInfo, Timestamp};

use super::show::not_held;
use crate::exit::{self, Failure};
use crate::locks_view::print;
use crate::options::Common;
use crate::{question, store, text};

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

pub(crate) async fn run(options: &Options) -> Result<u8, Failure> {
    if !options.yes && !question::can_ask() {
        return Err(
            Failure::new(exit::USAGE, "there is no terminal to ask on").hint("add --yes to do it without asking")
        );
    }
    let locks = store::open(&options.common).await?;
    if !options.yes {
        let Some(info) = locks.get_by_key(&options.key).await? else { return Err(not_held(&options.key)) };
        if !confirmed(&options.key, &info) {
            return Err(Failure::new(exit::NOTHING, "nothing was changed"));
        }
    }
    let Some(info) = locks.force_release(&options.key).await? else { return Err(not_held(&options.key)) };
    if options.common.json {
        print(&format!("{}\n", serde_json::json!({ "key": options.key, "holder": info.holder, "fence": info.fence })))?;
    } else if !options.common.quiet {
        let key = text::safe(options.key.as_str());
        let _ = writeln!(std::io::stderr(), "leasehold: released '{key}', which {} held", holder(&info));
    }
    Ok(0)
}

fn holder(info: &LockInfo) -> &str {
    info.holder.as_ref().map_or("somebody who left no name", Holder::as_str)
}

fn confirmed(key: &Key, info: &LockInfo) -> bool {
    let held_for = text::duration(Timestamp::now().since(info.acquired_at));
    let key = text::safe(key.as_str());
    question::confirmed(&format!("Release '{key}', held by {} for {held_for}?", holder(info)))
}
