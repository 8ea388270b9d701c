use clap::Args;

use crate::exit::{self, Failure};
use crate::locks_view::{self, json_object, table};
use crate::options::Common;
use crate::reporter::Reporter;
use crate::store::Store;
use crate::{event, output};

/// List the locks that are held
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
    let store = Store::choose(&options.common, reporter)?;
    if let Some(warning) = store.scope_warning() {
        reporter.report(&event::warning(&warning));
    }
    let locks = store.connect().await?;
    let held = locks_view::list(&locks, &options.prefix).await?;
    if options.common.json {
        output::json(held.iter().map(json_object))?;
    } else {
        output::text(&table(&held, locks_view::terminal_width()))?;
    }
    Ok(0)
}
