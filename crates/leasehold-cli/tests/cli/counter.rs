use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use test_support::{Ability, Case, blocking_cases};

use crate::Store;
use crate::support::Place;

pub(crate) const CASES: &[Case] = blocking_cases![
    twenty_processes_lose_no_increment_and_their_fences_grow,
    holders_that_are_killed_lose_their_own_increment_and_nobody_elses,
];

fn strictly_increasing(fences: &str) -> bool {
    let fences: Vec<_> = fences.lines().collect();
    fences.windows(2).all(|pair| pair[0] < pair[1])
}

fn twenty_processes_lose_no_increment_and_their_fences_grow(store: Store) {
    const PROCESSES: usize = 20;
    // A process each, with connections of its own.
    let usual = if store.can(Ability::BusyLocks) { 12 } else { 3 };
    let increments: usize = std::env::var("LEASEHOLD_TEST_HOLDS").map_or(usual, |holds| holds.parse().unwrap());
    let place = Place::new(store);
    std::fs::write(place.path("counter"), "0\n").unwrap();
    let job = "read n < counter; echo $((n + 1)) > counter; echo $LEASEHOLD_FENCE >> fences";
    let job = place.script("job.sh", job);
    thread::scope(|scope| {
        for _ in 0..PROCESSES {
            scope.spawn(|| {
                for _ in 0..increments {
                    let done = place.run(["run", "-q", "counter", "--", "sh", job.to_str().unwrap()]);
                    assert_eq!(done.code, 0, "{done:?}");
                }
            });
        }
    });
    assert_eq!(place.read("counter"), format!("{}\n", PROCESSES * increments));
    let fences = place.read("fences");
    assert_eq!(fences.lines().count(), PROCESSES * increments);
    assert!(strictly_increasing(&fences));
}

/// Every fifteenth holder is killed between reading the counter and writing it. Its command dies
/// with it, so what it had read is never written.
fn holders_that_are_killed_lose_their_own_increment_and_nobody_elses(store: Store) {
    const PROCESSES: usize = 20;
    // Each kill costs the ttl and the tolerance, so there are few by default.
    let holds: usize = std::env::var("LEASEHOLD_TEST_HOLDS").map_or(3, |holds| holds.parse().unwrap());
    let place = Place::new(store);
    std::fs::write(place.path("counter"), "0\n").unwrap();
    std::fs::write(place.path("holds"), "0\n").unwrap();
    let job = r#"read n < counter
read holds < holds
echo $((holds + 1)) > holds
echo $LEASEHOLD_FENCE >> fences
if [ $((holds % 15)) = 4 ]; then kill -KILL $PPID; while :; do :; done; fi
echo $((n + 1)) > counter
"#;
    let job = place.script("job.sh", job);
    let counted = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..PROCESSES {
            scope.spawn(|| {
                for _ in 0..holds {
                    let mut command =
                        place.leasehold(["run", "-q", "--ttl", "2s", "counter", "--", "sh", job.to_str().unwrap()]);
                    if command.status().unwrap().success() {
                        counted.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let counted = counted.into_inner();
    assert_eq!(place.read("holds"), format!("{}\n", PROCESSES * holds));
    assert_eq!(counted, PROCESSES * holds - (PROCESSES * holds + 10) / 15);
    assert_eq!(place.read("counter"), format!("{counted}\n"));
    assert!(strictly_increasing(&place.read("fences")));
}
