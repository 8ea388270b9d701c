use std::time::{Duration, SystemTime};

use test_servers::is_alive;

use crate::support::Place;

/// A command that notes all the time that it lives.
pub(crate) const BEATING: &str = "echo $$ > child\nwhile :; do echo > beat; sleep 0.02; done\n";

/// What happens to a command whose store fails for good: it is dead before its lease can have
/// ended.
pub(crate) fn check_stopped_in_time(place: &Place, ttl: Duration, trouble_began: SystemTime) {
    assert!(!is_alive(place.pid("child")));
    let last_beat = std::fs::metadata(place.path("beat")).unwrap().modified().unwrap();
    // The last renewal came before the trouble, so the lease ended at this time at the latest.
    assert!(last_beat < trouble_began + ttl, "{last_beat:?} {trouble_began:?}");
}
