//! That this store decides as [`KeyState`] does, also with programs on the same file that know no
//! lines.

use std::num::NonZeroU16;
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use rusqlite::params;

use super::SqliteOptions;
use super::bus::DatagramSender;
use super::database::Database;
use super::operations::{Message, Operations};
use crate::backend::{Acquire, AcquireAll, AcquireRequest, Extend, Inspected, Line, Mode, Record, Release, Steal};
use crate::key_state::{Acquired, KeyState};
use crate::{Contention, Fence, Holder, Key, ListRequest, LockId, Timestamp, Ttl};

const KEYS: usize = 2;
/// How many ask for a key.
const IDS: usize = 5;
/// How many of another program that knows no lines.
const OLD_IDS: usize = 2;

#[derive(Clone, Debug)]
enum Step {
    Acquire { key: usize, id: usize, mode: Mode, line: Line, ttl: u64, steal: Steal },
    AcquireAll { id: usize, mode: Mode, line: Line },
    Release { key: usize, id: usize },
    Extend { key: usize, id: usize, ttl: u64 },
    ForceRelease { key: usize, only_oldest: bool },
    Advance(u64),
    Sweep,
    OldAcquire { key: usize, id: usize, steal: bool },
    OldRelease { key: usize, id: usize },
    OldExtend { key: usize, id: usize },
    OldForceRelease { key: usize },
    OldSweep,
}

fn mode() -> impl Strategy<Value = Mode> {
    let permit = |of| Mode::Permit { of: NonZeroU16::new(of).unwrap() };
    prop_oneof![Just(Mode::Exclusive), Just(Mode::Shared), Just(permit(1)), Just(permit(2)), Just(permit(3))]
}

fn line() -> impl Strategy<Value = Line> {
    let join = |millis| Line::Join { lease: Ttl::from_millis(millis).unwrap() };
    prop_oneof![1 => Just(Line::Ignore), 1 => Just(Line::Heed), 3 => Just(join(9000)), 1 => Just(join(1500))]
}

fn steal() -> impl Strategy<Value = Steal> {
    let longer = Steal::NEVER.with_held_longer_than(Duration::from_millis(700));
    prop_oneof![8 => Just(Steal::NEVER), 1 => Just(longer), 1 => Just(Steal::NEVER.with_same_holder())]
}

fn step() -> impl Strategy<Value = Step> {
    let (key, id, old_id, ttl) =
        (0..KEYS, 0..IDS, IDS..IDS + OLD_IDS, prop_oneof![Just(400u64), Just(5000), Just(20_000)]);
    prop_oneof![
        10 => (key.clone(), id.clone(), mode(), line(), ttl.clone(), steal())
            .prop_map(|(key, id, mode, line, ttl, steal)| Step::Acquire { key, id, mode, line, ttl, steal }),
        1 => (id.clone(), mode(), prop_oneof![Just(Line::Ignore), Just(Line::Heed)])
            .prop_map(|(id, mode, line)| Step::AcquireAll { id, mode, line }),
        6 => (key.clone(), id.clone()).prop_map(|(key, id)| Step::Release { key, id }),
        2 => (key.clone(), id, ttl).prop_map(|(key, id, ttl)| Step::Extend { key, id, ttl }),
        1 => (key.clone(), any::<bool>()).prop_map(|(key, only_oldest)| Step::ForceRelease { key, only_oldest }),
        4 => prop_oneof![Just(1u64), Just(399), Just(1000), Just(1400), Just(2000), Just(9000)].prop_map(Step::Advance),
        1 => Just(Step::Sweep),
        3 => (key.clone(), old_id.clone(), prop::bool::weighted(0.1))
            .prop_map(|(key, id, steal)| Step::OldAcquire { key, id, steal }),
        2 => (key.clone(), old_id.clone()).prop_map(|(key, id)| Step::OldRelease { key, id }),
        1 => (key.clone(), old_id).prop_map(|(key, id)| Step::OldExtend { key, id }),
        1 => key.prop_map(|key| Step::OldForceRelease { key }),
        1 => Just(Step::OldSweep),
    ]
}

