use clap::Args;
use leasehold::{Key, Locked};

use crate::exit::{self, Failure};
use crate::locks_view::{details, json_object};
use crate::options::Common;
use crate::own_lock::{self, Answer, Request};
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
    let (text, object) = match own_lock::ask(&options.common, &Request::Show { key: options.key.clone() }).await? {
        Some(Answer::Shown(text, object)) => (text, object),
        Some(_) => return Err(not_held(&options.key)),
        None => {
            let found = store::open(&options.common, reporter).await?.get_by_key(&options.key).await?;
            let locked = Locked::new(options.key.clone(), found.ok_or_else(|| not_held(&options.key))?);
            (details(&locked), json_object(&locked))
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
