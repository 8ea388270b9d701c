//! Contestants on one store, in turns.

use std::time::Duration;

use crate::counters::{Counted, Counters};
use crate::place::Place;
use crate::process::{Process, Program};
use crate::results::{ContestantResults, Cost, StoreResults, TASKS};
use crate::spread::Spread;

/// Who takes part, and in what.
#[derive(Clone, Copy, Debug)]
pub struct Contestant {
    /// What it is called in tables and figures.
    pub name: &'static str,
    /// How it is started.
    pub program: Program,
    /// Whether it is leasehold.
    pub ours: bool,
    /// Whether it can wait for a lock, and so for a hand-over.
    pub waits: bool,
    /// Whether one process can hold thousands of locks.
    pub holds_many: bool,
}

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Rounds in which everybody has a turn.
    pub rounds: usize,
    /// How long a turn is.
    pub turn: Duration,
    /// Hand-overs in a round.
    pub hand_overs: usize,
    /// How long somebody waits while requests are counted.
    pub waiting: Duration,
    /// How many locks are held while bytes are counted.
    pub locks: u64,
    /// How often an operation is called whose time the server tells.
    pub calls: u32,
}

impl Settings {
    /// For figures that are to be shown.
    pub const FULL: Self = Self {
        rounds: 5,
        turn: Duration::from_millis(1000),
        hand_overs: 10,
        waiting: Duration::from_secs(15),
        locks: 10_000,
        calls: 10_000,
    };

    /// To see that it works.
    pub const QUICK: Self = Self {
        rounds: 2,
        turn: Duration::from_millis(200),
        hand_overs: 3,
        waiting: Duration::from_secs(3),
        locks: 500,
        calls: 500,
    };
}

/// Lets all of them do everything on one store.
pub fn run(name: &'static str, place: &dyn Place, contestants: &[Contestant], settings: &Settings) -> StoreResults {
    let mut results: Vec<_> = contestants
        .iter()
        .map(|contestant| ContestantResults { name: contestant.name, ours: contestant.ours, ..Default::default() })
        .collect();
    pairs(name, place, contestants, settings, &mut results);
    hand_overs(name, place, contestants, settings, &mut results);
    for (contestant, result) in contestants.iter().zip(&mut results) {
        say(name, "waiting", contestant.name);
        result.requests_of_a_minute = waiting(place, contestant, settings.waiting);
        say(name, "bytes", contestant.name);
        result.bytes = bytes(place, contestant, settings.locks);
    }
    StoreResults { name, server: place.version(), contestants: results, notes: Vec::new() }
}

fn say(store: &str, what: &str, who: &str) {
    eprintln!("compare: {store}: {what}: {who}");
}

fn start(place: &dyn Place, contestant: &Contestant) -> Process {
    Process::start(contestant.program, &place.url(contestant.name))
}

fn pairs(
    name: &str,
    place: &dyn Place,
    contestants: &[Contestant],
    settings: &Settings,
    results: &mut [ContestantResults],
) {
    let mut processes: Vec<_> = contestants.iter().map(|contestant| start(place, contestant)).collect();
    let own = place.own();
    for (level, tasks) in TASKS.into_iter().enumerate() {
        let mut rounds = vec![Vec::new(); contestants.len()];
        let mut costs = vec![Vec::new(); contestants.len()];
        for process in &mut processes {
            process.pairs(tasks, settings.turn / 5);
        }
        for round in 0..settings.rounds {
            say(name, &format!("{tasks} tasks"), &format!("round {} of {}", round + 1, settings.rounds));
            for turn in 0..processes.len() {
                // Whoever is first in one round is last in the next.
                let who = (turn + round) % processes.len();
                let process = &mut processes[who];
                let (before, cpu) = (place.counters(), process.cpu());
                let measured = process.pairs(tasks, settings.turn);
                let cpu = process.cpu().saturating_sub(cpu).as_secs_f64();
                let server = since(place, before, own).unwrap_or_default();
                costs[who].push((
                    measured.pairs,
                    Cost {
                        requests: server.requests,
                        commands: server.commands,
                        server_cpu: server.cpu,
                        client_cpu: cpu,
                    },
                ));
                rounds[who].push(measured);
            }
        }
        for (who, result) in results.iter_mut().enumerate() {
            result.version.clone_from(&processes[who].version);
            result.pace[level] = Spread::of(rounds[who].iter().map(|round| round.pace));
            if tasks == 1 {
                result.pair = Spread::of(rounds[who].iter().map(|round| round.p50));
            }
            result.of_a_pair[level] = Some(average(&costs[who]));
        }
    }
}