/// What should be there.
#[derive(Default)]
struct Expected {
    state: KeyState,
    last: Option<Fence>,
    /// An old program has ended what kept the key for the one who was called.
    may_be_unkept: bool,
}

struct World<'a> {
    database: &'a Database,
    sender: DatagramSender,
    now: Timestamp,
    keys: Vec<Key>,
    ids: Vec<Vec<LockId>>,
    expected: Vec<Expected>,
}

impl<'a> World<'a> {
    fn new(database: &'a Database) -> Self {
        // Otherwise nothing is told to anybody.
        database.connection.execute("INSERT OR IGNORE INTO listeners VALUES ('none', 'none')", []).unwrap();
        let mark = LockId::random().unwrap().hash_id();
        let now = database.now().whole_millis();
        let ids = (0..KEYS).map(|_| (0..IDS + OLD_IDS).map(|_| LockId::random().unwrap()).collect()).collect();
        let keys = (0..KEYS).map(|number| Key::new(&format!("{mark} {number}")).unwrap()).collect();
        let expected = (0..KEYS).map(|_| Expected::default()).collect();
        Self { sender: DatagramSender::new(database.path()), database, now, keys, ids, expected }
    }

    fn operate<T>(&mut self, act: impl FnOnce(&mut Operations<'_>) -> T) -> (T, Vec<Message>) {
        let mut messages = Vec::new();
        let (database, sender, now) = (self.database, &mut self.sender, self.now);
        self.database.connection.execute_batch("BEGIN IMMEDIATE").unwrap();
        let answer = act(&mut Operations { database, sender, now, messages: &mut messages, present: None });
        self.database.connection.execute_batch("COMMIT").unwrap();
        for (ids, expected) in self.ids.iter().zip(&mut self.expected) {
            expected.may_be_unkept &= called_in(&messages).is_none_or(|id| !ids.contains(&id));
        }
        (answer, messages)
    }

    fn request(&self, key: usize, id: usize, mode: Mode, line: Line, ttl: u64) -> AcquireRequest {
        AcquireRequest::new(self.keys[key].clone(), self.ids[key][id], Ttl::from_millis(ttl).unwrap())
            .with_mode(mode)
            .with_line(line)
            .with_holder(Holder::new(&format!("holder {}", id % 2)).unwrap())
    }

    fn step(&mut self, step: &Step) {
        let now = self.now;
        match *step {
            Step::Acquire { key, id, mode, line, ttl, steal } => {
                let request = self.request(key, id, mode, line, ttl).with_steal(steal);
                let (found, messages) = self.operate(|store| store.acquire(&request).unwrap());
                let Expected { state, last, .. } = &mut self.expected[key];
                let fence = Fence::next(*last, now);
                let Acquired { answer, stolen, .. } = state.acquire(&request, now, || fence).unwrap();
                let called = state.call_next(now);
                if let Acquire::Granted(grant) = &answer {
                    *last = (*last).max(Some(grant.fence));
                }
                assert_eq!(format!("{found:?}"), format!("{answer:?}"));
                assert_eq!(called_in(&messages), called);
                let taken = messages.iter().filter(|message| matches!(message, Message::Taken(..))).count();
                assert_eq!(taken, stolen.len());
            }
            Step::AcquireAll { id, mode, line } => self.acquire_all(id, mode, line),
            Step::Release { key, id } => {
                let id = self.ids[key][id];
                let (found, messages) = self.operate(|store| store.release(&id).unwrap());
                let state = &mut self.expected[key].state;
                let held = state.live(now).count();
                let is_live = state.grant_of(&id, now).is_some() || state.waiting(now).any(|it| it.lock_id == id);
                if state.grant_of(&id, now).is_some() {
                    assert_eq!(found, state.release(&id, now));
                } else {
                    // Why it is not there, and whether the next is looked for, depends on what is
                    // left of it. Its place is gone in any case.
                    assert!(matches!(found, Release::Absent(_)));
                    state.line.retain(|place| place.waiter.lock_id != id);
                }
                if is_live || called_in(&messages).is_some() {
                    assert_eq!(called_in(&messages), state.call_next(now));
                }
                if found == Release::Released {
                    let room = state.line.is_empty() && state.live(now).count() < held;
                    assert_eq!(messages.contains(&Message::Freed(self.keys[key].clone())), room);
                }
            }
            Step::Extend { key, id, ttl } => {
                let id = self.ids[key][id];
                let ttl = Ttl::from_millis(ttl).unwrap();
                let (found, _) = self.operate(|store| store.extend(&id, ttl).unwrap());
                let extended = self.extend(key, &id, now.expiry(ttl));
                assert_eq!(matches!(found, Extend::Extended { .. }), extended);
            }
            Step::ForceRelease { key, only_oldest } => {
                let name = self.keys[key].clone();
                let state = &mut self.expected[key].state;
                let only = state.live(now).next().map(|grant| grant.fence).filter(|_| only_oldest);
                let answer = state.force_release(only, now);
                let called = state.call_next(now);
                let (found, messages) = self.operate(|store| store.force_release(&name, only).unwrap());
                assert_eq!((found, called_in(&messages)), (answer, called));
            }
            Step::Advance(millis) => self.now = now + Duration::from_millis(millis),
            Step::Sweep | Step::OldSweep => {
                let swept = i64::try_from(now.latest_swept().as_millis()).unwrap();
                let run = |sql| self.database.connection.execute(sql, [swept]).unwrap();
                run(include_str!("sweep.sql"));
                if matches!(step, Step::Sweep) {
                    run(include_str!("sweep_grants.sql"));
                    let millis = i64::try_from(now.as_millis()).unwrap();
                    self.database.connection.execute(include_str!("sweep_line.sql"), [millis]).unwrap();
                }
            }
            Step::OldAcquire { key, id, steal } => {
                let request = self.request(key, id, Mode::Exclusive, Line::Ignore, 5000);
                if steal {
                    self.old_force_release(key);
                }
                if let Some(fence) = old_acquire(self.database, &request, now) {
                    let Expected { state, last, may_be_unkept } = &mut self.expected[key];
                    let others = |grant: &&Record| grant.lock_id != request.lock_id;
                    assert_eq!(state.live(now).find(others), None, "held together");
                    // Nor is it kept from them if those who held it beside the called one ran out.
                    let may_slip_in = *may_be_unkept || !state.grants.is_empty();
                    let unkept = |contention: &Contention| may_slip_in && contention.holders == 0;
                    assert_eq!(state.obstacle(&request, now).filter(|it| !unkept(it)), None);
                    if state.grant_of(&request.lock_id, now).is_none() {
                        state.grant(&request, fence, now);
                        *last = Some(fence);
                    }
                } else {
                    assert!(self.expected[key].state.obstacle(&request, now).is_some(), "free for no old program");
                }
            }
            Step::OldRelease { key, id } => {
                let id = self.ids[key][id];
                let dead = i64::try_from(now.latest_dead().as_millis()).unwrap();
                let sql = include_str!("release.sql");
                let released = self.database.connection.execute(sql, params![id.expose(), dead]).unwrap();
                let state = &mut self.expected[key].state;
                match state.grant_of(&id, now).map(|grant| grant.mode) {
                    Some(Mode::Exclusive) => {
                        state.release(&id, now);
                        assert_eq!(released, 1);
                    }
                    // An old program has no other locks, and no places either.
                    _ => assert_eq!(released, 0),
                }
            }
            Step::OldExtend { key, id } => {
                let id = self.ids[key][id];
                let expiry = now.expiry(Ttl::from_millis(5000).unwrap());
                let (dead, until) = (now.latest_dead().as_millis(), expiry.as_millis());
                let sql = include_str!("extend.sql");
                let values = params![id.expose(), i64::try_from(dead).unwrap(), i64::try_from(until).unwrap()];
                let extended = self.database.connection.execute(sql, values).unwrap();
                let mode = self.expected[key].state.grant_of(&id, now).map(|grant| grant.mode);
                let expected = mode == Some(Mode::Exclusive) && self.extend(key, &id, expiry);
                assert_eq!(extended == 1, expected);
            }
            Step::OldForceRelease { key } => self.old_force_release(key),
        }
    }

    /// Whoever held the key, nobody does any more, and nobody was called.
    fn old_force_release(&mut self, key: usize) {
        let name = self.keys[key].as_str();
        self.database.connection.execute(include_str!("force_release.sql"), [name]).unwrap();
        self.expected[key].state.grants.clear();
        self.expected[key].may_be_unkept = true;
    }

    fn extend(&mut self, key: usize, id: &LockId, expires_at: Timestamp) -> bool {
        let now = self.now;
        let live = |grant: &&mut Record| grant.lock_id == *id && grant.expires_at.is_live(now);
        let found = self.expected[key].state.grants.iter_mut().find(live);
        found.map(|grant| grant.expires_at = expires_at).is_some()
    }

    fn acquire_all(&mut self, id: usize, mode: Mode, line: Line) {
        let now = self.now;
        let requests: Vec<_> = (0..KEYS).map(|key| self.request(key, id, mode, line, 5000)).collect();
        let (found, messages) = self.operate(|store| store.acquire_all(&requests).unwrap());
        let states = || self.expected.iter().map(|expected| &expected.state).zip(&requests);
        let held: Option<Vec<_>> =
            states().map(|(state, request)| state.grant_of(&request.lock_id, now).map(Record::grant)).collect();
        let obstacle =
            states().enumerate().find_map(|(which, (state, request))| Some((which, state.obstacle(request, now)?)));
        let answer = if let Some(granted) = held.map(AcquireAll::Granted) {
            assert!(messages.is_empty());
            granted
        } else if let Some((which, contention)) = obstacle {
            assert_eq!(called_in(&messages), self.expected[which].state.call_next(now));
            AcquireAll::Held { which, contention }
        } else {
            let last = self.expected.iter().filter_map(|expected| expected.last).max();
            let fence = Fence::next(last, now).unwrap();
            let mut called = Vec::new();
            let granted = self.expected.iter_mut().zip(&requests).map(|(expected, request)| {
                expected.last = Some(fence);
                let grant = expected.state.grant(request, fence, now);
                called.extend(expected.state.call_next(now));
                grant
            });
            let granted = AcquireAll::Granted(granted.collect());
            let told = |message: &Message| if let Message::Called(id) = message { Some(*id) } else { None };
            assert_eq!(messages.iter().filter_map(told).collect::<Vec<_>>(), called);
            granted
        };
        assert_eq!(format!("{found:?}"), format!("{answer:?}"));
    }

    /// What everybody sees.
    fn check(&mut self) {
        let (now, keys, ids) = (self.now, self.keys.clone(), self.ids.clone());
        let (seen, _) = self.operate(|store| {
            let seen = keys.iter().zip(&ids).map(|(key, ids)| Seen {
                inspected: store.inspect(key).unwrap(),
                oldest: store.by_key(key).unwrap(),
                by_id: ids.iter().map(|id| store.by_id(id).unwrap()).collect(),
            });
            (seen.collect::<Vec<_>>(), list(store, keys[0].as_str().trim_end_matches('0')))
        });
        let (seen, listed) = seen;
        let mut expected_list = Vec::new();
        for (number, Seen { inspected, oldest, by_id }) in seen.into_iter().enumerate() {
            let state = &self.expected[number].state;
            assert_eq!(inspected, state.inspect(now));
            let holders = inspected.holders;
            assert_eq!(oldest, holders.first().cloned());
            for (id, found) in ids[number].iter().zip(by_id) {
                assert_eq!(found.as_ref(), state.grant_of(id, now));
            }
            // A program that reads only the locks sees one that lasts as long as the longest.
            let row = old_find(self.database, &keys[number]).filter(|(id, _)| id.is_some());
            let live = row.map(|(_, expires_at)| expires_at).filter(|at| Timestamp::from_millis(*at).is_live(now));
            let latest = holders.iter().map(|grant| grant.expires_at.as_millis()).max();
            assert!(latest.is_none() || live == latest, "{live:?} {latest:?}");
            let waiting = u32::try_from(inspected.waiters.len()).unwrap();
            expected_list.extend(holders.into_iter().map(|record| (record, waiting)));
        }
        assert_eq!(listed, expected_list);
    }
}

/// What is told of a key.
struct Seen {
    inspected: Inspected,
    oldest: Option<Record>,
    by_id: Vec<Option<Record>>,
}

/// All locks, page by page, and how many wait for each.
fn list(store: &mut Operations<'_>, prefix: &str) -> Vec<(Record, u32)> {
    let mut listed = Vec::new();
    let mut request = ListRequest::new(prefix).with_page_size(2);
    loop {
        let page = store.list(&request).unwrap();
        let waiting = page.waiting;
        listed.extend(page.records.into_iter().map(|record| {
            let waiting = waiting.get(&record.key).copied().unwrap_or(0);
            (record, waiting)
        }));
        match page.next {
            Some(next) => request = request.with_cursor(next),
            None => return listed,
        }
    }
}

fn called_in(messages: &[Message]) -> Option<LockId> {
    messages.iter().find_map(|message| if let Message::Called(id) = message { Some(*id) } else { None })
}

/// The id and the expiry in the row of a key, as programs read it that know no lines.
fn old_find(database: &Database, key: &Key) -> Option<(Option<String>, u64)> {
    let read = |row: &rusqlite::Row<'_>| {
        let id: Option<String> = row.get(1)?;
        // Programs that know no lines fail if it is none.
        assert!(id.as_ref().is_none_or(|id| id.parse::<LockId>().is_ok()));
        Ok((id, u64::try_from(row.get::<_, i64>(4)?).unwrap()))
    };
    database.connection.query_row(include_str!("find.sql"), [key.as_str()], read).ok()
}

