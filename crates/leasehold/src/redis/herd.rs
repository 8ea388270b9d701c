use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use tokio::time::Instant;

/// How far apart those who wait for one lock try to take it, and how many of them.
const APART: Duration = Duration::from_millis(1);
const PLACES: u32 = 16;

/// When the others try, unless the lock is freed again before: those who should have tried first
/// may be gone, or stopped. Half of it is left to chance.
const LATE: Duration = Duration::from_secs(2);

/// Wake-ups that are held back, because others wait for the same lock.
///
/// A server writes to those who listen in the reverse order of how they came, so the youngest would
/// nearly always be the first to try. And all would try, for one to succeed. So each of them draws
/// one of as many places as there are waiters. The first place is at once, so that a lone waiter is
/// never held back; the next ones are a millisecond apart; the rest wait for the next release, of
/// which there will be one if the lock is taken.
#[derive(Debug, Default)]
pub(super) struct Herd {
    due: BTreeSet<(Instant, String)>,
    topics: HashMap<String, Place>,
}

#[derive(Clone, Copy, Debug)]
struct Place {
    at: Instant,
    late: bool,
}

impl Herd {
    /// Takes in a wake-up for one of `waiting`. Returns the topic if it is due at once.
    pub(super) fn wake(&mut self, topic: String, waiting: u32) -> Option<String> {
        let number = fastrand::u32(0..waiting.max(1));
        let late = number >= PLACES;
        match self.topics.get(&topic) {
            // Nearer than any new one but the first.
            Some(place) if !place.late && number > 0 => return None,
            Some(place) => {
                self.due.remove(&(place.at, topic.clone()));
                self.topics.remove(&topic);
            }
            None => {}
        }
        if number == 0 {
            return Some(topic);
        }
        let delay = if late { LATE.mul_f64(0.5 + fastrand::f64() / 2.0) } else { APART * number };
        let at = Instant::now() + delay;
        self.due.insert((at, topic.clone()));
        self.topics.insert(topic, Place { at, late });
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
    async fn a_few_of_many_are_woken_soon_and_the_others_in_the_end() {
        for waiting in [2, PLACES, 1000] {
            let (mut at_once, mut soon) = (0, 0);
            for _ in 0..waiting {
                let (mut herd, begun) = (Herd::default(), Instant::now());
                match herd.wake("a".into(), waiting) {
                    Some(_) => at_once += 1,
                    None => assert_eq!(herd.next().await, "a"),
                }
                assert!(begun.elapsed() <= LATE);
                soon += u32::from(begun.elapsed() < APART * PLACES);
                assert!(herd.due.is_empty() && herd.topics.is_empty());
            }
            // About one, and about as many as there are places.
            assert!(at_once < 20 && soon < PLACES * 4, "{at_once} and {soon} of {waiting}");
            assert!(waiting > PLACES || soon == waiting);
        }
    }

    /// Draws until the place is late, or not.
    fn hold_back(herd: &mut Herd, topic: &str, late: bool) -> Place {
        loop {
            *herd = Herd::default();
            if herd.wake(topic.into(), 2 * PLACES).is_none() && herd.topics[topic].late == late {
                return herd.topics[topic];
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_has_a_place_keeps_it_unless_the_next_draw_is_better() {
        let mut herd = Herd::default();
        let soon = hold_back(&mut herd, "a", false);
        while herd.wake("a".into(), 100).is_none() {
            assert_eq!((herd.due.len(), herd.topics["a"].at), (1, soon.at));
        }
        assert!(herd.due.is_empty(), "once is enough");

        let late = hold_back(&mut herd, "b", true);
        tokio::time::advance(LATE / 4).await;
        // The lock was freed again, so somebody has tried.
        while herd.wake("b".into(), 1_000_000).is_some() {}
        assert_eq!(herd.due.len(), 1);
        assert!(herd.topics["b"].at >= Instant::now() + LATE / 2 && herd.topics["b"].at != late.at);
        assert_eq!(herd.next().await, "b");
        assert!(tokio::time::timeout(LATE * 2, herd.next()).await.is_err());
    }
}
