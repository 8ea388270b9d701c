use std::collections::{BTreeSet, HashSet};
use std::time::Duration;

use tokio::time::Instant;

/// How far apart those who wait for one lock try to take it, and the longest that any of them
/// holds back.
const APART: Duration = Duration::from_millis(1);
const LONGEST: Duration = Duration::from_millis(500);

/// Wake-ups that are held back for a moment, because others wait for the same lock.
///
/// A server writes to those who listen in the reverse order of how they came, so the youngest would
/// nearly always be the first to try. And all would try, for one to succeed. So each of them draws
/// one of as many places as there are waiters, a millisecond apart. Only the first place is at once:
/// a lone waiter has it for certain.
#[derive(Debug, Default)]
pub(super) struct Herd {
    due: BTreeSet<(Instant, String)>,
    topics: HashSet<String>,
}

impl Herd {
    /// Takes in a wake-up for one of `waiting`. Returns the topic if it is due at once.
    pub(super) fn wake(&mut self, topic: String, waiting: u32) -> Option<String> {
        let place = fastrand::u32(0..waiting.max(1));
        if place == 0 {
            return Some(topic);
        }
        // Who holds back already keeps its place: it is nearer than a new one.
        if self.topics.insert(topic.clone()) {
            let longest = u32::try_from(LONGEST.as_millis() / APART.as_millis()).unwrap_or(u32::MAX);
            let delay = if waiting <= longest { APART * place } else { LONGEST.mul_f64(fastrand::f64()) };
            self.due.insert((Instant::now() + delay, topic));
        }
        None
    }

    /// The topic that is due next; waits for ever if there is none. Cancel-safe.
    pub(super) async fn next(&mut self) -> String {
        let Some((at, _)) = self.due.first() else { return std::future::pending().await };
        tokio::time::sleep_until(*at).await;
        let Some((_, topic)) = self.due.pop_first() else { return std::future::pending().await };
        self.topics.remove(&topic);
        topic
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lone_waiter_is_woken_at_once() {
        for waiting in [0, 1] {
            assert_eq!(Herd::default().wake("a".into(), waiting), Some("a".into()));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn about_one_of_many_is_woken_at_once_and_each_of_them_in_time() {
        for waiting in [2, 200, 1_000_000] {
            let (begun, mut at_once) = (Instant::now(), 0);
            let mut herds: Vec<_> = (0..waiting.min(1000)).map(|_| Herd::default()).collect();
            for herd in &mut herds {
                match herd.wake("a".into(), waiting) {
                    Some(_) => at_once += 1,
                    None => assert_eq!(herd.next().await, "a"),
                }
                assert!(herd.due.is_empty() && herd.topics.is_empty());
            }
            assert!(at_once < 20, "{at_once} of {waiting}");
            let each = begun.elapsed() / waiting.min(1000);
            assert!(each <= APART * waiting && each <= LONGEST, "{each:?} for {waiting}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_holds_back_is_woken_once_and_not_put_off() {
        let mut herd = Herd::default();
        while herd.wake("a".into(), 100).is_some() {}
        let (first, _) = *herd.due.first().unwrap();
        for _ in 0..100 {
            let _ = herd.wake("a".into(), 100);
        }
        assert_eq!((herd.due.len(), herd.due.first().unwrap().0), (1, first));
        while herd.wake("b".into(), 100).is_some() {}
        let mut woken = [herd.next().await, herd.next().await];
        woken.sort();
        assert_eq!(woken, ["a", "b"]);
        assert!(tokio::time::timeout(LONGEST * 2, herd.next()).await.is_err());
    }
}
