use tokio_postgres::types::Type;

use super::connections::Parameter;
use super::operations::Operations;
use super::record::unreadable;
use super::{number, record};
use crate::backend::{Inspected, ListPage, ListRequest, LookupBy, Record};
use crate::{Error, Key, Operation};

impl Operations {
    /// The live grant of a key, the oldest one if there are several, or of an id.
    pub(super) async fn find(&self, operation: Operation, by: LookupBy<'_>) -> Result<Option<record::Held>, Error> {
        let (statement, name) = match by {
            LookupBy::Key(key) => (&self.statements.by_key, self.names.lock(key)?),
            LookupBy::Id(id) => (&self.statements.by_id, id.expose().to_owned()),
        };
        let rows = self.query(operation, statement, &[(&name, Type::TEXT)]).await?;
        rows.first().map(record::read).transpose().map_err(|error| error.during(operation))
    }

    pub(super) async fn inspect_key(&self, key: &Key) -> Result<Inspected, Error> {
        let name = self.names.lock(key)?;
        let rows = self.query(Operation::Lookup, &self.statements.inspect, &[(&name, Type::TEXT)]).await?;
        let mut inspected = Inspected::default();
        for row in &rows {
            let held = record::read(row).map_err(|error| error.during(Operation::Lookup))?;
            let waits: bool = row.try_get("waits").map_err(unreadable)?;
            if waits {
                inspected.waiters.extend(held.into_waiter().ok());
            } else {
                let record: Result<Record, Error> = held.into_record();
                inspected.holders.push(record.map_err(|error| error.during(Operation::Lookup))?);
            }
        }
        Ok(inspected)
    }

    /// In the order of the keys and fences, so that a page can start after the last grant of the
    /// one before.
    pub(super) async fn list_page(&self, request: &ListRequest) -> Result<ListPage, Error> {
        let limit = request.page_size();
        if request.cursor().is_some_and(|cursor| cursor.contains('\0')) || request.prefix().contains('\0') {
            return Err(Error::invalid("text with a NUL character cannot be looked for").during(Operation::List));
        }
        let (key, fence) = request.cursor().and_then(read_cursor).unzip();
        // One more than fits tells whether there is a next page.
        let parameters: [Parameter<'_>; 4] = [
            (&request.prefix(), Type::TEXT),
            (&key, Type::TEXT),
            (&fence, Type::TEXT),
            (&number(limit as u64 + 1), Type::INT8),
        ];
        let rows = self.query(Operation::List, &self.statements.list, &parameters).await?;
        let mut page = ListPage::default();
        for row in rows.iter().take(limit) {
            let held = record::read(row).map_err(|error| error.during(Operation::List))?;
            // Rows of other programs that are no locks are passed over.
            let Ok(record) = held.into_record() else { continue };
            let waiting: Option<i64> = row.try_get("waiting").map_err(unreadable)?;
            if let Some(waiting) = waiting {
                page.waiting.insert(record.key.clone(), u32::try_from(waiting).unwrap_or(u32::MAX));
            }
            page.records.push(record);
        }
        if rows.len() > limit {
            let text = |column| rows[limit - 1].try_get::<_, String>(column).map_err(unreadable);
            page.next = Some(cursor(&text("key")?, &text("fence")?));
        }
        Ok(page)
    }
}

/// Where a page ended: the name of the last key and its fence, whatever others have written there.
fn cursor(key: &str, fence: &str) -> String {
    format!("{}:{key}{fence}", key.len())
}

fn read_cursor(cursor: &str) -> Option<(&str, &str)> {
    let (length, rest) = cursor.split_once(':')?;
    rest.split_at_checked(length.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_leads_back_to_its_key_and_fence() {
        for (key, fence) in [("order:42", "000000000000007"), ("", ""), ("12:a", "b:c"), ("caf\u{e9}", "x")] {
            assert_eq!(read_cursor(&cursor(key, fence)), Some((key, fence)));
        }
        for noise in ["", "order:42", "3:ab", "1:\u{e9}"] {
            assert_eq!(read_cursor(noise), None, "{noise}");
        }
    }
}
