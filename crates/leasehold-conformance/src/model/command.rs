use std::num::NonZeroU16;
use std::time::Duration;

use leasehold::backend::Mode;
use proptest::prelude::{BoxedStrategy, Just, Strategy, any as arbitrary, prop_oneof};
use proptest::sample::select;

use super::ModelConfig;

/// Keys in play.
pub(super) const KEYS: usize = 2;
/// Lock ids in play for each key. A command names one by its number, so that a sequence with
/// commands left out is still one.
pub(super) const IDS: usize = 5;
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
    Acquire {
        id: usize,
        wanted: Wanted,
        steal: Stealing,
        line: InLine,
    },
    /// Of all keys, with the same id's number for each.
    AcquireAll {
        id: usize,
        wanted: [Wanted; KEYS],
        heeds: bool,
    },
    Release {
        id: usize,
    },
    Extend {
        id: usize,
        ttl: u64,
    },
    IsLocked,
    LookupByKey,
    LookupById {
        id: usize,
    },
    Inspect,
    List,
    /// Of all grants, or of the one with this number, counted from the oldest.
    ForceRelease {
        only: Option<usize>,
    },
    Advance(Advance),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    pub(super) ttl: u64,
    pub(super) holder: usize,
    pub(super) mode: Mode,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum InLine {
    Ignores,
    Heeds,
    /// With this lease, in milliseconds.
    Joins(u64),
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Stealing {
    Never,
    SameHolder,
    HeldLongerThan(u64),
    /// The grant with this number, counted from the oldest.
    Fence(usize),
    /// The grant before it, if there was one.
    FenceBefore(usize),
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Advance {
    By(Duration),
    /// To when the grant with the first number expires, and the milliseconds on top.
    ToExpiry(usize, u64),
    /// To just before nobody holds that grant any more, and the milliseconds on top: at 1 nobody
    /// does.
    ToFree(usize, u64),
    /// To just before the lease ends of the place with the first number, and the milliseconds on
    /// top: at 1 it has ended.
    ToLeaseEnd(usize, u64),
}

/// Any command to a store that has lines, or to one that has not.
pub(super) fn any(config: &ModelConfig, lines: bool) -> impl Strategy<Value = Command> + use<> {
    let action = if lines { prop_oneof![3 => all(config), 2 => in_line(config)].boxed() } else { plain(config) };
    (arbitrary::<bool>(), 0..KEYS, action).prop_map(|(through_peer, key, action)| Command { through_peer, key, action })
}

fn id() -> std::ops::Range<usize> {
    0..IDS
}

fn ttl(config: &ModelConfig) -> impl Strategy<Value = u64> + use<> {
    select(config.ttls.clone())
}

fn wanted<M: Strategy<Value = Mode>>(config: &ModelConfig, mode: M) -> impl Strategy<Value = Wanted> + use<M> {
    (ttl(config), 0..HOLDERS, mode).prop_map(|(ttl, holder, mode)| Wanted { ttl, holder, mode })
}

fn mode() -> impl Strategy<Value = Mode> {
    prop_oneof![
        3 => Just(Mode::Exclusive),
        3 => Just(Mode::Shared),
        3 => (1..4u16).prop_filter_map("at least one", NonZeroU16::new).prop_map(|of| Mode::Permit { of }),
    ]
}

fn stealing() -> impl Strategy<Value = Stealing> {
    prop_oneof![
        12 => Just(Stealing::Never),
        2 => Just(Stealing::SameHolder),
        1 => select(vec![0, 1, 50, 1000, 60_000]).prop_map(Stealing::HeldLongerThan),
        1 => (0..2usize).prop_map(Stealing::Fence),
        1 => (0..2usize).prop_map(Stealing::FenceBefore),
    ]
}

fn acquire<M, L>(config: &ModelConfig, mode: M, line: L) -> impl Strategy<Value = Action> + use<M, L>
where
    M: Strategy<Value = Mode>,
    L: Strategy<Value = InLine>,
{
    (id(), wanted(config, mode), stealing(), line).prop_map(|(id, wanted, steal, line)| Action::Acquire {
        id,
        wanted,
        steal,
        line,
    })
}

/// What stores without lines can do.
fn plain(config: &ModelConfig) -> BoxedStrategy<Action> {
    let advance = prop_oneof![
        2 => select(config.advances.clone()).prop_map(Advance::By),
        1 => (0..2usize, 0u64..3).prop_map(|(grant, millis)| Advance::ToExpiry(grant, millis)),
        2 => (0..2usize, 0u64..3).prop_map(|(grant, millis)| Advance::ToFree(grant, millis)),
    ];
    prop_oneof![
        6 => acquire(config, Just(Mode::Exclusive), Just(InLine::Ignores)),
        3 => id().prop_map(|id| Action::Release { id }),
        3 => (id(), ttl(config)).prop_map(|(id, ttl)| Action::Extend { id, ttl }),
        1 => Just(Action::IsLocked),
        1 => Just(Action::LookupByKey),
        1 => id().prop_map(|id| Action::LookupById { id }),
        1 => Just(Action::List),
        1 => Just(Action::Inspect),
        1 => proptest::option::of(0..2usize).prop_map(|only| Action::ForceRelease { only }),
        4 => advance.prop_map(Action::Advance),
    ]
    .boxed()
}

/// The same, with all modes.
fn all(config: &ModelConfig) -> BoxedStrategy<Action> {
    prop_oneof![3 => plain(config), 1 => acquire(config, mode(), Just(InLine::Ignores))].boxed()
}

/// What is about lines.
fn in_line(config: &ModelConfig) -> BoxedStrategy<Action> {
    let line = prop_oneof![
        1 => Just(InLine::Heeds),
        4 => select(config.leases.clone()).prop_map(InLine::Joins),
    ];
    let end = (0..2usize, 0u64..3).prop_map(|(place, millis)| Advance::ToLeaseEnd(place, millis));
    prop_oneof![
        8 => acquire(config, mode(), line),
        1 => (id(), [wanted(config, mode()), wanted(config, mode())], arbitrary::<bool>())
            .prop_map(|(id, wanted, heeds)| Action::AcquireAll { id, wanted, heeds }),
        1 => end.prop_map(Action::Advance),
        1 => Just(Action::Inspect),
    ]
    .boxed()
}
