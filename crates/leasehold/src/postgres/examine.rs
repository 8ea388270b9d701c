use tokio_postgres::types::Type;

use super::Postgres;
use super::functions::VERSION;
use crate::{Check, Error, Operation, Verdict};

/// The oldest version that is tested.
const OLDEST: i32 = 120_000;

/// So many fences are counted where the server has no estimate.
const MOST_COUNTED: i64 = 10_000;

/// Our tables in the catalogue.
const TABLES: &str = "FROM pg_class WHERE relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = {{schema_text}})
    AND relname IN ({{locks_name}}, {{fences_name}}, {{grants_name}}, {{line_name}})";

/// How many they are.
const NUMBER_OF_TABLES: i64 = 4;

/// The column that only we have.
const DETAILS: &str =
    "SELECT FROM pg_attribute WHERE attrelid = pg_class.oid AND attname = 'details' AND NOT attisdropped";

/// Our functions in the catalogue.
const FUNCTIONS: &str =
    "FROM pg_proc WHERE pronamespace = (SELECT oid FROM pg_namespace WHERE nspname = {{schema_text}})
    AND proname IN ({{function_names}})";

impl Postgres {
    /// Looks for whatever could break locks or fences in this database.
    ///
    /// Cancel-safe.
    ///
    /// # Errors
    ///
    /// As for any operation, if the server cannot be asked at all.
    pub async fn examine(&self) -> Result<Vec<Check>, Error> {
        let number: i32 = self.setting("server_version_num").await?.parse().unwrap_or(0);
        let verdict = if number >= OLDEST { Verdict::Ok } else { Verdict::Warn };
        let version = Check::new("postgres", verdict, format!("version {}", self.setting("server_version").await?));
        let mut checks = vec![version, self.role().await?, self.schema().await?, self.functions().await?];
        checks.extend(self.permissions().await?);
        checks.push(self.durability().await?);
        checks.push(self.dead_rows().await?);
        checks.push(self.fence_counters().await?);
        Ok(checks)
    }

    /// As the server estimates it: to count them would read them all. Where it has no estimate yet,
    /// some are counted.
    async fn fence_counters(&self) -> Result<Check, Error> {
        let estimate = format!("SELECT max(reltuples)::bigint {TABLES} AND relname = {{{{fences_name}}}}");
        let number = match self.value::<Option<i64>>(&estimate).await? {
            Some(number @ 1..) => format!("about {number}"),
            _ => self.count_fences().await,
        };
        let detail = format!("{number} fence counters: each key that was ever locked keeps one, of some 200 bytes");
        Ok(Check::new("counters", Verdict::Ok, detail))
    }

    /// How many there are, if they are not too many to be counted.
    async fn count_fences(&self) -> String {
        let count = format!("SELECT count(*) FROM (SELECT FROM {{{{fences}}}} LIMIT {MOST_COUNTED} + 1) AS counted");
        match self.value::<i64>(&count).await {
            Ok(number @ ..=MOST_COUNTED) => number.to_string(),
            Ok(_) => format!("more than {MOST_COUNTED}"),
            Err(_) => "an unknown number of".to_owned(),
        }
    }

    async fn value<T: for<'a> tokio_postgres::types::FromSql<'a>>(&self, statement: &str) -> Result<T, Error> {
        let statement = self.operations.tables.fill(statement);
        let row = self.operations.query_one(Operation::Lookup, &statement, &[]).await?;
        row.try_get(0).map_err(super::record::unreadable)
    }

    async fn setting(&self, name: &str) -> Result<String, Error> {
        let row =
            self.operations.query_one(Operation::Lookup, "SELECT current_setting($1)", &[(&name, Type::TEXT)]).await?;
        row.try_get(0).map_err(super::record::unreadable)
    }

    async fn role(&self) -> Result<Check, Error> {
        let standby: bool = self.value("SELECT pg_is_in_recovery()").await?;
        let read_only = self.setting("transaction_read_only").await? == "on";
        Ok(match (standby, read_only) {
            (true, _) => Check::new("role", Verdict::Fail, "a standby, which takes no locks: connect to the primary"),
            (_, true) => Check::new(
                "role",
                Verdict::Fail,
                "the session is read-only: check default_transaction_read_only of the user and the database",
            ),
            _ => Check::new("role", Verdict::Ok, "primary"),
        })
    }

    /// By the catalogue, which answers even whoever may not look into the schema.
    async fn schema(&self) -> Result<Check, Error> {
        let tables: i64 = self.value(&format!("SELECT count(*) {TABLES}")).await?;
        let column = format!("SELECT EXISTS (SELECT {TABLES} AND relname = {{{{locks_name}}}} AND EXISTS ({DETAILS}))");
        let elsewhere = self.search_path().await?.elsewhere;
        Ok(match (tables, self.value(&column).await?) {
            (NUMBER_OF_TABLES, true) => match elsewhere {
                None => Check::new("tables", Verdict::Ok, "they are there"),
                // As somebody chose.
                Some(schema) => Check::new(
                    "tables",
                    Verdict::Ok,
                    format!(
                        "they are there, but the search path leads to others in the schema {schema}: \
                         programs that follow it share no locks with ?schema={}",
                        self.operations.tables.schema()
                    ),
                ),
            },
            (NUMBER_OF_TABLES, false) => {
                Check::new("tables", Verdict::Fail, "a column is missing: run `leasehold migrate`")
            }
            (1.., _) => Check::new("tables", Verdict::Fail, "a table is missing: run `leasehold migrate`"),
            _ => Check::new("tables", Verdict::Fail, "the tables are missing: run `leasehold migrate`"),
        })
    }

