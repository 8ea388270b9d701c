/// Ways to break the lock above the stores on purpose, so that tests can prove they would notice. They take effect
/// only with the feature `planted-bugs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "planted-bugs"), allow(dead_code, unreachable_pub))]
pub enum PlantedBug {
    /// The keeper goes on renewing a lock that was released.
    RenewAfterRelease,
    /// Tasks of one process go to the store at once instead of waiting in line.
    SkipQueue,
    /// A cancelled acquire is forgotten instead of undone.
    ForgetCancelled,
    /// The deadline counts from the store's answer instead of from the request.
    CountFromAnswer,
}