/// The fence, if such a program takes the lock.
fn old_acquire(database: &Database, request: &AcquireRequest, now: Timestamp) -> Option<Fence> {
    let row = old_find(database, &request.key);
    let last: Option<i64> = database
        .connection
        .query_row("SELECT fence FROM locks WHERE key = ?1", [request.key.as_str()], |row| row.get(0))
        .ok();
    let last = last.map(|fence| Fence::new(u64::try_from(fence).unwrap()).unwrap());
    if let Some((Some(id), expires_at)) = row
        && Timestamp::from_millis(expires_at).is_live(now)
    {
        return last.filter(|_| id == request.lock_id.expose());
    }
    let fence = Fence::next(last, now).unwrap();
    let millis = |at: Timestamp| i64::try_from(at.as_millis()).unwrap();
    let values = params![
        request.key.as_str(),
        request.lock_id.expose(),
        i64::try_from(fence.get()).unwrap(),
        millis(now),
        millis(now.expiry(request.ttl)),
        request.holder.as_str(),
        None::<String>,
    ];
    database.connection.execute(include_str!("grant.sql"), values).unwrap();
    Some(fence)
}

#[test]
fn it_decides_as_the_one_rule_does_and_old_programs_hold_nothing_together_with_others() {
    let directory = tempfile::tempdir().unwrap();
    let database = Database::open(&directory.path().join("locks.db"), &SqliteOptions::default()).unwrap();
    let cases = std::env::var("PROPTEST_CASES").map_or(100, |cases| cases.parse().unwrap());
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(cases) };
    let outcome = TestRunner::new(config).run(&prop::collection::vec(step(), 1..60), |steps| {
        let mut world = World::new(&database);
        for step in &steps {
            world.step(step);
            world.check();
        }
        Ok(())
    });
    outcome.unwrap();
}
