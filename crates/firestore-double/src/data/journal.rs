use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::Path;

use googleapis_tonic_google_firestore_v1::google::firestore::v1::Document;
use prost::Message;

use super::history::Change;
use crate::clock::Micros;

/// The file that every commit is written to before it is answered.
///
/// It is never flushed to the disk: it has to survive the process, not the machine.
#[derive(Debug)]
pub(crate) struct Journal {
    file: File,
}

/// One commit.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Entry {
    #[prost(int64, tag = "1")]
    pub(crate) time: Micros,
    #[prost(message, repeated, tag = "2")]
    pub(crate) written: Vec<Document>,
    #[prost(string, repeated, tag = "3")]
    pub(crate) deleted: Vec<String>,
}

impl Journal {
    /// Opens or makes the file, and returns all that is in it. The end of an entry that was not
    /// written to the end is cut off: nobody was told that it happened.
    pub(crate) fn open(path: &Path) -> io::Result<(Self, Vec<Entry>)> {
        let mut file = OpenOptions::new().create(true).read(true).append(true).open(path)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        let mut rest = bytes.as_slice();
        let mut entries = Vec::new();
        let mut whole = 0;
        while let Ok(entry) = Entry::decode_length_delimited(&mut rest) {
            entries.push(entry);
            whole = bytes.len() - rest.len();
            if rest.is_empty() {
                break;
            }
        }
        if whole < bytes.len() {
            file.set_len(u64::try_from(whole).map_err(io::Error::other)?)?;
        }
        Ok((Self { file }, entries))
    }

    pub(crate) fn append(&mut self, time: Micros, changes: &[Change]) -> io::Result<()> {
        let mut entry = Entry { time, ..Entry::default() };
        for change in changes {
            match &change.after {
                Some(document) => entry.written.push(Document::clone(document)),
                None => entry.deleted.push(change.name.clone()),
            }
        }
        self.file.write_all(&entry.encode_length_delimited_to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_an_entry_is_forgotten_and_written_over() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("journal");
        let deleted = |name: &str| Change { name: name.to_owned(), before: None, after: None };
        let (mut journal, entries) = Journal::open(&path).unwrap();
        assert!(entries.is_empty());
        journal.append(1, &[deleted("first")]).unwrap();
        journal.append(2, &[deleted("second")]).unwrap();
        let whole = std::fs::read(&path).unwrap();
        std::fs::write(&path, &whole[..whole.len() - 1]).unwrap();

        let (mut journal, entries) = Journal::open(&path).unwrap();
        assert_eq!(entries.len(), 1);
        journal.append(3, &[deleted("third")]).unwrap();
        let (_, entries) = Journal::open(&path).unwrap();
        assert_eq!(entries.iter().map(|entry| entry.time).collect::<Vec<_>>(), [1, 3]);
    }
}