fn since(place: &dyn Place, before: Option<Counters>, own: Option<Counted>) -> Option<Counted> {
    Some(place.counters()?.since(&before?, own?))
}

/// What one pair costs, over all rounds.
fn average(costs: &[(f64, Cost)]) -> Cost {
    let pairs: f64 = costs.iter().map(|(pairs, _)| pairs).sum();
    let of = |what: fn(&Cost) -> f64| costs.iter().map(|(_, cost)| what(cost)).sum::<f64>() / pairs.max(1.0);
    Cost {
        requests: of(|cost| cost.requests),
        commands: of(|cost| cost.commands),
        server_cpu: of(|cost| cost.server_cpu),
        client_cpu: of(|cost| cost.client_cpu),
    }
}

fn hand_overs(
    name: &str,
    place: &dyn Place,
    contestants: &[Contestant],
    settings: &Settings,
    results: &mut [ContestantResults],
) {
    let own = place.own();
    let mut medians = vec![Vec::new(); contestants.len()];
    let mut requests = vec![Vec::new(); contestants.len()];
    for round in 0..settings.rounds {
        say(name, "hand-over", &format!("round {} of {}", round + 1, settings.rounds));
        for (who, contestant) in contestants.iter().enumerate().filter(|(_, contestant)| contestant.waits) {
            let [mut first, mut second] = [start(place, contestant), start(place, contestant)];
            // Connections and subscriptions are made once.
            hand_over(&mut first, &mut second);
            let before = place.counters();
            let times = (0..settings.hand_overs).map(|_| hand_over(&mut first, &mut second)).collect::<Vec<_>>();
            medians[who].extend(Spread::of(times).map(|times| times.median));
            #[allow(clippy::cast_precision_loss)]
            let count = settings.hand_overs as f64;
            requests[who].extend(since(place, before, own).map(|counted| counted.requests / count));
        }
    }
    for (who, result) in results.iter_mut().enumerate() {
        result.hand_over = Spread::of(medians[who].iter().copied());
        result.requests_of_a_hand_over = Spread::of(requests[who].iter().copied()).map(|spread| spread.median);
    }
}

/// The seconds from the start of the release to the grant. The second one has waited for a while,
/// not always the same, because some look only now and then.
fn hand_over(first: &mut Process, second: &mut Process) -> f64 {
    first.take();
    second.wait();
    std::thread::sleep(Duration::from_millis(20 + fastrand::u64(..200)));
    let released = first.release();
    let granted = second.granted();
    second.release();
    (granted - released).max(0.0) / 1e9
}

fn waiting(place: &dyn Place, contestant: &Contestant, time: Duration) -> Option<f64> {
    let own = place.own().filter(|_| contestant.waits)?;
    let [mut first, mut second] = [start(place, contestant), start(place, contestant)];
    hand_over(&mut first, &mut second);
    first.take();
    second.wait();
    // It settles down.
    std::thread::sleep(Duration::from_secs(1));
    let before = place.counters();
    std::thread::sleep(time);
    let counted = since(place, before, Some(own))?;
    first.release();
    second.granted();
    second.release();
    Some(counted.requests * 60.0 / time.as_secs_f64())
}

fn bytes(place: &dyn Place, contestant: &Contestant, locks: u64) -> Option<f64> {
    if !contestant.holds_many {
        return None;
    }
    place.clear();
    let name = format!("{} holds", contestant.name);
    let mut process = Process::start(contestant.program, &place.url(&name));
    process.hold(0, 1);
    let before = place.bytes(&name);
    process.hold(1, locks + 1);
    let bytes = place.bytes(&name).saturating_sub(before);
    drop(process);
    place.clear();
    #[allow(clippy::cast_precision_loss)]
    Some(bytes as f64 / locks as f64)
}
