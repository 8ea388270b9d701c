use super::Postgres;
use crate::{Error, Operation};

/// Whether the table of locks is there without our column.
const FOREIGN: &str = "SELECT FROM pg_class WHERE oid = to_regclass({{locks_text}}) AND NOT EXISTS (
    SELECT FROM pg_attribute WHERE attrelid = pg_class.oid AND attname = 'details' AND NOT attisdropped)";

/// Whether there is a table of locks at all.
const THERE: &str = "SELECT FROM pg_class WHERE oid = to_regclass({{locks_text}})";

impl Postgres {
    /// What somebody should know before [`migrate`](Postgres::migrate) is run: whom it may disturb,
    /// and whose locks would not be shared. Nothing as a rule.
    ///
    /// Cancel-safe.
    ///
    /// # Errors
    ///
    /// As for any operation.
    pub async fn migration_warnings(&self) -> Result<Vec<String>, Error> {
        let is_there = async |what: &str| -> Result<bool, Error> {
            Ok(!self.operations.query(Operation::Lookup, &self.operations.tables.fill(what), &[]).await?.is_empty())
        };
        let (schema, table) = (self.operations.tables.schema(), self.operations.tables.locks_name());
        let mut warnings = Vec::new();
        if is_there(FOREIGN).await? {
            warnings.push(format!(
                "the table {schema}.{table} was made by another program, such as SyncGuard. It gets one column more. \
                 Running processes of that program then fail once for each connection and statement (\"cached plan must not \
                 change result type\"), and a release that fails leaves its lock until the ttl ends: stop them \
                 before, or restart them afterwards"
            ));
        } else if !self.schema_is_chosen
            && !is_there(THERE).await?
            && let Some(first) = self.search_path().await?.first.filter(|first| first != schema)
        {
            warnings.push(format!(
                "the tables are made in the schema {schema}, but the search path leads to the schema {first}, where SyncGuard \
                 would make its own: then they share no locks. Add ?schema={first} to the URLs of all programs, or \
                 ?schema={schema} if that is meant"
            ));
        }
        Ok(warnings)
    }
}
