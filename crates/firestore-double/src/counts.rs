use std::collections::BTreeMap;

use serde_json::{Value as Json, json};

/// What was done, as the invoice of Google counts it, and the calls by their name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) reads: u64,
    pub(crate) writes: u64,
    pub(crate) deletes: u64,
    pub(crate) calls: BTreeMap<String, u64>,
}

impl Counts {
    pub(crate) fn add_call(&mut self, name: &str) {
        *self.calls.entry(name.to_owned()).or_default() += 1;
    }

    pub(crate) fn add_reads(&mut self, reads: usize) {
        self.reads += u64::try_from(reads).unwrap_or(u64::MAX);
    }

    pub(crate) fn add_writes(&mut self, writes: u64, deletes: u64) {
        self.writes += writes;
        self.deletes += deletes;
    }

    pub(crate) fn to_json(&self) -> Json {
        json!({"reads": self.reads, "writes": self.writes, "deletes": self.deletes, "calls": self.calls})
    }
}
