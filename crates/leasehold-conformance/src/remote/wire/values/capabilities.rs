use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::enum_twin;

#[derive(Serialize, Deserialize)]
#[serde(remote = "leasehold::backend::Capabilities")]
pub(in super::super) struct Capabilities {
    #[serde(with = "TimeAuthority")]
    time_authority: leasehold::backend::TimeAuthority,
    wake_ups: bool,
    clock_floored_fences: bool,
    lines: bool,
    costly_lines: bool,
    lossy_wake_ups: bool,
    #[serde(getter = "call_timeout")]
    call_timeout: Duration,
}

fn call_timeout(found: &leasehold::backend::Capabilities) -> Duration {
    found.call_timeout
}

impl From<Capabilities> for leasehold::backend::Capabilities {
    fn from(twin: Capabilities) -> Self {
        Self::new(twin.time_authority)
            .with_wake_ups(twin.wake_ups)
            .with_clock_floored_fences(twin.clock_floored_fences)
            .with_lines(twin.lines)
            .with_costly_lines(twin.costly_lines)
            .with_lossy_wake_ups(twin.lossy_wake_ups)
            .with_call_timeout(twin.call_timeout)
    }
}

#[derive(Serialize, Deserialize)]
enum TimeAuthority {
    Store,
    Client,
}

enum_twin!(TimeAuthority = leasehold::backend::TimeAuthority {
    leasehold::backend::TimeAuthority::Store => TimeAuthority::Store,
    leasehold::backend::TimeAuthority::Client => TimeAuthority::Client,
} {
    TimeAuthority::Store => leasehold::backend::TimeAuthority::Store,
    TimeAuthority::Client => leasehold::backend::TimeAuthority::Client,
});
