//! What can go wrong with PostgreSQL alone.

pub(crate) mod isolation;
pub(crate) mod obstacles;
pub(crate) mod pool;
pub(crate) mod restart;

use test_servers::Postgres;

/// A server with tables and these settings.
fn server(settings: &[(&str, &str)]) -> Postgres {
    let builder = settings.iter().fold(Postgres::builder(), |builder, (name, value)| builder.setting(name, value));
    test_support::postgres::migrated(builder)
}
