use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tonic::Status;

use crate::name::Database;

/// The ids of the databases that exist, in every project.
#[derive(Debug)]
pub(crate) struct Databases(Mutex<BTreeSet<String>>);

impl Databases {
    /// Only the one that every project has.
    pub(crate) fn new() -> Self {
        Self(Mutex::new(BTreeSet::from(["(default)".to_owned()])))
    }

    pub(crate) fn ids(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn check(&self, database: &Database) -> Result<(), Status> {
        let Database { project, id } = database;
        if self.ids().contains(id) {
            return Ok(());
        }
        Err(Status::not_found(format!(
            "The database {id} does not exist for project {project} Please visit \
             https://console.cloud.google.com/datastore/setup?project={project} to add a Cloud Datastore or Cloud \
             Firestore database."
        )))
    }
}
