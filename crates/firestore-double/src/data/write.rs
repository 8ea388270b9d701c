//! What the writes of a commit would do.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use googleapis_tonic_google_firestore_v1::google::firestore::v1::precondition::ConditionType;
use googleapis_tonic_google_firestore_v1::google::firestore::v1::write::Operation;
use googleapis_tonic_google_firestore_v1::google::firestore::v1::{
    Document, DocumentMask, Precondition, Write, WriteResult,
};
use prost_types::Timestamp;
use tonic::Status;

use super::documents::Documents;
use super::field_path::FieldPath;
use super::history::Change;
use super::size;
use crate::clock::{Micros, timestamp};
use crate::failure::unknown;
use crate::name::{Database, check_id};

/// What a commit would do to the documents as they are.
#[derive(Debug)]
pub(crate) struct Plan {
    /// Every document that is written, even if it stays as it is.
    pub(crate) changes: Vec<Change>,
    pub(crate) results: Vec<WriteResult>,
    pub(crate) updates: u64,
    pub(crate) deletes: u64,
}

impl Plan {
    /// Applies the writes in order, or says which of them cannot be.
    pub(crate) fn make(documents: &Documents, writes: &[Write], time: Micros) -> Result<Self, Status> {
        let mut after: BTreeMap<&str, Option<Arc<Document>>> = BTreeMap::new();
        let mut plan = Self { changes: Vec::new(), results: Vec::new(), updates: 0, deletes: 0 };
        for write in writes {
            let name = written_name(write)?;
            let current = after.get(name).cloned().unwrap_or_else(|| documents.get(name).cloned());
            check(write.current_document.as_ref(), name, current.as_deref())?;
            let next = match &write.operation {
                Some(Operation::Update(document)) => {
                    plan.updates += 1;
                    Some(update(document, write.update_mask.as_ref(), current, time)?)
                }
                _ => {
                    plan.deletes += 1;
                    None
                }
            };
            let update_time = next.as_ref().and_then(|document| document.update_time);
            plan.results.push(WriteResult { update_time, transform_results: Vec::new() });
            after.insert(name, next);
        }
        plan.changes = after
            .into_iter()
            .map(|(name, after)| Change { name: name.to_owned(), before: documents.get(name).cloned(), after })
            .collect();
        Ok(plan)
    }

    /// The changes that change anything.
    pub(crate) fn effective(self) -> Vec<Change> {
        self.changes.into_iter().filter(|change| change.before != change.after).collect()
    }
}

/// Refuses writes that can never be applied.
pub(crate) fn validate(database: &Database, writes: &[Write]) -> Result<(), Status> {
    for write in writes {
        database.check_document(written_name(write)?)?;
        if !write.update_transforms.is_empty() {
            return Err(unknown("transforms"));
        }
        if let Some(Operation::Update(document)) = &write.operation {
            document.fields.keys().try_for_each(|name| check_field(name))?;
            size::check(document)?;
        }
    }
    Ok(())
}

/// Refuses writes of which two are about one document, as batches do.
pub(crate) fn each_once(writes: &[Write]) -> Result<(), Status> {
    let mut names = HashSet::new();
    for write in writes {
        if !names.insert(written_name(write)?) {
            return Err(Status::invalid_argument("A batch writes every document at most once."));
        }
    }
    Ok(())
}

fn written_name(write: &Write) -> Result<&str, Status> {
    match &write.operation {
        Some(Operation::Update(document)) => Ok(&document.name),
        Some(Operation::Delete(name)) => Ok(name),
        _ => Err(unknown("writes other than update and delete")),
    }
}

/// Fields follow the rules of ids, except that they may have slashes and be dots.
fn check_field(name: &str) -> Result<(), Status> {
    if name.contains('/') || name == "." || name == ".." { Ok(()) } else { check_id(name) }
}

fn check(precondition: Option<&Precondition>, name: &str, current: Option<&Document>) -> Result<(), Status> {
    let missing = || Status::not_found(format!("No document to update: {name}"));
    match precondition.and_then(|precondition| precondition.condition_type.as_ref()) {
        None => Ok(()),
        Some(ConditionType::Exists(true)) => current.map(drop).ok_or_else(missing),
        Some(ConditionType::Exists(false)) if current.is_none() => Ok(()),
        Some(ConditionType::Exists(false)) => Err(Status::already_exists(format!("Document already exists: {name}"))),
        Some(ConditionType::UpdateTime(expected)) => {
            let actual = current.ok_or_else(missing)?.update_time;
            check_update_time(expected, actual.as_ref())
        }
    }
}

fn check_update_time(expected: &Timestamp, actual: Option<&Timestamp>) -> Result<(), Status> {
    if actual == Some(expected) {
        return Ok(());
    }
    Err(Status::failed_precondition("the stored version does not match the required base version"))
}

/// The document after an update. One that changes nothing leaves the time of the last one.
fn update(
    written: &Document,
    mask: Option<&DocumentMask>,
    current: Option<Arc<Document>>,
    time: Micros,
) -> Result<Arc<Document>, Status> {
    let mut fields = written.fields.clone();
    if let Some(mask) = mask {
        fields = current.as_ref().map(|current| current.fields.clone()).unwrap_or_default();
        for path in &mask.field_paths {
            let path = FieldPath::parse(path)?;
            path.set(&mut fields, path.get(&written.fields).cloned());
        }
    }
    if let Some(current) = current.as_ref().filter(|current| current.fields == fields) {
        return Ok(Arc::clone(current));
    }
    let now = Some(timestamp(time));
    let create_time = current.map_or(now, |current| current.create_time);
    let document = Document { name: written.name.clone(), fields, create_time, update_time: now };
    size::check(&document)?;
    Ok(Arc::new(document))
}
