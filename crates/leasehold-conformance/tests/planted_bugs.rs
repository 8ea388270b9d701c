//! Stores that break one rule each: proof that the suite would notice.

mod planted;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use leasehold::backend::Backend;
use leasehold::memory::Memory;
use leasehold::testing::ManualClock;
use leasehold::{Error, ErrorCode, Locks};
use leasehold_conformance::history::HistoryOptions;
use leasehold_conformance::model::ModelConfig;
use leasehold_conformance::{Case, ManualHarness, Outcome, Suite, cases, runner};
use planted::{BROKEN_HANDLES, BrokenHandles, Bug, CannotPush, HandleBug, Make, NoLines, Plain, Planted, Slow};

/// A suite over the memory store with the bug that `make` makes, one for both handles.
fn suite(name: &str, make: fn() -> Arc<dyn Bug>) -> Suite {
    let suite = Suite::new(name, move || async move {
        let clock = ManualClock::new();
        let (store, bug) = (Arc::new(Memory::with_clock(&clock)), make());
        let handle = || Arc::new(Planted::new(store.clone(), bug.clone()));
        Ok::<_, Error>(ManualHarness::new(handle(), handle(), &clock))
    });
    suite.model(ModelConfig::manual_clock()).history(HistoryOptions::manual_clock())
}

/// As [`suite`], and it says itself what the store says that it can do.
fn forewarned_suite(name: &str, make: fn() -> Arc<dyn Bug>) -> Suite {
    let store: Arc<dyn Backend> = Arc::new(Memory::new());
    let suite = suite(name, make);
    if make().capabilities(&store).wake_ups { suite } else { suite.without_wake_ups() }
}

fn failing_cases(suite: &Suite) -> BTreeMap<String, String> {
    failing_of(suite, cases())
}

/// Those that fail, side by side because some of them wait for an event that never comes.
fn failing_of<'a>(suite: &Suite, cases: impl IntoIterator<Item = &'a Case>) -> BTreeMap<String, String> {
    let cases: Vec<_> = cases.into_iter().collect();
    let (next, failing) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if let Err(wrong) = runner::run_case(suite, case) {
                        let name = format!("{}::{}", case.group(), case.name());
                        failing.lock().expect("nobody panicked").insert(name, wrong);
                    }
                }
            });
        }
    });
    failing.into_inner().expect("nobody panicked")
}

/// The failures are the point here, so their panics are not shown.
fn without_panic_messages() {
    std::panic::set_hook(Box::new(|_| {}));
}

fn passes_everything(suite: &Suite) {
    without_panic_messages();
    let outcome = (failing_cases(suite), runner::run_model(suite), runner::run_history(suite));
    drop(std::panic::take_hook());
    assert_eq!(outcome, (BTreeMap::new(), Ok(()), Ok(())));
}

#[test]
fn the_unbroken_store_passes_everything() {
    passes_everything(&suite("unbroken", || Arc::new(Plain)));
}

#[test]
fn a_slow_store_passes_everything() {
    passes_everything(&suite("slow", || Arc::new(Slow)));
}

#[test]
fn a_store_that_cannot_push_passes_everything() {
    passes_everything(&suite("cannot_push", || Arc::new(CannotPush)).without_wake_ups());
}

#[test]
fn a_store_without_lines_passes_everything() {
    let suite = suite("no_lines", || Arc::new(NoLines)).without_lines();
    for case in ["kinds_refused_where_not_supported", "several_locks_refused_where_not_supported"] {
        let case = cases().iter().find(|found| found.name() == case).expect("a case");
        assert_eq!(runner::run_case(&suite, case), Ok(Outcome::Passed));
    }
    passes_everything(&suite);
}

#[tokio::test]
async fn over_a_store_without_lines_one_waits_all_the_same_and_the_rest_is_refused() {
    let memory: Arc<dyn Backend> = Arc::new(Memory::new());
    let locks = Locks::new(Planted::new(memory, Arc::new(NoLines)));
    let held = locks.lock("k").acquire().await.expect("it is free");
    assert!(locks.lock("k").try_acquire().await.expect("it is held").is_none());
    let waiting = tokio::spawn({
        let locks = locks.clone();
        async move { locks.lock("k").wait_forever().acquire().await }
    });
    held.release().await.expect("it was held");
    waiting.await.expect("no panic").expect("it is free again").release().await.expect("it was held");
    let refused = [
        locks.shared("k").acquire().await.err(),
        locks.permit("k", 2).try_acquire().await.err(),
        locks.lock_all(["k", "l"]).acquire().await.err(),
    ];
    for error in refused {
        assert_eq!(error.map(|error| error.code()), Some(ErrorCode::InvalidArgument));
    }
}

