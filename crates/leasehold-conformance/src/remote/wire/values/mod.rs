//! Twins of the types of [`leasehold`] that tell serde how to write them. They are of the same name
//! and shape. What is added there must be added here; the tests of this folder compare whole
//! values.

mod answers;
mod capabilities;
mod events;
mod records;
mod requests;

use super::notes;
pub(super) use answers::{Acquire, AcquireAll, Extend, Release};
pub(super) use capabilities::Capabilities;
pub(super) use events::Event;
pub(in super::super) use records::{Listed, Waiting};
pub(super) use requests::{AcquireRequest, ListRequest};

/// Has serde write the values of an enum that may grow as those of its twin. A value that the twin
/// does not know is an error.
macro_rules! enum_twin {
    ($twin:ident = $original:ty { $($value:pat => $twin_value:expr),+ $(,)? } { $($from:pat => $into:expr),+ $(,)? }) => {
        impl $twin {
            pub(in super::super) fn serialize<S: ::serde::Serializer>(value: &$original, serializer: S) -> Result<S::Ok, S::Error> {
                let twin = match value.clone() {
                    $($value => $twin_value,)+
                    _ => return Err(::serde::ser::Error::custom(concat!("an unknown ", stringify!($twin)))),
                };
                ::serde::Serialize::serialize(&twin, serializer)
            }

            pub(in super::super) fn deserialize<'de, D: ::serde::Deserializer<'de>>(deserializer: D) -> Result<$original, D::Error> {
                let twin: $twin = ::serde::Deserialize::deserialize(deserializer)?;
                Ok(match twin { $($from => $into,)+ })
            }
        }
    };
}
use enum_twin;

/// A lock id does not serialise by itself, lest it gets into a log. Here it must.
pub(super) mod lock_id {
    use leasehold::LockId;
    use serde::{Deserialize, Deserializer, Serializer, de};

    pub(in super::super) fn serialize<S: Serializer>(id: &LockId, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(id.expose())
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<LockId, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

/// A time serialises as milliseconds by itself. Here it must not lose the rest.
mod micros {
    use leasehold::Timestamp;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(at: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(at.as_micros())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Timestamp, D::Error> {
        u64::deserialize(deserializer).map(Timestamp::from_micros)
    }
}
