use super::tables::Tables;

/// The statements, with the names of the tables filled in.
pub(super) struct Statements {
    pub(super) acquire: String,
    pub(super) release: String,
    pub(super) release_many: String,
    pub(super) extend: String,
    pub(super) extend_many: String,
    pub(super) force_release: String,
    pub(super) obstacle: String,
    pub(super) by_key: String,
    pub(super) by_id: String,
    pub(super) list: String,
    pub(super) now: String,
}

impl Statements {
    pub(super) fn new(tables: &Tables) -> Self {
        let find = include_str!("sql/find.sql");
        Self {
            acquire: tables.fill("SELECT * FROM {{acquire}}($1, $2, $3, $4, $5, $6::text::jsonb, $7, $8, $9)"),
            release: tables.fill("SELECT {{release}}($1)"),
            release_many: tables.fill("SELECT {{release_many}}($1)"),
            extend: tables.fill("SELECT * FROM {{extend}}($1, $2, $3)"),
            extend_many: tables.fill("SELECT * FROM {{extend_many}}($1, $2)"),
            obstacle: tables.fill(include_str!("sql/obstacle.sql")),
            force_release: tables.fill(&find.replace("{{locks}}", "{{force_release}}($1)")),
            by_key: tables.fill(&format!("{find} WHERE l.key = $1")),
            by_id: tables.fill(&format!("{find} WHERE l.lock_id = $1")),
            list: tables.fill(&format!("{find} {}", include_str!("sql/list.sql"))),
            now: tables.fill("SELECT {{now_us}}"),
        }
    }
}
