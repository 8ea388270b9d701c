use std::sync::OnceLock;

use rusqlite::{Connection, OptionalExtension, params};

use super::error::translate;
use crate::{Error, ErrorCode, Timestamp, Ttl};

/// A wall clock that shows less was never set: 2026, in microseconds since 1970.
const SET_US: i64 = 1_767_225_600_000_000;

/// Where the wall clock cannot tell, a time past this one makes no sense: 2126.
const LATEST_US: i64 = SET_US + 100 * 365 * 24 * 60 * 60 * 1_000_000;

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
    pub(super) fn agree(connection: &Connection) -> Result<Self, Error> {
        let boot = boot_id();
        if boot.is_empty() {
            // Two boots must not be taken for one.
            return Err(translate(rusqlite::Error::InvalidPath("/proc/sys/kernel/random/boot_id".into())));
        }
        if let Some(agreed) = Self::agreed(connection, &boot).map_err(translate)? {
            return agreed.check();
        }
        let agreed = Self::proposed(connection)?;
        connection
            .execute(
                "INSERT INTO clock (one, boot, offset_us) VALUES (1, ?1, ?2)
                 ON CONFLICT (one) DO UPDATE SET boot = excluded.boot, offset_us = excluded.offset_us",
                params![boot, agreed.offset_us],
            )
            .map_err(translate)?;
        Ok(agreed)
    }

    /// What was agreed on, or would be, for somebody who may not write it down.
    pub(super) fn read(connection: &Connection) -> Result<Self, Error> {
        match Self::agreed(connection, &boot_id()).map_err(translate)? {
            Some(agreed) => agreed.check(),
            None => Self::proposed(connection),
        }
    }

    fn proposed(connection: &Connection) -> Result<Self, Error> {
        // A wall clock that was set back, or is not set yet, must not bring back the time before
        // the last grant.
        let last_grant: Option<i64> =
            connection.query_row("SELECT max(acquired_at_ms) FROM locks", [], |row| row.get(0)).map_err(translate)?;
        let start = wall_us().max(last_grant.unwrap_or(0).saturating_mul(1000));
        Self { offset_us: start.saturating_sub(since_boot_us()) }.check()
    }

    fn agreed(connection: &Connection, boot: &str) -> rusqlite::Result<Option<Self>> {
        let sql = "SELECT offset_us FROM clock WHERE boot = ?1";
        let offset = connection.query_row(sql, [boot], |row| row.get(0)).optional()?;
        Ok(offset.map(|offset_us| Self { offset_us }))
    }

    /// Whether this is what the database says.
    pub(super) fn is_agreed(self, connection: &Connection) -> rusqlite::Result<bool> {
        Ok(Self::agreed(connection, &boot_id())?.is_some_and(|agreed| agreed.offset_us == self.offset_us))
    }

    /// Refuses a time at which every lock that there can be would be dead: no clock is that wrong,
    /// so the database is. Behind the wall clock, and a little ahead of it, it may be: the wall
    /// clock was set since.
    fn check(self) -> Result<Self, Error> {
        let wall = wall_us();
        let latest = if wall < SET_US { LATEST_US } else { wall.saturating_add(signed(Ttl::MAX.as_millis()) * 1000) };
        match since_boot_us().checked_add(self.offset_us) {
            Some(now) if (0..=latest).contains(&now) => Ok(self),
            _ => Err(Error::new(ErrorCode::Internal, "the clock in the database makes no sense")
                .with_hint("set the clock of this host if it is wrong; otherwise see `clock` in docs/sqlite.md")),
        }
    }

    pub(super) fn now(self) -> Timestamp {
        Timestamp::from_micros(u64::try_from(since_boot_us().saturating_add(self.offset_us)).unwrap_or(0))
    }
}

fn wall_us() -> i64 {
    signed(Timestamp::now().as_micros())
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
    wall_us()
}

#[cfg(not(target_os = "linux"))]
fn boot_id() -> String {
    String::from("wall clock")
}
