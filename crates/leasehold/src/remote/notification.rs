//! The words in which stores tell of freed and taken locks: one letter for what, then which.

use crate::backend::Event;
use crate::{Fence, Holder, Key, Loss};

/// The lock of a key was released: `F` and the key, under the name the store has for it.
pub(crate) const FREED: &str = "F";
/// A lock was stolen: `S`, its fence and its key. Anybody may listen, so it is never the lock id.
pub(crate) const STOLEN: &str = "S";
/// A lock was released by force: `R`, its fence and its key.
pub(crate) const FORCE_RELEASED: &str = "R";

/// Somebody in line was called: `T` and a hash of its lock id. Anybody may listen, so it is never
/// the lock id, and only who knows that one knows the hash.
pub(crate) const TURN: &str = "T";

/// A lock was granted: `G`, its fence, the name of its holder if there is one, a line break, and
/// its key.
pub(crate) const GRANTED: &str = "G";

/// The topic of locks that are granted. Nobody's topic has this name either.
pub(crate) const GRANTED_TOPIC: &str = "granted";

/// The topic of locks that are taken from their holders. No key's topic has this name, because
/// those have a prefix.
pub(crate) const TAKEN_TOPIC: &str = "taken";

/// Longer than any message of ours: a letter, a fence, and a key or the name a store has for it.
/// What is longer was sent by a stranger, and is not kept.
#[cfg(any(feature = "redis", feature = "postgres"))]
pub(crate) const LONGEST: usize = 2048;

/// An event, and the topic whose subscribers are to hear of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Notification {
    pub(crate) topic: String,
    pub(crate) event: Event,
}

impl Notification {
    /// Of a lock that was freed, under the name the store has for its key.
    pub(crate) fn freed(name: &str) -> Self {
        Self { topic: freed_topic(name), event: Event::Freed }
    }

    /// What a message says; none if it is none of ours.
    pub(crate) fn decode(text: &str) -> Option<Self> {
        match text.split_at_checked(1)? {
            (FREED, name) if !name.is_empty() => Some(Self::freed(name)),
            (TURN, hash) if !hash.is_empty() => Some(Self { topic: turn_topic(hash), event: Event::Freed }),
            (GRANTED, _) => Some(Self { topic: GRANTED_TOPIC.to_owned(), event: decode_granted(text)? }),
            _ => Some(Self { topic: TAKEN_TOPIC.to_owned(), event: decode_taken(text)? }),
        }
    }
}

/// The topic of a key that is freed, under the name the store has for it.
pub(crate) fn freed_topic(name: &str) -> String {
    format!("freed:{name}")
}

/// The topic of somebody in line who is called, by the hash of its lock id.
pub(crate) fn turn_topic(hash: &str) -> String {
    format!("turn:{hash}")
}

/// What a message about a lock that was taken from its holder says.
pub(crate) fn decode_taken(text: &str) -> Option<Event> {
    let (letter, rest) = text.split_at_checked(1)?;
    let how = match letter {
        STOLEN => Loss::Stolen,
        FORCE_RELEASED => Loss::ForceReleased,
        _ => return None,
    };
    let (fence, key) = rest.split_at_checked(Fence::DIGITS)?;
    Some(Event::Taken { key: Key::new(key).ok()?, fence: fence.parse().ok()?, how })
}

/// What a message about a lock that was granted says after its letter and its fence.
pub(crate) fn granted_to(holder: Option<&Holder>, key: &Key) -> String {
    // No name has a line break in it.
    format!("{}\n{}", holder.map_or("", Holder::as_str), key.as_str())
}

/// What a message about a lock that was granted says.
pub(crate) fn decode_granted(text: &str) -> Option<Event> {
    let (fence, rest) = text.strip_prefix(GRANTED)?.split_at_checked(Fence::DIGITS)?;
    let (holder, key) = rest.split_once('\n')?;
    let holder = (!holder.is_empty()).then(|| Holder::new(holder)).transpose().ok()?;
    Some(Event::Granted { key: Key::new(key).ok()?, fence: fence.parse().ok()?, holder })
}

/// The letter for a lock that was taken in this way.
pub(crate) fn letter_of(how: Loss) -> &'static str {
    if how == Loss::ForceReleased { FORCE_RELEASED } else { STOLEN }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_decoded_and_noise_is_not() {
        let (key, fence) = (Key::new("payment:42").unwrap(), Fence::new(7).unwrap());
        let taken =
            |how| Notification { topic: TAKEN_TOPIC.to_owned(), event: Event::Taken { key: key.clone(), fence, how } };
        assert_eq!(Notification::decode("Fpayment:42"), Some(Notification::freed("payment:42")));
        assert_eq!(Notification::decode("S000000000000007payment:42"), Some(taken(Loss::Stolen)));
        assert_eq!(Notification::decode("R000000000000007payment:42"), Some(taken(Loss::ForceReleased)));
        for holder in [None, Some(Holder::new("host/job").unwrap())] {
            let said = format!("{GRANTED}{fence}{}", granted_to(holder.as_ref(), &key));
            let event = Event::Granted { key: key.clone(), fence, holder };
            assert_eq!(Notification::decode(&said), Some(Notification { topic: GRANTED_TOPIC.to_owned(), event }));
        }
        let turn = Notification { topic: turn_topic("abc"), event: Event::Freed };
        assert_eq!(Notification::decode("Tabc"), Some(turn));
        for noise in [
            "T",
            "G",
            "G000000000000007key",
            "G000000000000007\n",
            "",
            "F",
            "S",
            "Sshort",
            "S000000000000007",
            "S00000000000000xkey",
            "X",
            "\u{e9}",
        ] {
            assert_eq!(Notification::decode(noise), None, "{noise}");
        }
    }
}
