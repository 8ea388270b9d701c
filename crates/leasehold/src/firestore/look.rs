//! Looking at locks without touching them.

use super::connection::{Failure, Session};
use super::key_document::KeyDocument;
use super::owned::{Owned, owned};
use super::query::Start;
use super::transaction::Consistency;
use super::{Firestore, query, record};
use crate::backend::{Inspected, ListPage, ListRequest, LookupBy, Record};
use crate::{Error, Fence, Key, LockId, Operation};

impl Firestore {
    /// What the document of a key says.
    pub(super) async fn look_at(&self, operation: Operation, key: &Key) -> Result<KeyDocument, Error> {
        let connection = self.connection()?;
        let session = connection.session(operation);
        session.retry(|| self.try_look_at(session, key)).await
    }

    async fn try_look_at(&self, session: Session<'_>, key: &Key) -> Result<KeyDocument, Failure> {
        let name = self.names.lock(&self.names.id(key).map_err(Failure::Refused)?);
        let read = session.get(&self.clocks, &[&name], Consistency::Latest).await?;
        KeyDocument::read(&name, read.find(&name), read.moment).map_err(Failure::Refused)
    }

    pub(super) async fn look_up(&self, by: LookupBy<'_>) -> Result<Option<Record>, Error> {
        match by {
            LookupBy::Key(key) => oldest(&self.look_at(Operation::Lookup, key).await?, |_| true),
            LookupBy::Id(id) => {
                let connection = self.connection()?;
                let session = connection.session(Operation::Lookup);
                let keys = session.retry(|| self.find_by_id(session, id)).await?;
                match owned(&keys, id).map_err(|error| error.during(Operation::Lookup))? {
                    Owned::Holds(index) => oldest(&keys[index], |holder| *holder == *id),
                    Owned::Waits(_) | Owned::Not(_) => Ok(None),
                }
            }
        }
    }

    pub(super) async fn inspect_key(&self, key: &Key) -> Result<Inspected, Error> {
        let found = self.look_at(Operation::Lookup, key).await?;
        if let Some(foreign) = found.foreign() {
            return Err(foreign.error.clone().during(Operation::Lookup));
        }
        Ok(found.state().inspect(found.moment().early))
    }

    pub(super) async fn list_page(&self, request: &ListRequest) -> Result<ListPage, Error> {
        let connection = self.connection()?;
        let session = connection.session(Operation::List);
        session.retry(|| self.try_list(session, request)).await
    }

    async fn try_list(&self, session: Session<'_>, request: &ListRequest) -> Result<ListPage, Failure> {
        let limit = request.page_size();
        let cursor = match request.cursor() {
            None => None,
            Some(cursor) => Some(Cursor::read(cursor).ok_or_else(|| Failure::Refused(bad_cursor()))?),
        };
        let after = cursor.map(|cursor| (cursor, self.names.lock(cursor.id)));
        let start = after.as_ref().map(|(Cursor { key, after, .. }, name)| Start { key, name, again: after.is_some() });
        // One more than fits tells whether there is a next page.
        let query = query::by_prefix(&self.names, request.prefix(), start, limit + 1);
        let read = session.query(&self.clocks, &self.names.root, query, Consistency::Latest).await?;
        let mut page = ListPage::default();
        let mut end = None;
        for (index, document) in read.documents.iter().enumerate() {
            if index == limit {
                page.next = end;
                break;
            }
            let key = record::string(&document.fields, record::lock::KEY).unwrap_or_default();
            let Some(id) = self.names.id_of(&document.name) else { continue };
            let shown = after.as_ref().filter(|(_, name)| *name == document.name).and_then(|(cursor, _)| cursor.after);
            // Documents of other programs that are no locks are passed over.
            if let Ok(found) = KeyDocument::read(&document.name, Some(document), read.moment) {
                let mut rest = found.holders().filter(|grant| shown.is_none_or(|shown| grant.fence > shown));
                let room = limit - page.records.len();
                let before = page.records.len();
                page.records.extend(rest.by_ref().take(room).cloned());
                if let Some(last) = page.records[before..].last() {
                    let waiting = found.state().waiting(read.moment.early).count();
                    if waiting > 0 {
                        page.waiting.insert(last.key.clone(), u32::try_from(waiting).unwrap_or(u32::MAX));
                    }
                    end = Some(Cursor { key, id, after: Some(last.fence) }.to_string());
                }
                if rest.next().is_some() {
                    page.next = end;
                    break;
                }
            }
            end = Some(Cursor { key, id, after: None }.to_string());
        }
        Ok(page)
    }
}

/// The oldest live lock of a key that belongs to such an id.
fn oldest(found: &KeyDocument, wanted: impl Fn(&LockId) -> bool) -> Result<Option<Record>, Error> {
    if let Some(foreign) = found.foreign() {
        return Err(foreign.error.clone().during(Operation::Lookup));
    }
    Ok(found.holders().find(|holder| wanted(&holder.lock_id)).cloned())
}

/// Where a page ended: behind a document, or behind one of the locks in it.
#[derive(Clone, Copy, Debug)]
struct Cursor<'a> {
    key: &'a str,
    id: &'a str,
    after: Option<Fence>,
}

impl<'a> Cursor<'a> {
    fn read(text: &'a str) -> Option<Self> {
        let (head, rest) = text.split_once(':')?;
        let (length, after) = match head.split_once('.') {
            Some((length, fence)) => (length, Some(fence.parse().ok()?)),
            None => (head, None),
        };
        let (key, id) = rest.split_at_checked(length.parse().ok()?)?;
        Some(Self { key, id, after })
    }
}

/// The length of the key, a dot and a fence if there is one, a colon, the key, and the id of its
/// document.
impl std::fmt::Display for Cursor<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.key.len())?;
        if let Some(fence) = self.after {
            write!(f, ".{fence}")?;
        }
        write!(f, ":{}{}", self.key, self.id)
    }
}

fn bad_cursor() -> Error {
    Error::invalid("the cursor is not one of this store").with_hint("start without one")
}
