use clap::Args;
use leasehold::Key;

use crate::exit::{self, Failure};
use crate::key_view::KeyView;
use crate::options::Common;
use crate::output;
use crate::own_lock::{self, Answer, Request, Shown};
use crate::reporter::Reporter;
use crate::store::Store;

/// Show who holds a lock, and who waits for it
///
/// All who hold it, and the line of those who wait, in order. One that was killed stays in line
/// until its lease has ended. Needs no right to write, and makes nothing. The exit code is 1 if
/// nobody holds the lock, also if somebody waits for it.
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
    let shown = match own_lock::ask(&options.common, &Request::Show { key: options.key.clone() }).await? {
        Some(Answer::Shown(shown)) => shown,
        Some(_) => return Err(not_held(&options.key)),
        None => {
            let locks = Store::find(&options.common, reporter)?.look().await?;
            let found = locks.inspect(&options.key).await?;
            let found = KeyView::new(options.key.clone(), found, locks.now().await?);
            Shown::of(&found.ok_or_else(|| not_held(&options.key))?)
        }
    };
    if options.common.json {
        output::json([shown.object])?;
    } else {
        output::text(&shown.text)?;
    }
    // Those who wait were shown, but whoever asks by the exit code wants to know of the lock.
    if shown.is_held { Ok(0) } else { Err(not_held(&options.key)) }
}

/// What `show` and `force-release` say of a lock that nobody holds.
pub(super) fn not_held(key: &Key) -> Failure {
    Failure::new(exit::NOTHING, format!("nobody holds '{}'", key.as_str()))
}
