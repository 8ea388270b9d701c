use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rusqlite::Connection;

use super::bus::{self, DatagramSender};
use super::database::Database;
use super::error::translate;
use super::rows::column;
use crate::{Check, Error, Fence, TIME_TOLERANCE, Ttl, Verdict};

/// Less room than this on the disk is worth a warning.
const LITTLE_ROOM: u64 = 16 * 1024 * 1024;

impl Database {
    /// Looks for whatever could break locks or fences.
    pub(super) fn examine(&self) -> Result<Vec<Check>, Error> {
        let directory = self.path().parent().unwrap_or(Path::new("/"));
        Ok(vec![
            Check::new("sqlite", Verdict::Ok, format!("version {}", rusqlite::version())),
            self.integrity()?,
            self.durability()?,
            permissions(self.path()),
            file_system(directory),
            room(directory),
            self.clock()?,
            self.rows()?,
            self.fences()?,
            self.counters()?,
            self.wake_ups()?,
        ])
    }

    fn integrity(&self) -> Result<Check, Error> {
        let found: String = self.pragma("quick_check")?;
        let verdict = if found == "ok" { Verdict::Ok } else { Verdict::Fail };
        Ok(Check::new("integrity", verdict, found))
    }

    fn durability(&self) -> Result<Check, Error> {
        let (mode, synchronous): (String, i64) = (self.pragma("journal_mode")?, self.pragma("synchronous")?);
        let survives =
            if synchronous >= 2 { "nothing is lost" } else { "the last moments may be lost, fences stay unique" };
        let verdict = if mode == "wal" { Verdict::Ok } else { Verdict::Fail };
        Ok(Check::new("persistence", verdict, format!("journal {mode}; after a power cut {survives}")))
    }

    fn clock(&self) -> Result<Check, Error> {
        Ok(match self.clock_is_agreed()? {
            true => {
                Check::new("boot clock", Verdict::Ok, "all processes agree on it; it follows no step of the wall clock")
            }
            false => Check::new(
                "boot clock",
                Verdict::Fail,
                "the clock in the database was changed while it was in use: processes do not agree on the time",
            ),
        })
    }

    /// No lock has times that there are not, or lasts for longer than a lease can.
    fn rows(&self) -> Result<Check, Error> {
        let latest = (self.now() + TIME_TOLERANCE).expiry(Ttl::MAX);
        let found: i64 = self
            .connection
            .query_row(
                "SELECT (SELECT count(*) FROM locks WHERE lock_id IS NOT NULL
                         AND (acquired_at_ms < 0 OR expires_at_ms NOT BETWEEN 0 AND ?1))
                      + (SELECT count(*) FROM grants WHERE acquired_at_ms < 0 OR expires_at_ms NOT BETWEEN 0 AND ?1)
                      + (SELECT count(*) FROM line WHERE since_ms < 0 OR until_ms NOT BETWEEN 0 AND ?1)",
                [column(latest.as_millis())],
                |row| row.get(0),
            )
            .map_err(translate)?;
        Ok(match found {
            0 => Check::new("rows", Verdict::Ok, "every lock and every place in line has times that can be"),
            _ => Check::new("rows", Verdict::Warn, format!("{found} locks or places have times that make no sense")),
        })
    }

    fn counters(&self) -> Result<Check, Error> {
        let number: i64 = self.query("SELECT count(*) FROM locks")?;
        let detail = format!("{number} fence counters: each key that was ever locked keeps one, of some 60 bytes");
        Ok(Check::new("counters", Verdict::Ok, detail))
    }

    fn fences(&self) -> Result<Check, Error> {
        let highest: Option<i64> = self.query("SELECT max(fence) FROM locks")?;
        let highest = highest.and_then(|fence| u64::try_from(fence).ok()).unwrap_or(0);
        let floor = Fence::clock_floor(self.now()).get();
        let ahead_secs = highest.saturating_sub(floor) / 10_000;
        Ok(match ahead_secs {
            0..3600 => Check::new("fences", Verdict::Ok, "none is ahead of the clock"),
            _ => {
                let detail = format!("the highest is {ahead_secs} s ahead of the clock: was the clock set back?");
                Check::new("fences", Verdict::Warn, detail)
            }
        })
    }

    fn wake_ups(&self) -> Result<Check, Error> {
        let mut statement = self.connection.prepare("SELECT DISTINCT address FROM listeners").map_err(translate)?;
        let addresses = statement.query_map([], |row| row.get::<_, String>(0)).map_err(translate)?;
        let mut sender = DatagramSender::new(self.path());
        let mut elsewhere = 0;
        for address in addresses {
            elsewhere += usize::from(!sender.reaches(&address.map_err(translate)?));
        }
        let warn = |detail| Ok(Check::new("listeners", Verdict::Warn, detail));
        match bus::bind(self.path()) {
            Err(error) => {
                let cause = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
                warn(format!("no socket can be made for wake-ups, so that waiters poll here: {cause}"))
            }
            Ok(listening) => {
                listening.directory.remove(&listening.address);
                match elsewhere {
                    0 => Ok(Check::new("listeners", Verdict::Ok, "everybody who waits can be woken from here")),
                    _ => warn("some wait at sockets of other users that are not for this one, and poll".to_owned()),
                }
            }
        }
    }

    fn pragma<T: rusqlite::types::FromSql>(&self, name: &str) -> Result<T, Error> {
        self.query(&format!("PRAGMA {name}"))
    }

    fn query<T: rusqlite::types::FromSql>(&self, sql: &str) -> Result<T, Error> {
        let connection: &Connection = &self.connection;
        connection.query_row(sql, [], |row| row.get(0)).map_err(translate)
    }
}

