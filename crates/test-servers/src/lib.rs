//! Private servers for tests and benchmarks: each on a free port, in a directory of its own, gone
//! when it is dropped.
//!
//! - [`Server`]: what all of them can do: stop, crash, stand still, start again.
//! - [`Redis`]: one server, with a password, TLS, persistence or a primary to replicate if asked;
//!   [`RedisCluster`] and [`RedisSentinel`] are several of them that know each other.
//! - [`Postgres`]: one server, with a password or TLS if asked; [`PgBouncer`] pools connections to
//!   it.
//! - [`Firestore`]: a stand-in for it, with credentials, TLS or persistence if asked, in which a
//!   [`FirestoreFault`] makes calls go wrong.
//! - [`Certificates`]: what a server and its client need to speak TLS.
//! - [`Proxy`]: stands between a client and any server, and cuts, stalls or garbles at a chosen
//!   request.
//! - [`Distance`]: stands between a client and any server, and makes everything take a while.
//!
//! ```
//! use test_servers::{Proxy, Redis};
//!
//! let redis = Redis::start();
//! assert_eq!(redis.cli(&["SET", "greeting", "hello"]), "OK");
//!
//! let proxy = Proxy::start(redis.address());
//! let cut = proxy.cut_after(b"INCR");
//! // A client of `proxy.address()` now loses the answer to its first INCR.
//! assert!(!cut.fired());
//! ```
//!
//! Nothing here needs a runtime: calls block, and are fine in a test whether it is asynchronous or
//! not. Everything takes `&self`, so that a server can be shared between threads.
//!
//! A server that is not installed, does not start or does not answer is a panic that says what to
//! do. No test is ever skipped for it.
//!
//! Whatever is waited for has one [`DEADLINE`], and [`eventually`] waits for a condition.
//!
//! No server outlives the process that started it, even one that is killed: a watchdog sees to it.
//!
//! Runs on Linux, where it reads `/proc` and reserves ports by names that the kernel forgets with
//! the process.

mod account;
mod certificates;
mod deadline;
mod distance;
mod firestore;
mod pgbouncer;
mod port;
mod postgres;
mod process;
mod process_tree;
mod proxy;
mod redis;
mod server;
mod watchdog;

pub use certificates::Certificates;
pub use deadline::{DEADLINE, eventually};
pub use distance::Distance;
pub use firestore::{Firestore, FirestoreBuilder, FirestoreCounts, FirestoreDocument, FirestoreFault, FirestoreRole};
pub use pgbouncer::{PgBouncer, PgBouncerBuilder};
pub use postgres::{Postgres, PostgresBuilder};
pub use process_tree::is_alive;
pub use proxy::{Counts, Proxy, Rule};
pub use redis::{Redis, RedisBuilder, RedisCluster, RedisSentinel, SlotMove};
pub use server::Server;
