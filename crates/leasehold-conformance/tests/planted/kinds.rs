//! Bugs of readers, permits and several locks at once.

use std::collections::{HashMap, HashSet};
use std::num::NonZeroU16;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use leasehold::backend::{Acquire, AcquireAll, AcquireRequest, Line, LookupBy, Mode, Record, Release};
use leasehold::{Error, Fence, Key, LockId, TIME_TOLERANCE, Timestamp};

use super::line;
use super::{Bug, Make, Store};

pub(crate) const KIND_BUGS: &[(&str, Make)] = &[
    ("a_reader_passes_a_writer", || Arc::new(AReaderPassesAWriter)),
    ("a_slot_is_given_twice", || Arc::new(ASlotIsGivenTwice)),
    ("there_is_one_permit_too_many", || Arc::new(ThereIsOnePermitTooMany)),
    ("the_first_reader_that_ends_lets_writers_in", || Arc::new(TheFirstReaderThatEndsLetsWritersIn::default())),
    ("the_first_reader_whose_time_is_over_ends_all", || Arc::new(TheFirstReaderWhoseTimeIsOverEndsAll::default())),
    ("several_locks_are_taken_one_by_one", || Arc::new(SeveralLocksAreTakenOneByOne)),
    ("several_locks_have_several_fences", || Arc::new(SeveralLocksHaveSeveralFences)),
    ("force_release_spares_nobody", || Arc::new(ForceReleaseSparesNobody)),
    ("everybody_is_called", || Arc::new(line::EverybodyIsCalled::default())),
    ("the_last_in_line_is_let_in", || Arc::new(line::TheLastInLineIsLetIn)),
    ("a_place_never_ends", || Arc::new(line::APlaceNeverEnds)),
    ("leases_add_up", || Arc::new(line::LeasesAddUp)),
    ("a_called_head_is_never_passed_over", || Arc::new(line::ACalledHeadIsNeverPassedOver::default())),
    ("asking_again_goes_to_the_end_of_the_line", || Arc::new(line::AskingAgainGoesToTheEndOfTheLine)),
    ("a_place_cannot_be_given_up", || Arc::new(line::APlaceCannotBeGivenUp)),
    ("a_kept_lock_looks_held", || Arc::new(line::AKeptLockLooksHeld)),
];

#[derive(Debug)]
struct AReaderPassesAWriter;

#[async_trait]
impl Bug for AReaderPassesAWriter {
    async fn acquire(&self, store: &Store, request: &AcquireRequest) -> Result<Acquire, Error> {
        let barging = request.clone().with_line(Line::Ignore);
        if request.mode == Mode::Shared
            && let granted @ Acquire::Granted(_) = store.acquire(&barging).await?
        {
            return Ok(granted);
        }
        store.acquire(request).await
    }
}

#[derive(Debug)]
struct ASlotIsGivenTwice;

#[async_trait]
impl Bug for ASlotIsGivenTwice {
    async fn acquire(&self, store: &Store, request: &AcquireRequest) -> Result<Acquire, Error> {
        let mut answer = store.acquire(request).await?;
        if let Acquire::Granted(grant) = &mut answer {
            grant.slot = grant.slot.map(|_| 0);
        }
        Ok(answer)
    }
}

#[derive(Debug)]
struct ThereIsOnePermitTooMany;

#[async_trait]
impl Bug for ThereIsOnePermitTooMany {
    async fn acquire(&self, store: &Store, request: &AcquireRequest) -> Result<Acquire, Error> {
        let mode = match request.mode {
            Mode::Permit { of } => Mode::Permit { of: of.saturating_add(1).min(NonZeroU16::MAX) },
            mode => mode,
        };
        store.acquire(&request.clone().with_mode(mode)).await
    }
}

/// Knows the keys of which a reader has ended.
#[derive(Debug, Default)]
struct TheFirstReaderThatEndsLetsWritersIn(Mutex<HashSet<Key>>);

#[async_trait]
impl Bug for TheFirstReaderThatEndsLetsWritersIn {
    async fn acquire(&self, store: &Store, request: &AcquireRequest) -> Result<Acquire, Error> {
        let uncovered = self.0.lock().expect("nobody panicked").contains(&request.key);
        if uncovered
            && request.mode == Mode::Exclusive
            && let Acquire::Held(held) = store.acquire(&request.clone().with_line(Line::Heed)).await?
            && held.mode == Mode::Shared
        {
            store.force_release(&request.key, None).await?;
        }
        store.acquire(request).await
    }

    async fn release(&self, store: &Store, id: &LockId) -> Result<Release, Error> {
        if let Some(record) = store.lookup(LookupBy::Id(id)).await?
            && record.mode == Mode::Shared
        {
            self.0.lock().expect("nobody panicked").insert(record.key);
        }
        store.release(id).await
    }
}

/// Knows when the first of the readers of a key ends, and has what stands for all of them end then.
#[derive(Debug, Default)]
struct TheFirstReaderWhoseTimeIsOverEndsAll(Mutex<HashMap<Key, Timestamp>>);

#[async_trait]
impl Bug for TheFirstReaderWhoseTimeIsOverEndsAll {
    async fn acquire(&self, store: &Store, request: &AcquireRequest) -> Result<Acquire, Error> {
        let mut answer = store.acquire(request).await?;
        match &answer {
            Acquire::Granted(grant) if request.mode == Mode::Shared => {
                let mut first = self.0.lock().expect("nobody panicked");
                let ends = first.entry(request.key.clone()).or_insert(grant.expires_at);
                *ends = (*ends).min(grant.expires_at);
            }
            Acquire::Held(held) if held.mode == Mode::Shared && request.mode != Mode::Shared => {
                let first = self.0.lock().expect("nobody panicked").remove(&request.key);
                if first.is_some_and(|ends| ends + TIME_TOLERANCE <= held.now) {
                    store.force_release(&request.key, None).await?;
                    answer = store.acquire(request).await?;
                }
            }
            _ => {}
        }
        Ok(answer)
    }
}

#[derive(Debug)]
struct SeveralLocksAreTakenOneByOne;

#[async_trait]
impl Bug for SeveralLocksAreTakenOneByOne {
    async fn acquire_all(&self, store: &Store, requests: &[AcquireRequest]) -> Result<AcquireAll, Error> {
        for (number, request) in requests.iter().enumerate() {
            match store.acquire_all(requests).await? {
                // Those before it are kept although the rest is not to be had.
                AcquireAll::Held { which, .. } if which > number => drop(store.acquire(request).await?),
                answer => return Ok(answer),
            }
        }
        store.acquire_all(requests).await
    }
}

#[derive(Debug)]
struct SeveralLocksHaveSeveralFences;

#[async_trait]
impl Bug for SeveralLocksHaveSeveralFences {
    async fn acquire_all(&self, store: &Store, requests: &[AcquireRequest]) -> Result<AcquireAll, Error> {
        let mut answer = store.acquire_all(requests).await?;
        if let AcquireAll::Granted(grants) = &mut answer {
            for (number, grant) in (0..).zip(grants) {
                grant.fence = Fence::new(grant.fence.get() + number)?;
            }
        }
        Ok(answer)
    }
}

#[derive(Debug)]
struct ForceReleaseSparesNobody;

#[async_trait]
impl Bug for ForceReleaseSparesNobody {
    async fn force_release(&self, store: &Store, key: &Key, _: Option<Fence>) -> Result<Vec<Record>, Error> {
        store.force_release(key, None).await
    }
}