fn permissions(path: &Path) -> Check {
    match std::fs::metadata(path) {
        Ok(found) if found.permissions().mode() & 0o002 != 0 => {
            Check::new("permissions", Verdict::Warn, "everybody on this host may write the file, and so take any lock")
        }
        Ok(found) => Check::new("permissions", Verdict::Ok, format!("mode {:o}", found.permissions().mode() & 0o777)),
        Err(error) => Check::new("permissions", Verdict::Fail, format!("cannot look at the file: {}", error.kind())),
    }
}

fn file_system(directory: &Path) -> Check {
    if on_network(directory) {
        Check::new("file system", Verdict::Warn, "a network file system, where SQLite's locks are not reliable")
    } else {
        Check::new("file system", Verdict::Ok, "local")
    }
}

fn room(directory: &Path) -> Check {
    match rustix::fs::statvfs(directory) {
        Ok(found) => {
            let free = found.f_bavail.saturating_mul(found.f_frsize);
            let verdict = if free < LITTLE_ROOM { Verdict::Warn } else { Verdict::Ok };
            Check::new("disk", verdict, format!("{} MiB free", free / (1024 * 1024)))
        }
        Err(error) => Check::new("disk", Verdict::Warn, format!("cannot tell the free space: {error}")),
    }
}

/// Whether locks on files there may not reach other hosts, or too late.
#[cfg(target_os = "linux")]
pub(super) fn on_network(directory: &Path) -> bool {
    const NETWORK: [i64; 9] = [
        0x6969,      // NFS
        0x517b,      // SMB
        0xff53_4d42, // CIFS
        0xfe53_4d42, // SMB 2
        0x5346_414f, // AFS
        0x0102_1997, // 9P
        0x00c3_6400, // Ceph
        0x0bd0_0bd0, // Lustre
        0x6573_5546, // FUSE, which SSHFS and others use
    ];
    // Its width differs between platforms.
    #[allow(clippy::useless_conversion)]
    let kind = rustix::fs::statfs(directory).map(|found| i64::from(found.f_type));
    kind.is_ok_and(|kind| NETWORK.contains(&(kind & 0xffff_ffff)))
}

#[cfg(not(target_os = "linux"))]
pub(super) fn on_network(_: &Path) -> bool {
    false
}
