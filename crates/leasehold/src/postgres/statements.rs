use super::tables::Tables;

/// The statements, with the names of the tables filled in.
pub(super) struct Statements {
    pub(super) acquire: String,
    pub(super) acquire_all: String,
    pub(super) acquire_many: String,
    pub(super) release: String,
    pub(super) release_many: String,
    pub(super) extend: String,
    pub(super) extend_many: String,
    pub(super) force_release: String,
    pub(super) obstacle: String,
    pub(super) by_key: String,
    pub(super) by_id: String,
    pub(super) inspect: String,
    pub(super) list: String,
    pub(super) now: String,
}

impl Statements {
    pub(super) fn new(tables: &Tables) -> Self {
        let find = include_str!("sql/find.sql");
        let live = "h.expires_at_ms > {{now_us}} / 1000 - {{tolerance_ms}}";
        Self {
            acquire: tables
                .fill("SELECT * FROM {{acquire}}($1, $2, $3, $4, $5, $6::text::jsonb, $7, $8, $9, $10, $11, $12, $13)"),
            acquire_all: tables
                .fill("SELECT * FROM {{acquire_all}}($1, $2, $3, $4, $5, $6::text[]::jsonb[], $7, $8, $9)"),
            acquire_many: tables.fill("SELECT * FROM {{acquire_many}}($1, $2, $3, $4, $5, $6::text[]::jsonb[], $7)"),
            release: tables.fill("SELECT {{release}}($1)"),
            release_many: tables.fill("SELECT {{release_many}}($1)"),
            extend: tables.fill("SELECT * FROM {{extend}}($1, $2, $3)"),
            extend_many: tables.fill("SELECT * FROM {{extend_many}}($1, $2)"),
            obstacle: tables.fill(include_str!("sql/obstacle.sql")),
            force_release: tables.fill(&find.replace("({{held}})", "{{force_release}}($1, $2)")),
            by_key: tables.fill(&format!("{find} WHERE h.key = $1 AND {live} ORDER BY h.fence COLLATE \"C\" LIMIT 1")),
            by_id: tables.fill(&format!("{find} WHERE h.lock_id = $1 AND {live}")),
            inspect: tables.fill(include_str!("sql/inspect.sql")),
            list: tables.fill(include_str!("sql/list.sql")),
            now: tables.fill("SELECT {{now_us}}"),
        }
    }
}
