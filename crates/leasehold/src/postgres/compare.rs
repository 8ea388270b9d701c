use std::sync::atomic::{AtomicBool, Ordering};

use tokio_postgres::Row;

use super::connections::Connections;
use super::functions::{Definition, Kind, VERSION, definitions};
use super::record::unreadable;
use super::search_path::ELSEWHERE;
use super::tables::{Tables, literal};
use crate::{Error, Operation};

/// Whether the functions in the server can be trusted with new locks.
pub(super) struct Functions {
    /// Compares those that the library calls.
    called: String,
    /// Compares all.
    all: String,
    changed: AtomicBool,
    /// Those are there that a database without its last migration lacks.
    added: AtomicBool,
}

impl Functions {
    pub(super) fn new(tables: &Tables) -> Self {
        let called = comparison(tables, |kind| matches!(kind, Kind::Library | Kind::Added));
        let all = comparison(tables, |_| true);
        Self { called, all, changed: AtomicBool::new(false), added: AtomicBool::new(false) }
    }

    /// Whether those can be called that were added to the version.
    pub(super) fn have_added(&self) -> bool {
        self.added.load(Ordering::Relaxed)
    }

    /// They cannot: until the next look they are not called again.
    pub(super) fn lack_added(&self) {
        self.added.store(false, Ordering::Relaxed);
    }

    /// How they differ from those of this build.
    pub(super) async fn compare(&self, connections: &Connections) -> Result<Differences, Error> {
        Differences::read(&connections.query(Operation::Lookup, &self.all, &[]).await?)
    }

    /// Looks whether any that the library calls was changed. That some are missing is no error
    /// here, because a handle can make them. Returns the schema of other tables, in the same
    /// statement.
    pub(super) async fn check(&self, connections: &Connections) -> Result<Option<String>, Error> {
        let differences = self.compare_called(Operation::Lookup, connections).await?;
        if !differences.changed.is_empty() {
            tracing::warn!(functions = ?differences.changed, "functions for locks were changed: run `leasehold migrate`");
        } else if !differences.missing.is_empty() || !differences.not_added.is_empty() {
            let functions = (&differences.missing, &differences.not_added);
            tracing::debug!(?functions, "functions for locks are missing: run `leasehold migrate`");
        }
        Ok(differences.elsewhere)
    }

    /// Nobody gets a lock from a function that may grant it twice. Costs nothing as long as all is
    /// well.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if one was changed when it was last looked, and still is.
    pub(super) async fn trust(&self, connections: &Connections) -> Result<(), Error> {
        if !self.changed.load(Ordering::Relaxed) {
            return Ok(());
        }
        if self.compare_called(Operation::Acquire, connections).await?.changed.is_empty() {
            return Ok(());
        }
        Err(Error::invalid("the functions for locks in the database were changed")
            .with_hint("run `leasehold migrate --store URL`; `leasehold doctor` names them")
            .during(Operation::Acquire))
    }

    async fn compare_called(&self, operation: Operation, connections: &Connections) -> Result<Differences, Error> {
        let differences = Differences::read(&connections.query(operation, &self.called, &[]).await?)?;
        self.changed.store(!differences.changed.is_empty(), Ordering::Relaxed);
        self.added.store(differences.not_added.is_empty(), Ordering::Relaxed);
        Ok(differences)
    }
}

/// The statement that compares functions in the server with ours: a row for each, and more for a
/// name that is there with other arguments too.
fn comparison(tables: &Tables, wanted: impl Fn(Kind) -> bool) -> String {
    let row = |it: &Definition| {
        let (public, added) = (it.kind == Kind::Everybody, it.kind == Kind::Added);
        format!("({}, {public}, {added}, {})", literal(&it.name), literal(&it.fingerprint))
    };
    let wanted: Vec<_> = definitions(tables).iter().filter(|it| wanted(it.kind)).map(row).collect();
    let statement = include_str!("sql/compare_functions.sql").replace("{{elsewhere}}", ELSEWHERE);
    tables.fill(&statement.replace("{{wanted_functions}}", &wanted.join(", ")))
}

/// How the functions in the server differ from those of this build.
#[derive(Debug, Default)]
pub(super) struct Differences {
    pub(super) missing: Vec<String>,
    /// Missing as well, but only to be faster.
    pub(super) not_added: Vec<String>,
    /// Something of it is other than this build makes it.
    pub(super) changed: Vec<String>,
    /// Of another user than the tables, who could change it at any time.
    pub(super) of_others: Vec<String>,
    /// There with other arguments too, so that a call may reach the wrong one.
    pub(super) ambiguous: Vec<String>,
    /// Public ones that a newer version of the library made.
    pub(super) newer: bool,
    /// The schema of other tables of locks, to which the search path leads.
    pub(super) elsewhere: Option<String>,
}

impl Differences {
    /// Whether all functions are those of this build.
    pub(super) fn is_none(&self) -> bool {
        let all = [&self.missing, &self.not_added, &self.changed, &self.of_others, &self.ambiguous];
        all.into_iter().all(Vec::is_empty)
    }

    /// Reads the answer to [`comparison`].
    ///
    /// # Errors
    ///
    /// `Internal` if it is another answer.
    fn read(rows: &[Row]) -> Result<Self, Error> {
        let elsewhere = rows.first().map(|row| row.try_get(7).map_err(unreadable)).transpose()?.flatten();
        let mut differences = Self { elsewhere, ..Self::default() };
        let mut found: Vec<Found> = rows.iter().map(Found::read).collect::<Result<_, _>>()?;
        // The one that is as it should be comes first of those with its name.
        found.sort_by(|one, other| one.name.cmp(&other.name).then(other.same.cmp(&one.same)));
        for (index, function) in found.iter().enumerate() {
            let name = function.name.clone();
            if !function.there && function.added {
                differences.not_added.push(name);
            } else if !function.there {
                differences.missing.push(name);
            } else if index > 0 && found[index - 1].name == name {
                differences.ambiguous.push(name);
            } else if function.public && function.owned && function.version > VERSION {
                differences.newer = true;
            } else if !function.same {
                differences.changed.push(name);
            } else if !function.owned {
                differences.of_others.push(name);
            }
        }
        Ok(differences)
    }
}

/// A function that is wanted, and what is there of that name.
struct Found {
    name: String,
    public: bool,
    added: bool,
    there: bool,
    owned: bool,
    same: bool,
    version: u32,
}

impl Found {
    fn read(row: &Row) -> Result<Self, Error> {
        let answer = |column| row.try_get::<_, Option<bool>>(column).map_err(unreadable);
        let version: i32 = row.try_get(6).map_err(unreadable)?;
        Ok(Self {
            name: row.try_get(0).map_err(unreadable)?,
            public: answer(1)?.unwrap_or(false),
            added: answer(2)?.unwrap_or(false),
            there: answer(3)?.unwrap_or(false),
            owned: answer(4)?.unwrap_or(false),
            same: answer(5)?.unwrap_or(false),
            version: u32::try_from(version).unwrap_or(0),
        })
    }
}
