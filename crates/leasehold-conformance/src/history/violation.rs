use std::fmt;

/// A promise that was broken, as a history shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Violation {
    /// Two clients held the key at once.
    Overlap {
        /// The key.
        key: String,
        /// Who held it.
        first: String,
        /// Who held it too.
        second: String,
    },
    /// A lock was given to somebody else after its holder's deadline, but within the tolerance.
    TakenTooEarly {
        /// The key.
        key: String,
        /// Whose lock it was.
        first: String,
        /// Who got it.
        second: String,
    },
    /// A permit was granted although all were out.
    TooManyPermits {
        /// The key.
        key: String,
        /// The permit.
        lock: String,
        /// How many permits there are, as it was asked for.
        of: u16,
        /// How many were out with it.
        held: usize,
    },
    /// Somebody was let in before somebody who stood in line for longer.
    Overtaken {
        /// The key.
        key: String,
        /// Who stood in line.
        first: String,
        /// Who came later and was let in.
        second: String,
    },
    /// Two grants have the same fence.
    FenceRepeated {
        /// The key.
        key: String,
        /// The fence.
        fence: u64,
    },
    /// A grant that was asked for after another was answered has a lower fence.
    FenceWentBack {
        /// The key.
        key: String,
        /// The fence before.
        before: u64,
        /// The fence that followed.
        after: u64,
    },
    /// A repeated acquire got a grant that differs from the first.
    GrantChanged {
        /// The key.
        key: String,
        /// The lock.
        lock: String,
    },
    /// Two releases of a lock succeeded.
    ReleasedTwice {
        /// The key.
        key: String,
        /// The lock.
        lock: String,
    },
    /// A lock that was released, or that somebody else was granted meanwhile, was extended or
    /// released.
    Resurrected {
        /// The key.
        key: String,
        /// The lock.
        lock: String,
    },
    /// The store denied a lock within its time although nobody had ended it.
    LostWithoutCause {
        /// The key.
        key: String,
        /// The lock.
        lock: String,
    },
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Overlap { key, first, second } => write!(f, "{key}: {first} and {second} held it at once"),
            Self::TakenTooEarly { key, first, second } => {
                write!(f, "{key}: {second} got it before the tolerance of {first} had passed")
            }
            Self::TooManyPermits { key, lock, of, held } => {
                write!(f, "{key}: {lock} is one of {of}, and {held} were out")
            }
            Self::Overtaken { key, first, second } => write!(f, "{key}: {second} overtook {first} in the line"),
            Self::FenceRepeated { key, fence } => write!(f, "{key}: fence {fence} was granted twice"),
            Self::FenceWentBack { key, before, after } => write!(f, "{key}: fence {after} followed {before}"),
            Self::GrantChanged { key, lock } => write!(f, "{key}: a repeated acquire of {lock} got another grant"),
            Self::ReleasedTwice { key, lock } => write!(f, "{key}: {lock} was released twice"),
            Self::Resurrected { key, lock } => write!(f, "{key}: {lock} came back from the dead"),
            Self::LostWithoutCause { key, lock } => write!(f, "{key}: {lock} was denied within its time"),
        }
    }
}
