use crate::check::CLOCKS_APART;
use crate::{Check, Timestamp, Verdict};

/// How a server's clock compares to this host's. It was asked after `before`, and has just
/// answered.
pub(crate) fn server_clock(before: Timestamp, server: Timestamp) -> Check {
    // Between the two moments any time is as good as another.
    let apart = before.since(server).max(server.since(Timestamp::now()));
    let verdict = if apart < CLOCKS_APART { Verdict::Ok } else { Verdict::Warn };
    let apart = apart.as_millis();
    Check::new("server clock", verdict, format!("{apart} ms from this host's; locks go by the server's"))
}
