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
mod need;
mod ownership;
mod runtimes;
mod steal;
mod wakeups;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, LazyLock};

use leasehold::backend::Capabilities;

use crate::Harness;
use context::Context;
use need::Need;

type Run = for<'a> fn(&'a Context) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// One promise that every store keeps, and the check of it.
#[derive(Clone, Copy)]
pub struct Case {
    group: &'static str,
    name: &'static str,
    needs: Option<Need>,
    run: Run,
}

/// What came of a [`Case`] that did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The promise is kept.
    Passed,
    /// The promise is not made by this store, for this reason. Nothing was checked.
    NotApplicable(&'static str),
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

    /// Why a store with these capabilities does not make the promise, if it does not.
    pub fn not_applicable(&self, capabilities: &Capabilities) -> Option<&'static str> {
        self.needs.and_then(|need| need.unmet(capabilities))
    }

    /// Checks the promise, if the store makes it. The harness should be fresh.
    ///
    /// # Panics
    ///
    /// If the promise is broken.
    pub async fn run(&self, harness: Arc<dyn Harness>) -> Outcome {
        let context = Context::new(harness);
        if let Some(reason) = self.not_applicable(&context.backend.capabilities()) {
            return Outcome::NotApplicable(reason);
        }
        (self.run)(&context).await;
        Outcome::Passed
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

/// Lists the cases of a group, each with what it needs of the store, if that is anything.
macro_rules! group {
    ($group:literal: $($case:ident $(needs $need:ident)?),+ $(,)?) => {
        pub(super) const CASES: &[super::Case] = &[$(super::Case {
            group: $group,
            name: stringify!($case),
            needs: [$(Some(super::need::Need::$need),)? None][0],
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

    use leasehold::backend::TimeAuthority;

    use super::*;

    #[test]
    fn names_are_unique_and_no_group_is_empty() {
        let names: BTreeSet<_> = cases().iter().map(|case| (case.group(), case.name())).collect();
        assert_eq!(names.len(), cases().len());
        assert!(GROUPS.iter().all(|group| !group.is_empty()));
    }

    #[test]
    fn what_a_store_cannot_do_decides_which_cases_are_not_applicable() {
        let full = Capabilities::new(TimeAuthority::Store).with_wake_ups(true).with_clock_floored_fences(true);
        let names = |found: Capabilities| {
            let not_applicable = cases().iter().filter(|case| case.not_applicable(&found).is_some());
            not_applicable.map(|case| format!("{}::{}", case.group(), case.name())).collect::<BTreeSet<_>>()
        };
        let silent = "wakeups::a_store_that_cannot_push_stays_silent";
        assert_eq!(names(full), BTreeSet::from([silent.to_owned()]));
        assert_eq!(
            names(full.with_clock_floored_fences(false)),
            BTreeSet::from([silent, "fencing::floored_by_the_clock"].map(str::to_owned))
        );
        let pushed = [
            "wakeups::a_guard_hears_that_its_lock_was_taken",
            "wakeups::force_release_wakes_and_tells",
            "wakeups::nothing_is_missed_between_subscribe_and_release",
            "wakeups::release_wakes_a_subscriber_on_the_peer",
            "wakeups::release_wakes_every_subscriber",
            "wakeups::steal_tells_the_victim",
            "wakeups::unrelated_keys_do_not_wake",
        ];
        assert_eq!(names(full.with_wake_ups(false)), BTreeSet::from(pushed.map(str::to_owned)));
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