#[test]
fn a_capability_that_the_suite_counts_on_does_not_vanish_unnoticed() {
    without_panic_messages();
    let suite = suite("cannot_push", || Arc::new(CannotPush));
    let (expected, found) = (Memory::new().capabilities(), Memory::new().capabilities().with_wake_ups(false));
    for case in cases().iter().filter(|case| case.group() == "wakeups") {
        let outcome = runner::run_case(&suite, case);
        let same = case.not_applicable(&expected) == case.not_applicable(&found);
        assert_eq!(outcome.is_ok(), same, "{}: {outcome:?}", case.name());
    }
}

#[test]
fn a_case_that_is_not_applicable_says_so() {
    let suite = suite("cannot_push", || Arc::new(CannotPush)).without_wake_ups();
    let case = cases().iter().find(|case| case.name() == "steal_tells_the_victim").expect("a case");
    assert_eq!(runner::run_case(&suite, case), Ok(Outcome::NotApplicable("the store does not push events")));
}

#[test]
fn the_table_catches_every_planted_bug() {
    the_table_catches(planted::BUGS, |_| true);
}

#[test]
fn the_table_catches_every_planted_bug_of_readers_permits_and_lines() {
    the_table_catches(planted::KIND_BUGS, |case| case.group() == "kinds");
}

fn the_table_catches(bugs: &[(&str, Make)], with: fn(&&Case) -> bool) {
    without_panic_messages();
    for (name, make) in bugs {
        let suite = forewarned_suite(name, *make);
        let caught: Vec<String> = failing_of(&suite, cases().iter().filter(with)).into_keys().collect();
        println!("{name}: {}", caught.join(", "));
        assert!(!caught.is_empty(), "no case catches {name}");
    }
}

/// A suite over the unbroken memory store, with a bug in the handles above it.
fn suite_of_broken_handles(bug: HandleBug) -> Suite {
    Suite::new(format!("{bug:?}"), move || async move {
        let clock = ManualClock::new();
        let store = Memory::with_clock(&clock);
        let handle = || Arc::new(store.clone());
        Ok::<_, Error>(BrokenHandles::new(ManualHarness::new(handle(), handle(), &clock), bug))
    })
}

#[test]
fn the_table_catches_every_bug_planted_in_the_handles() {
    without_panic_messages();
    for (bug, catches) in BROKEN_HANDLES.into_iter().zip([
        "extend::a_guard_is_renewed_until_it_is_released_and_not_once_more",
        "exclusion::tasks_of_one_process_wait_in_line",
        "cancel::dropped_wait_leaves_no_orphan",
        "expiry::a_guards_time_counts_from_its_request",
    ]) {
        let name = |case: &&Case| format!("{}::{}", case.group(), case.name()) == catches;
        let caught = failing_of(&suite_of_broken_handles(bug), cases().iter().filter(name));
        println!("{bug:?}: {caught:?}");
        assert!(caught.contains_key(catches), "{catches} does not catch {bug:?}");
    }
}

/// The model hears no events and lets every future end.
const BEYOND_THE_MODEL: [&str; 6] = [
    "everybody_is_called",
    "release_wakes_nobody",
    "steal_tells_nobody",
    "claims_it_cannot_push",
    "acquire_takes_two_steps",
    "release_takes_two_steps",
];

#[test]
fn the_model_alone_catches_broken_answers() {
    without_panic_messages();
    for (name, make) in planted::BUGS.iter().chain(planted::KIND_BUGS) {
        let outcome = runner::run_model(&suite(name, *make));
        println!("{name}: {}", outcome.as_ref().err().map_or("not caught", String::as_str));
        assert!(outcome.is_err() || BEYOND_THE_MODEL.contains(name), "the model does not catch {name}");
    }
}

#[test]
fn the_history_alone_catches_what_clients_can_see() {
    without_panic_messages();
    let visible = [
        "fence_repeats",
        "fence_goes_back_after_expiry",
        "release_does_not_check_the_owner",
        "tolerance_is_dropped",
        "steal_leaves_the_victims_id_alive",
        "a_reader_passes_a_writer",
        "a_slot_is_given_twice",
        "there_is_one_permit_too_many",
        "the_first_reader_that_ends_lets_writers_in",
        "the_first_reader_whose_time_is_over_ends_all",
        "the_last_in_line_is_let_in",
    ];
    let bugs = planted::BUGS.iter().chain(planted::KIND_BUGS);
    for (name, make) in bugs.filter(|(name, _)| visible.contains(name)) {
        let outcome = runner::run_history(&suite(name, *make));
        println!("{name}: {}", outcome.as_ref().err().map_or("not caught", String::as_str));
        assert!(outcome.is_err(), "the history does not catch {name}");
    }
}
