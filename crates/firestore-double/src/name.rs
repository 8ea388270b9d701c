//! Resource names: `projects/P/databases/D/documents/COLLECTION/ID`.

use tonic::Status;

/// The longest id of a collection or document, in bytes.
const LONGEST_ID: usize = 1500;

/// A database, as `projects/P/databases/D`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Database {
    pub(crate) project: String,
    pub(crate) id: String,
}

impl Database {
    /// The database that a resource is in, or is.
    pub(crate) fn of(name: &str) -> Result<Self, Status> {
        let mut parts = name.split('/');
        match (parts.next(), parts.next(), parts.next(), parts.next()) {
            (Some("projects"), Some(project), Some("databases"), Some(id)) if !project.is_empty() && !id.is_empty() => {
                Ok(Self { project: project.to_owned(), id: id.to_owned() })
            }
            _ => Err(Status::invalid_argument(format!("Invalid resource name: {name:?}"))),
        }
    }

    /// The parent of its root collections.
    pub(crate) fn root(&self) -> String {
        format!("projects/{}/databases/{}/documents", self.project, self.id)
    }

    /// Checks that `name` is a document of this database.
    pub(crate) fn check_document(&self, name: &str) -> Result<(), Status> {
        let segments = self.segments(name)?;
        if segments.is_empty() || segments.len() % 2 == 1 {
            return Err(Status::invalid_argument(format!("Document name {name:?} lacks a collection or an id.")));
        }
        segments.into_iter().try_for_each(check_id)
    }

    /// Checks that collections can be below `name`: the root, or a document.
    pub(crate) fn check_parent(&self, name: &str) -> Result<(), Status> {
        if name == self.root() { Ok(()) } else { self.check_document(name) }
    }

    fn segments<'a>(&self, name: &'a str) -> Result<Vec<&'a str>, Status> {
        match name.strip_prefix(&self.root()).and_then(|rest| rest.strip_prefix('/')) {
            Some(path) => Ok(path.split('/').collect()),
            None => Err(Status::invalid_argument(format!("Document {name:?} is not in {}.", self.root()))),
        }
    }
}

/// Checks the id of a collection or document.
pub(crate) fn check_id(id: &str) -> Result<(), Status> {
    let problem = if id.is_empty() {
        "is empty"
    } else if id == "." || id == ".." {
        "is a relative path"
    } else if id.len() > LONGEST_ID {
        "is longer than 1500 bytes"
    } else if id.contains('/') {
        "has a slash"
    } else if id.len() >= 4 && id.starts_with("__") && id.ends_with("__") {
        "is reserved"
    } else {
        return Ok(());
    };
    Err(Status::invalid_argument(format!("Resource id {id:?} is invalid because it {problem}.")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_checked() {
        let database = Database::of("projects/p/databases/(default)/documents/a/b").unwrap();
        let document = |id: &str| database.check_document(&format!("{}/locks/{id}", database.root()));
        for good in ["a", "ä", "...", "__a", "__", "___", &"x".repeat(1500)] {
            document(good).unwrap();
        }
        for bad in ["", ".", "..", "____", "__a__", "a/b", &"x".repeat(1501), &"ä".repeat(751)] {
            document(bad).unwrap_err();
        }
        database.check_document("projects/p/databases/other/documents/a/b").unwrap_err();
    }
}
