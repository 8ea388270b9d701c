use clap::Args;

use crate::exit::{self, Failure};
use crate::locks_view::{self, json_object, table};
use crate::options::Common;
use crate::reporter::Reporter;
use crate::store::Store;
use crate::{event, output};

/// List the locks that are held
///
/// Needs no right to write, and makes nothing. A lock that several hold has a row for each of them.
/// How locks are held, and how many wait for them, is shown if there is anything to show. On a
/// terminal the columns that do not fit are left out; --json has them all.
#[derive(Args, Debug)]
#[command(after_help = exit::help())]
pub(crate) struct Options {
    /// Only keys that start with this
    #[arg(value_name = "PREFIX", default_value = "", hide_default_value = true)]
    prefix: String,
    #[command(flatten)]
    pub(crate) common: Common,
}

pub(crate) async fn run(options: &Options, reporter: &Reporter) -> Result<u8, Failure> {
    let store = Store::find(&options.common, reporter)?;
    if let Some(warning) = store.scope_warning() {
        reporter.report(&event::warning(&warning));
    }
    let locks = store.look().await?;
    let look = locks_view::list(&locks, &options.prefix).await?;
    if options.common.json {
        output::json(look.held.iter().map(|locked| json_object(locked, look.now)))?;
    } else if look.held.is_empty() {
        // Whoever reads the table gets none.
        reporter.report(&event::no_locks());
    } else {
        output::text(&table(&look, locks_view::terminal_width()))?;
    }
    Ok(0)
}
