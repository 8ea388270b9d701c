use super::Postgres;
use super::record::unreadable;
use crate::{Error, Operation};

/// The schema of another table of locks to which the search path leads, as a query.
pub(super) const ELSEWHERE: &str = include_str!("sql/elsewhere.sql");

/// Where the search path of the session leads, which the Node.js library follows.
pub(super) struct SearchPath {
    /// The schema of another table of locks that is found first.
    pub(super) elsewhere: Option<String>,
    /// The schema in which tables are made.
    pub(super) first: Option<String>,
}

/// The other library finds its tables by the search path, we find ours by their schema. If these
/// are two places and nobody chose one, both would grant the same lock.
pub(super) fn two_places(schema: &str) -> Error {
    Error::invalid("the search path leads to tables for locks in another schema, which other programs may use")
        .with_hint(format!("add ?schema={schema} to the URL to share those, or ?schema=public if that is meant"))
}

impl Postgres {
    /// Follows the search path.
    ///
    /// # Errors
    ///
    /// As for any operation.
    pub(super) async fn search_path(&self) -> Result<SearchPath, Error> {
        let statement =
            self.operations.tables.fill(&format!("SELECT ({ELSEWHERE}), pg_catalog.current_schema()::text"));
        let row = self.operations.query_one(Operation::Lookup, &statement, &[]).await?;
        let name = |column| row.try_get::<_, Option<String>>(column).map_err(unreadable);
        Ok(SearchPath { elsewhere: name(0)?, first: name(1)? })
    }
}
