use clap::Args;
use leasehold::{Check, ErrorCode, Verdict};
use serde_json::json;

use crate::escape::escape;
use crate::exit::{self, Failure};
use crate::options::Common;
use crate::output;
use crate::reporter::Reporter;
use crate::store::Store;

/// Check the store
///
/// Takes, extends and releases a lock of its own, and looks for whatever could break locks or
/// fences: whether the store can be reached, its version, permissions, clock and persistence.
/// Leaves nothing behind: a store that is not there yet is not made. Ends with a verdict. The exit
/// code is 0 if locks work, also with warnings; 69, 77 or 78 if not.
#[derive(Args, Debug)]
#[command(after_help = exit::help())]
pub(crate) struct Options {
    #[command(flatten)]
    pub(crate) common: Common,
}

pub(crate) async fn run(options: &Options, reporter: &Reporter) -> Result<u8, Failure> {
    let store = Store::find(&options.common, reporter)?;
    let report = Report { json: options.common.json };
    report.line(&Check::new("store", Verdict::Ok, store.public_url()))?;
    let mut checks = vec![chosen(&store)];
    checks.extend(store.examine().await.unwrap_or_else(|error| vec![Check::failed("reachable", &error)]));
    for check in &checks {
        report.line(check)?;
    }
    let worst = checks.iter().map(|check| check.verdict).max().unwrap_or(Verdict::Ok);
    report.verdict(worst)?;
    match worst {
        Verdict::Ok | Verdict::Warn => Ok(0),
        Verdict::Fail => Ok(checks.iter().find_map(|check| check.error).map_or(exit::BAD_STORE, code)),
    }
}

/// Who chose the store, and whom its locks are for.
fn chosen(store: &Store) -> Check {
    match store.scope_warning() {
        Some(warning) => Check::new("chosen", Verdict::Warn, format!("{}: {warning}", store.origin())),
        None => Check::new("chosen", Verdict::Ok, store.origin().to_string()),
    }
}

/// The exit code for an operation that failed.
fn code(error: ErrorCode) -> u8 {
    match error {
        // Nobody else wants the lock of an examination: the store did not answer in time.
        ErrorCode::AcquisitionTimeout => exit::UNAVAILABLE,
        // Nor could anybody have taken it.
        ErrorCode::LockLost => exit::BAD_STORE,
        error => exit::of_error(error),
    }
}

/// Where the checks are told.
struct Report {
    json: bool,
}

impl Report {
    fn line(&self, check: &Check) -> Result<(), Failure> {
        if self.json {
            let (name, verdict, detail) = (check.name, check.verdict, &check.detail);
            let mut line = json!({ "check": name, "verdict": verdict, "detail": detail });
            if let Some(hint) = &check.hint {
                line["hint"] = hint.as_str().into();
            }
            return output::json([line]);
        }
        let verdict = word(check.verdict);
        let hint = check.hint.as_ref().map(|hint| format!("      hint: {}\n", escape(hint)));
        let line = format!("{verdict:<5} {:<12} {}\n", check.name, escape(&check.detail));
        output::text(&(line + &hint.unwrap_or_default()))
    }

    fn verdict(&self, worst: Verdict) -> Result<(), Failure> {
        if self.json {
            return output::json([json!({ "verdict": worst })]);
        }
        output::text(match worst {
            Verdict::Ok => "verdict: good, locks work here\n",
            Verdict::Warn => "verdict: locks work here, but mind the warnings\n",
            Verdict::Fail => "verdict: BAD, do not rely on locks here\n",
        })
    }
}

fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Ok => "ok",
        Verdict::Warn => "warn",
        Verdict::Fail => "FAIL",
    }
}
