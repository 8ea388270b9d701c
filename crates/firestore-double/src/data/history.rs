use std::collections::VecDeque;
use std::sync::Arc;

use googleapis_tonic_google_firestore_v1::google::firestore::v1::Document;
use prost::Message;

use crate::clock::Micros;

/// Commits to remember. Who is further behind starts afresh.
const COMMITS: usize = 10_000;
/// Bytes of documents to remember.
const BYTES: usize = 64 << 20;

/// What one commit did.
#[derive(Debug)]
pub(crate) struct Commit {
    pub(crate) time: Micros,
    pub(crate) changes: Vec<Change>,
}

/// What a commit did to one document.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) name: String,
    pub(crate) before: Option<Arc<Document>>,
    pub(crate) after: Option<Arc<Document>>,
}

/// The last commits, oldest first.
#[derive(Debug)]
pub(crate) struct History {
    commits: VecDeque<Commit>,
    /// Everything later is known.
    start: Micros,
    bytes: usize,
}

impl History {
    pub(crate) fn new(start: Micros) -> Self {
        Self { commits: VecDeque::new(), start, bytes: 0 }
    }

    pub(crate) fn push(&mut self, commit: Commit) {
        self.bytes += size(&commit);
        self.commits.push_back(commit);
        while self.commits.len() > COMMITS || self.bytes > BYTES {
            let Some(oldest) = self.commits.pop_front() else { break };
            self.bytes -= size(&oldest);
            self.start = oldest.time;
        }
    }

    /// The commits after a time, oldest first; nothing if not all of them are known.
    pub(crate) fn after(&self, time: Micros) -> Option<impl DoubleEndedIterator<Item = &Commit>> {
        let first = self.commits.partition_point(|commit| commit.time <= time);
        (time >= self.start).then(|| self.commits.range(first..))
    }
}

fn size(commit: &Commit) -> usize {
    commit.changes.iter().filter_map(|change| change.after.as_ref()).map(|document| document.encoded_len()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_forgotten_is_not_passed_off_as_nothing() {
        let mut history = History::new(0);
        for time in 1..=Micros::try_from(COMMITS).unwrap() {
            history.push(Commit { time, changes: Vec::new() });
        }
        assert_eq!(history.after(0).unwrap().count(), COMMITS);
        history.push(Commit { time: 1_000_000, changes: Vec::new() });
        assert!(history.after(0).is_none());
        assert_eq!(history.after(1).unwrap().count(), COMMITS);
        assert_eq!(history.after(1_000_000).unwrap().count(), 0);
    }
}
