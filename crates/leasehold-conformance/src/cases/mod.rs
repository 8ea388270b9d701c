//! The table of cases, one module for each group.

// A case that is in no list is dead code, and so does not build.
#![deny(dead_code)]

mod cancel;
mod context;
mod errors;
mod exclusion;
mod expiry;
mod extend;
mod fencing;
mod idempotency;
mod inspect;
mod keys;
mod many;
mod metadata;
mod ownership;
mod runtimes;
mod steal;
mod wakeups;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, LazyLock};

use crate::Harness;
use context::Context;

type Run = for<'a> fn(&'a Context) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// One promise that every store keeps, and the check of it.
#[derive(Clone, Copy)]
pub struct Case {
    group: &'static str,
    name: &'static str,
    run: Run,
}

impl Case {
    /// What the promise is about.
    pub fn group(&self) -> &'static str {
        self.group
    }

    /// The promise, unique within its group.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Checks the promise. The harness should be fresh.
    ///
    /// # Panics
    ///
    /// If the promise is broken.
    pub async fn run(&self, harness: Arc<dyn Harness>) {
        (self.run)(&Context::new(harness)).await;
    }
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Case({}::{})", self.group, self.name)
    }
}

/// Every case, in the order of the groups.
pub fn cases() -> &'static [Case] {
    static CASES: LazyLock<Vec<Case>> = LazyLock::new(|| GROUPS.concat());
    &CASES
}

/// Lists the cases of a group.
macro_rules! group {
    ($group:literal: $($case:ident),+ $(,)?) => {
        pub(super) const CASES: &[super::Case] = &[$(super::Case {
            group: $group,
            name: stringify!($case),
            run: |cx| Box::pin($case(cx)),
        }),+];
    };
}
use group;

const GROUPS: [&[Case]; 15] = [
    exclusion::CASES,
    expiry::CASES,
    ownership::CASES,
    fencing::CASES,
    idempotency::CASES,
    extend::CASES,
    many::CASES,
    inspect::CASES,
    keys::CASES,
    steal::CASES,
    cancel::CASES,
    errors::CASES,
    wakeups::CASES,
    metadata::CASES,
    runtimes::CASES,
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_unique_and_no_group_is_empty() {
        let names: BTreeSet<_> = cases().iter().map(|case| (case.group(), case.name())).collect();
        assert_eq!(names.len(), cases().len());
        assert!(GROUPS.iter().all(|group| !group.is_empty()));
    }

    #[test]
    fn every_group_is_there() {
        let groups: BTreeSet<_> = cases().iter().map(Case::group).collect();
        let expected = [
            "cancel",
            "errors",
            "exclusion",
            "expiry",
            "extend",
            "fencing",
            "idempotency",
            "inspect",
            "keys",
            "many",
            "metadata",
            "ownership",
            "runtimes",
            "steal",
            "wakeups",
        ];
        assert_eq!(groups, BTreeSet::from(expected));
    }
}
