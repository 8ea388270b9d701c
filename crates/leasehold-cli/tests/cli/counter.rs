use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::support::Place;

fn strictly_increasing(fences: &str) -> bool {
    let fences: Vec<_> = fences.lines().collect();
    fences.windows(2).all(|pair| pair[0] < pair[1])
}

#[test]
fn twenty_processes_lose_no_increment_and_their_fences_grow() {
    const PROCESSES: usize = 20;
    const INCREMENTS: usize = crate::store::TURNS;
    let place = Place::new();
    std::fs::write(place.path("counter"), "0\n").unwrap();
    let job = "read n < counter; echo $((n + 1)) > counter; echo $LEASEHOLD_FENCE >> fences";
    let job = place.script("job.sh", job);
    thread::scope(|scope| {
        for _ in 0..PROCESSES {
            scope.spawn(|| {
                for _ in 0..INCREMENTS {
                    let done = place.run(["run", "-q", "counter", "--", "sh", job.to_str().unwrap()]);
                    assert_eq!(done.code, 0, "{done:?}");
                }
            });
        }
    });
    assert_eq!(place.read("counter"), format!("{}\n", PROCESSES * INCREMENTS));
    let fences = place.read("fences");
    assert_eq!(fences.lines().count(), PROCESSES * INCREMENTS);
    assert!(strictly_increasing(&fences));
}

/// Every fifth holder is killed between reading the counter and writing it. Its command dies with it, so what it had
/// read is never written.
#[test]
fn holders_that_are_killed_lose_their_own_increment_and_nobody_elses() {
    const PROCESSES: usize = 20;
    // Each kill costs the ttl and the tolerance, so there are few by default.
    let holds: usize = std::env::var("LEASEHOLD_TEST_HOLDS").map_or(3, |holds| holds.parse().unwrap());
    let place = Place::new();
    std::fs::write(place.path("counter"), "0\n").unwrap();
    std::fs::write(place.path("holds"), "0\n").unwrap();
    let job = r#"read n < counter
read holds < holds
echo $((holds + 1)) > holds
echo $LEASEHOLD_FENCE >> fences
if [ $((holds % 5)) = 4 ]; then kill -KILL $PPID; while :; do :; done; fi
echo $((n + 1)) > counter
"#;
    let job = place.script("job.sh", job);
    let counted = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..PROCESSES {
            scope.spawn(|| {
                for _ in 0..holds {
                    let mut command = place.leasehold([
                        "run",
                        "-q",
                        "--ttl",
                        crate::store::SHORT_TTL,
                        "counter",
                        "--",
                        "sh",
                        job.to_str().unwrap(),
                    ]);
                    if command.status().unwrap().success() {
                        counted.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let counted = counted.into_inner();
    assert_eq!(place.read("holds"), format!("{}\n", PROCESSES * holds));
    assert_eq!(counted, PROCESSES * holds - PROCESSES * holds / 5);
    assert_eq!(place.read("counter"), format!("{counted}\n"));
    assert!(strictly_increasing(&place.read("fences")));
}
