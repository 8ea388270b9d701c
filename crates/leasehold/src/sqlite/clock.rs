use std::sync::OnceLock;

use rusqlite::{Connection, OptionalExtension, params};

use crate::Timestamp;

/// The clock that all processes of this host go by: the monotonic clock plus an offset that is
/// agreed on once for each boot and kept in the database. It follows no step of the wall clock, and
/// it stands still while the machine is suspended: a lease does not end in the store while its
/// holder, who counts that time, cannot notice.
#[derive(Clone, Copy, Debug)]
pub(super) struct HostClock {
    offset_us: i64,
}

impl HostClock {
    /// Agrees on the offset with the other processes. Within a write transaction.
    pub(super) fn agree(connection: &Connection) -> rusqlite::Result<Self> {
        let boot = boot_id();
        if boot.is_empty() {
            // Two boots must not be taken for one.
            return Err(rusqlite::Error::InvalidPath("/proc/sys/kernel/random/boot_id".into()));
        }
        let agreed = connection
            .query_row("SELECT offset_us FROM clock WHERE boot = ?1", [&boot], |row| row.get(0))
            .optional()?;
        if let Some(offset_us) = agreed {
            return Ok(Self { offset_us });
        }
        // A wall clock that was set back, or is not set yet, must not bring back the time before
        // the last grant.
        let last_grant: Option<i64> =
            connection.query_row("SELECT max(acquired_at_ms) FROM locks", [], |row| row.get(0))?;
        let wall = signed(Timestamp::now().as_micros());
        let offset_us = wall.max(last_grant.unwrap_or(0).saturating_mul(1000)) - since_boot_us();
        connection.execute(
            "INSERT INTO clock (one, boot, offset_us) VALUES (1, ?1, ?2)
             ON CONFLICT (one) DO UPDATE SET boot = excluded.boot, offset_us = excluded.offset_us",
            params![boot, offset_us],
        )?;
        Ok(Self { offset_us })
    }

    pub(super) fn now(self) -> Timestamp {
        Timestamp::from_micros(u64::try_from(since_boot_us() + self.offset_us).unwrap_or(0))
    }
}

fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

#[cfg(target_os = "linux")]
fn since_boot_us() -> i64 {
    static NAMESPACE_US: OnceLock<i64> = OnceLock::new();
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    time.tv_sec * 1_000_000 + time.tv_nsec / 1000 - NAMESPACE_US.get_or_init(time_namespace_us)
}

/// By how much this process's time namespace is ahead of the host, in microseconds: a line
/// `monotonic SECONDS NANOSECONDS`.
#[cfg(target_os = "linux")]
fn time_namespace_us() -> i64 {
    let offsets = std::fs::read_to_string("/proc/self/timens_offsets").unwrap_or_default();
    let line = offsets.lines().find_map(|line| line.strip_prefix("monotonic"));
    let mut numbers = line.unwrap_or_default().split_whitespace().map(|number| number.parse::<i64>().unwrap_or(0));
    numbers.next().unwrap_or(0) * 1_000_000 + numbers.next().unwrap_or(0) / 1000
}

#[cfg(target_os = "linux")]
fn boot_id() -> String {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    id.trim().to_owned()
}

/// Elsewhere the wall clock has to do.
#[cfg(not(target_os = "linux"))]
fn since_boot_us() -> i64 {
    signed(Timestamp::now().as_micros())
}

#[cfg(not(target_os = "linux"))]
fn boot_id() -> String {
    String::from("wall clock")
}
