use clap::Args;
use leasehold::{Key, Locked};

use crate::exit::{self, Failure};
use crate::locks_view::{details, json_object};
use crate::options::Common;
use crate::output;
use crate::own_lock::{self, Answer, Request};
use crate::reporter::Reporter;
use crate::store::Store;

/// Show who holds a lock
///
/// Needs no right to write, and makes nothing.
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
    let (text, object) = match own_lock::ask(&options.common, &Request::Show { key: options.key.clone() }).await? {
        Some(Answer::Shown(text, object)) => (text, object),
        Some(_) => return Err(not_held(&options.key)),
        None => {
            let locks = Store::find(&options.common, reporter)?.look().await?;
            let found = locks.get_by_key(&options.key).await?;
            let locked = Locked::new(options.key.clone(), found.ok_or_else(|| not_held(&options.key))?);
            let now = locks.now().await?;
            (details(&locked, now), json_object(&locked, now))
        }
    };
    if options.common.json {
        output::json([object])?;
    } else {
        output::text(&text)?;
    }
    Ok(0)
}

/// What `show` and `force-release` say of a lock that nobody holds.
pub(super) fn not_held(key: &Key) -> Failure {
    Failure::new(exit::NOTHING, format!("nobody holds '{}'", key.as_str()))
}