    /// Whether the functions are those of this build, to the letter.
    async fn functions(&self) -> Result<Check, Error> {
        let found = self.operations.functions.compare(&self.operations.connections).await?;
        let trouble = [
            (&found.missing, "missing: run `leasehold migrate`"),
            (&found.changed, "changed by somebody: run `leasehold migrate`"),
            (&found.of_others, "of another owner than the tables: let a superuser run `leasehold migrate`"),
            (&found.ambiguous, "there with other arguments too: drop those that are not ours"),
        ];
        let trouble: Vec<_> = trouble
            .iter()
            .filter(|(names, _)| !names.is_empty())
            .map(|(names, what)| format!("{} {what}", names.join(", ")))
            .collect();
        let public = match (self.operations.tables.are_public(), found.newer) {
            (true, false) => "and those for SQL clients",
            (true, true) => "and newer ones for SQL clients",
            (false, _) => "and none for SQL clients, which use tables of the usual names",
        };
        if trouble.is_empty() && !found.not_added.is_empty() {
            let missing = found.not_added.join(", ");
            let detail =
                format!("{missing} missing, without which many locks at once take longer: run `leasehold migrate`");
            return Ok(Check::new("functions", Verdict::Warn, detail));
        }
        Ok(match trouble.is_empty() {
            true => Check::new("functions", Verdict::Ok, format!("those of version {VERSION}, {public}")),
            false => Check::new("functions", Verdict::Fail, trouble.join("; ")),
        })
    }

    /// What the user may and may not do, as `GRANT` calls it.
    async fn permissions(&self) -> Result<Option<Check>, Error> {
        if self.value::<i64>(&format!("SELECT count(*) {TABLES}")).await? != NUMBER_OF_TABLES {
            return Ok(None);
        }
        let mut missing = Vec::new();
        if !self.value::<bool>("SELECT has_schema_privilege({{schema_text}}, 'USAGE')").await? {
            missing.push("USAGE on the schema".to_owned());
        }
        let may = async |table: &str, privilege: &str| -> Result<bool, Error> {
            self.value(&format!("SELECT has_table_privilege(oid, '{privilege}') {TABLES} AND relname = {table}")).await
        };
        for (table, name, privileges) in [
            ("{{locks_name}}", "locks", &["SELECT", "INSERT", "UPDATE", "DELETE"][..]),
            ("{{fences_name}}", "fences", &["SELECT", "INSERT", "UPDATE"]),
            ("{{grants_name}}", "grants", &["SELECT", "INSERT", "UPDATE", "DELETE"]),
            ("{{line_name}}", "those in line", &["SELECT", "INSERT", "UPDATE", "DELETE"]),
        ] {
            for privilege in privileges {
                if !may(table, privilege).await? {
                    missing.push(format!("{privilege} on the table of {name}"));
                }
            }
        }
        if !self
            .value::<bool>(&format!(
                "SELECT coalesce(bool_and(has_function_privilege(oid, 'EXECUTE')), true) {FUNCTIONS}"
            ))
            .await?
        {
            missing.push("EXECUTE on the functions".to_owned());
        }
        let deletes = may("{{fences_name}}", "DELETE").await?;
        Ok(Some(match missing.is_empty() {
            false => Check::new("permissions", Verdict::Fail, format!("missing: {}", missing.join(", "))),
            true if deletes => Check::new(
                "permissions",
                Verdict::Ok,
                "everything is allowed, and more than needed: nobody should delete fences, see docs/postgres.md",
            ),
            true => Check::new("permissions", Verdict::Ok, "what locks need is allowed, and fences cannot be deleted"),
        }))
    }

    async fn durability(&self) -> Result<Check, Error> {
        if self.setting("fsync").await? != "on" {
            let detail = "fsync is off: a crash of the machine may corrupt the database and forget locks";
            return Ok(Check::new("persistence", Verdict::Fail, detail));
        }
        let standbys = self.setting("synchronous_standby_names").await?;
        let replicas: i64 = self.value("SELECT count(*) FROM pg_stat_replication").await?;
        Ok(match (replicas, standbys.is_empty()) {
            (0, _) => Check::new("persistence", Verdict::Ok, "every grant is on disk before it is answered"),
            (_, false) => Check::new(
                "persistence",
                Verdict::Ok,
                "every grant is on disk here and on a standby before it is answered",
            ),
            (_, true) => Check::new(
                "persistence",
                Verdict::Warn,
                "standbys are asynchronous: a failover may forget the last locks; fences stay unique. Set synchronous_standby_names",
            ),
        })
    }

    async fn dead_rows(&self) -> Result<Check, Error> {
        let rows: i64 =
            match self.value("SELECT count(*) FROM {{locks}} WHERE expires_at_ms < {{now_us}} / 1000 - 60000").await {
                Ok(rows) => rows,
                Err(_) => return Ok(Check::new("dead rows", Verdict::Warn, "cannot be counted")),
            };
        Ok(match rows {
            0..10_000 => Check::new("dead rows", Verdict::Ok, format!("{rows} of locks whose holders crashed")),
            _ => Check::new(
                "dead rows",
                Verdict::Warn,
                format!("{rows} of locks whose holders crashed: set sweep_every"),
            ),
        })
    }
}
