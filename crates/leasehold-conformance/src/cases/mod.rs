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
mod hurry;
mod idempotency;
mod inspect;
mod keys;
mod kinds;
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
use std::time::Duration;

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
    needs: &'static [Need],
    /// It says something only if it is over within this time.
    within: Option<Duration>,
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
        self.needs.iter().find_map(|need| need.unmet(capabilities))
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
        match self.within {
            Some(time) => hurry::run(self.run, &context, time).await,
            None => (self.run)(&context).await,
        }
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

/// Lists the cases of a group, each with what it needs of the store, if that is anything, and
/// within what time it must be over, if a slow machine may keep it from that.
macro_rules! group {
    ($group:literal: $($case:ident $(needs $need:ident $(and $more:ident)*)? $(within $time:ident)?),+ $(,)?) => {
        pub(in crate::cases) const CASES: &[super::Case] = &[$(super::Case {
            group: $group,
            name: stringify!($case),
            needs: &[$(super::need::Need::$need, $(super::need::Need::$more,)*)?],
            within: [$(Some(leasehold::backend::Line::$time),)? None][0],
            run: |cx| Box::pin($case(cx)),
        }),+];
    };
}
use group;

const GROUPS: [&[Case]; 24] = [
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
    kinds::readers::CASES,
    kinds::permits::CASES,
    kinds::line::CASES,
    kinds::order::CASES,
    kinds::calls::CASES,
    kinds::ends::CASES,
    kinds::reads::CASES,
    kinds::several::CASES,
    kinds::refused::CASES,
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

    /// What cases are not applicable.
    fn beyond(found: Capabilities) -> BTreeSet<String> {
        let cases = cases().iter().filter(|case| case.not_applicable(&found).is_some());
        cases.map(|case| format!("{}::{}", case.group(), case.name())).collect()
    }

    #[test]
    fn what_a_store_cannot_do_decides_which_cases_are_not_applicable() {
        let full = Capabilities::new(TimeAuthority::Store)
            .with_wake_ups(true)
            .with_clock_floored_fences(true)
            .with_lines(true);
        let never = [
            "kinds::kinds_refused_where_not_supported",
            "kinds::several_locks_refused_where_not_supported",
            "wakeups::a_store_that_cannot_push_stays_silent",
        ];
        let never = BTreeSet::from(never.map(str::to_owned));
        assert_eq!(beyond(full), never);
        let unfloored = beyond(full.with_clock_floored_fences(false));
        assert_eq!(&unfloored - &never, BTreeSet::from(["fencing::floored_by_the_clock".to_owned()]));
        let pushed = [
            "kinds::a_forced_release_calls_the_first",
            "kinds::a_release_with_a_line_wakes_only_the_first",
            "kinds::every_victim_of_a_steal_is_told",
            "kinds::only_the_head_is_called",
            "kinds::the_last_place_given_up_wakes_everybody",
            "kinds::the_next_hears_that_a_place_was_given_up",
            "kinds::whoever_is_let_in_calls_the_next",
            "kinds::without_a_line_everybody_is_woken",
            "wakeups::a_guard_hears_that_its_lock_was_taken",
            "wakeups::force_release_wakes_and_tells",
            "wakeups::nothing_is_missed_between_subscribe_and_release",
            "wakeups::release_wakes_a_subscriber_on_the_peer",
            "wakeups::release_wakes_every_subscriber",
            "wakeups::steal_tells_the_victim",
            "wakeups::unrelated_keys_do_not_wake",
        ];
        let silent = beyond(full.with_wake_ups(false));
        assert_eq!(&silent - &never, BTreeSet::from(pushed.map(str::to_owned)));
        let plain = &beyond(full.with_lines(false)) - &never;
        assert!(plain.iter().all(|name| name.starts_with("kinds::")), "{plain:?}");
        let kinds = cases().iter().filter(|case| case.group() == "kinds").count();
        // Those that say so, and two about looking at an exclusive lock.
        assert_eq!(plain.len(), kinds - 4);
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
            "kinds",
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
