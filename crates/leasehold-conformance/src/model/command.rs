use std::time::Duration;

use proptest::prelude::{Just, Strategy, any as arbitrary, prop_oneof};
use proptest::sample::select;

use super::ModelConfig;

/// Keys in play.
pub(super) const KEYS: usize = 2;
/// Lock ids in play for each key. A command names a slot, so that a sequence with commands left out
/// is still one.
pub(super) const SLOTS: usize = 3;
/// Holders in play.
pub(super) const HOLDERS: usize = 2;

/// What one of the clients does, through the store's first handle or its second.
#[derive(Clone, Debug)]
pub(super) struct Command {
    pub(super) through_peer: bool,
    pub(super) key: usize,
    pub(super) action: Action,
}

#[derive(Clone, Debug)]
pub(super) enum Action {
    Acquire { slot: usize, ttl: u64, holder: usize, steal: Stealing },
    Release { slot: usize },
    Extend { slot: usize, ttl: u64 },
    IsLocked,
    LookupByKey,
    LookupById { slot: usize },
    List,
    ForceRelease,
    Advance(Advance),
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Stealing {
    Never,
    SameHolder,
    HeldLongerThan(u64),
    /// The grant that holds the lock now.
    Fence,
    /// The grant before it, if there was one.
    FenceBefore,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Advance {
    By(Duration),
    /// To when the key's lock expires, and the milliseconds on top.
    ToExpiry(u64),
    /// To just before the key's lock is free, and the milliseconds on top: at 1 nobody holds it any
    /// more.
    ToFree(u64),
}

pub(super) fn any(config: &ModelConfig) -> impl Strategy<Value = Command> + use<> {
    let slot = || 0..SLOTS;
    let ttl = || select(config.ttls.clone());
    let stealing = prop_oneof![
        6 => Just(Stealing::Never),
        1 => Just(Stealing::SameHolder),
        1 => select(vec![0, 1, 50, 1000, 60_000]).prop_map(Stealing::HeldLongerThan),
        1 => Just(Stealing::Fence),
        1 => Just(Stealing::FenceBefore),
    ];
    let advance = prop_oneof![
        2 => select(config.advances.clone()).prop_map(Advance::By),
        1 => (0u64..3).prop_map(Advance::ToExpiry),
        2 => (0u64..3).prop_map(Advance::ToFree),
    ];
    let action = prop_oneof![
        6 => (slot(), ttl(), 0..HOLDERS, stealing)
            .prop_map(|(slot, ttl, holder, steal)| Action::Acquire { slot, ttl, holder, steal }),
        3 => slot().prop_map(|slot| Action::Release { slot }),
        3 => (slot(), ttl()).prop_map(|(slot, ttl)| Action::Extend { slot, ttl }),
        1 => Just(Action::IsLocked),
        1 => Just(Action::LookupByKey),
        1 => slot().prop_map(|slot| Action::LookupById { slot }),
        1 => Just(Action::List),
        1 => Just(Action::ForceRelease),
        4 => advance.prop_map(Action::Advance),
    ];
    (arbitrary::<bool>(), 0..KEYS, action).prop_map(|(through_peer, key, action)| Command { through_peer, key, action })
}
