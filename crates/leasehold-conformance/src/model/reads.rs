use leasehold::LockId;
use leasehold::backend::{Inspected, Record};

use super::interval::Interval;
use super::key_model::{KeyModel, Verdict};

/// Answers of a store that was only looked at. They change nothing, but may tell what is possible.
impl KeyModel {
    /// Checks whether the lock is held.
    ///
    /// # Errors
    ///
    /// What is wrong with the answer.
    pub fn is_locked(&mut self, at: Interval, answer: bool) -> Verdict {
        self.judge(at, &[], |world, _| {
            if world.grants.is_empty() == answer {
                return Err(format!("is_locked is {answer}"));
            }
            Ok(vec![world])
        })
    }

    /// Checks the record found, by key, or by `id` if there is one.
    ///
    /// # Errors
    ///
    /// What is wrong with the answer.
    pub fn lookup(&mut self, id: Option<&LockId>, at: Interval, answer: Option<&Record>) -> Verdict {
        self.judge(at, &[], |world, _| {
            let expected = id.map_or_else(|| world.grants.first(), |id| world.grant_of(id));
            if answer != expected {
                return Err(format!("found {answer:?}, not {expected:?}"));
            }
            Ok(vec![world])
        })
    }

    /// Checks what a listing has of the key: its records, in whatever order, and how many wait.
    ///
    /// # Errors
    ///
    /// What is wrong with the answer.
    pub fn list(&mut self, at: Interval, records: &[Record], waiting: Option<u32>) -> Verdict {
        let mut listed = records.to_vec();
        listed.sort_by_key(|record| record.fence);
        self.judge(at, &[], |world, _| {
            if listed != world.grants {
                return Err(format!("listed {listed:?}"));
            }
            // Of keys that nobody holds nothing is listed.
            let expected = if listed.is_empty() { 0 } else { world.line.len() };
            if waiting.map(|count| count as usize) != Some(expected).filter(|count| *count > 0) {
                return Err(format!("listed that {waiting:?} wait, not {expected}"));
            }
            Ok(vec![world])
        })
    }

    /// Checks who holds the key and who waits for it.
    ///
    /// # Errors
    ///
    /// What is wrong with the answer.
    pub fn inspect(&mut self, at: Interval, answer: &Inspected) -> Verdict {
        self.judge(at, &[], |mut world, _| {
            if answer.holders != world.grants {
                return Err(format!("found the holders {:?}", answer.holders));
            }
            let same = answer.waiters.len() == world.line.len();
            if !same || !world.line.iter_mut().zip(&answer.waiters).all(|(place, waiter)| place.is_shown_as(waiter)) {
                return Err(format!("found the waiters {:?}", answer.waiters));
            }
            Ok(vec![world])
        })
    }
}
