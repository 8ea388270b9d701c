use test_servers::Postgres;
use tokio_postgres::{Client, NoTls};

/// Connections that listen: their last statement is one of those that only they send.
pub const LISTENING: &str = "(query LIKE 'LISTEN%' OR query LIKE '%advisory_%shared%')";

/// A session of somebody else, which can stop between two statements.
pub async fn session(server: &Postgres) -> Client {
    let url = format!("{}?application_name=session", server.url());
    let (client, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// The one number that a query gives.
#[track_caller]
pub fn number(server: &Postgres, query: &str) -> u64 {
    let answer = server.sql(query);
    answer.parse().unwrap_or_else(|_| panic!("{query}: {answer}"))
}

/// The server's clock, in milliseconds.
pub fn now(server: &Postgres) -> u64 {
    number(server, "SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint")
}

/// The row of a lock, without the column that only we have; empty if there is none.
pub fn row(server: &Postgres, key: &str) -> String {
    let columns = "key, lock_id, expires_at_ms, acquired_at_ms, fence, user_key";
    server.sql(&format!("SELECT {columns} FROM syncguard_locks WHERE key = '{key}'"))
}

/// How many sessions of ours there are for which a condition holds.
pub fn ours(server: &Postgres, condition: &str) -> u64 {
    let query = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'leasehold' AND";
    number(server, &format!("{query} ({condition})"))
}

/// How many keys are waited for. Some keys share a number, and are one.
pub fn awaited(server: &Postgres) -> u64 {
    number(server, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ShareLock' AND granted")
}

/// How many sessions of ours wait for something that another session has.
pub fn stuck(server: &Postgres) -> u64 {
    ours(server, "wait_event_type = 'Lock'")
}

/// The channel over which we are told of freed and taken locks.
pub fn channel(server: &Postgres) -> String {
    let source =
        "SELECT substring(prosrc FROM 'leasehold:[0-9a-f]+') FROM pg_proc WHERE proname LIKE '%force_release%'";
    server.sql(source)
}
