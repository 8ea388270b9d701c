//! The stores that contestants meet in, and what they tell of them.

use std::collections::BTreeMap;
use std::path::PathBuf;

use leasehold::Locks;
use rusqlite::Connection;
use tempfile::TempDir;
use test_servers::{Postgres, Redis};

use crate::counters::{Counted, Counters, cpu_of};
use crate::peer::TABLES;

/// A store of our own.
pub trait Place {
    /// Where the contestant of this name finds its locks.
    fn url(&self, name: &str) -> String;

    /// The version of the server.
    fn version(&self) -> String;

    /// The counters now; nothing where there is no server.
    fn counters(&self) -> Option<Counters>;

    /// The bytes that the locks of the contestant of this name take, with all that belongs to them.
    fn bytes(&self, name: &str) -> u64;

    /// Removes every lock.
    fn clear(&self);

    /// What it takes to ask for the counters.
    fn own(&self) -> Option<Counted> {
        let (before, after) = (self.counters()?, self.counters()?);
        Some(after.since(&before, Counted::default()))
    }
}

impl Place for Redis {
    fn url(&self, _: &str) -> String {
        Redis::url(self)
    }

    fn version(&self) -> String {
        format!("Redis {}", self.info("server", "redis_version").unwrap_or_default())
    }

    fn counters(&self) -> Option<Counters> {
        let info = self.cli(&["INFO", "everything"]);
        let fields: BTreeMap<_, _> = info.lines().filter_map(|line| line.trim_end().split_once(':')).collect();
        let number = |name: &str| fields.get(name).and_then(|text| text.parse().ok()).unwrap_or(0.0);
        let calls = fields.iter().filter(|(name, _)| name.starts_with("cmdstat_"));
        let calls = calls.filter_map(|(_, text)| text.strip_prefix("calls=")?.split(',').next()?.parse::<f64>().ok());
        Some(Counters {
            requests: number("total_reads_processed"),
            commands: calls.sum(),
            cpu: BTreeMap::from([(self.pid(), number("used_cpu_user") + number("used_cpu_sys"))]),
        })
    }

    fn bytes(&self, _: &str) -> u64 {
        self.used_memory()
    }

    fn clear(&self) {
        self.cli(&["FLUSHALL"]);
    }
}

/// Our tables, and those of the contestants that are written by hand.
pub fn postgres() -> Postgres {
    let server = Postgres::with(&[("max_connections", "200")]);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(Locks::migrate(&server.url())).unwrap();
    server.sql(TABLES);
    server
}

const OUR_TABLES: &str = "FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace";

impl Place for Postgres {
    fn url(&self, _: &str) -> String {
        // As many connections as the others have.
        format!("{}?pool_size=16", Postgres::url(self))
    }

    fn version(&self) -> String {
        let version = self.sql("SHOW server_version");
        format!("PostgreSQL {}", version.split_whitespace().next().unwrap_or_default())
    }

    fn counters(&self) -> Option<Counters> {
        let statements = self.sql("SELECT coalesce(sum(calls), 0) FROM pg_stat_statements WHERE query !~ 'pg_stat'");
        let statements = statements.trim().parse().unwrap();
        let cpu = self.pids().into_iter().map(|pid| (pid, cpu_of(pid).as_secs_f64())).collect();
        Some(Counters { requests: statements, commands: statements, cpu })
    }

    fn bytes(&self, _: &str) -> u64 {
        self.sql(&format!("SELECT sum(pg_total_relation_size(oid)) {OUR_TABLES}")).trim().parse().unwrap()
    }

    fn clear(&self) {
        let tables = self.sql(&format!("SELECT string_agg(quote_ident(relname), ', ') {OUR_TABLES}"));
        self.sql(&format!("TRUNCATE {}", tables.trim()));
    }
}

/// A file for each contestant.
#[derive(Debug)]
pub struct Files(TempDir);

impl Files {
    /// In a directory of their own.
    pub fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(format!("{}.db", name.replace(' ', "-")))
    }
}

impl Default for Files {
    fn default() -> Self {
        Self::new()
    }
}

impl Place for Files {
    fn url(&self, name: &str) -> String {
        let url = format!("sqlite:{}", self.file(name).display());
        // Also for those who use our tables by hand.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        drop(runtime.block_on(Locks::connect(&url)).unwrap());
        url
    }

    fn version(&self) -> String {
        format!("SQLite {}", rusqlite::version())
    }

    fn counters(&self) -> Option<Counters> {
        None
    }

    fn bytes(&self, name: &str) -> u64 {
        let database = Connection::open(self.file(name)).unwrap();
        let number = |pragma| database.pragma_query_value(None, pragma, |row| row.get::<_, i64>(0)).unwrap();
        u64::try_from(number("page_count") * number("page_size")).unwrap()
    }

    fn clear(&self) {}
}
