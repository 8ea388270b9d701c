use std::fmt;

use test_servers::{DEADLINE, Proxy};

/// Which request is to go wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// One that changes something, if it is carried out.
    Change,
    /// One that only asks.
    Question,
    /// One to hear of a key.
    Subscription,
}

/// How a request goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Breakage {
    /// Its connection is lost before the server has seen it.
    CutBefore,
    /// Its connection is lost when it was carried out, and before the answer arrives.
    CutAfter,
    /// It is carried out, and never answered.
    Stall,
}

impl Breakage {
    /// Has the proxy do it to the next request with these bytes in it.
    pub(crate) fn by_proxy(self, proxy: &Proxy, bytes: &str) -> Broken<'static> {
        let rule = match self {
            Self::CutBefore => proxy.cut_before(bytes),
            Self::CutAfter => proxy.cut_after(bytes),
            Self::Stall => proxy.stall(bytes),
        };
        Broken::new(move || rule.wait_fired(DEADLINE))
    }
}

/// Something that was to go wrong.
pub struct Broken<'a>(Box<dyn Fn() -> bool + Send + Sync + 'a>);

impl<'a> Broken<'a> {
    pub(crate) fn new(wait: impl Fn() -> bool + Send + Sync + 'a) -> Self {
        Self(Box::new(wait))
    }

    /// Waits until it has gone wrong, and tells whether it has.
    pub fn wait_fired(&self) -> bool {
        (self.0)()
    }
}

impl fmt::Debug for Broken<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Broken").finish_non_exhaustive()
    }
}
