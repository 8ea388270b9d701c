use super::notification::{
    FREED, GRANTED, GRANTED_TOPIC, Notification, TAKEN_TOPIC, TURN, freed_topic, granted_to, letter_of, turn_topic,
};
use crate::backend::Event;
use crate::fuzzing::{Target, text};
use crate::{Fence, Key, Loss};

/// Messages about freed and taken locks, which anybody may send.
pub const NOTIFICATION: Target = Target {
    name: "notification",
    run: notification,
    corpus: &[
        b"Fpayment:42",
        b"T0123456789abcdefghij",
        b"S000000000000007payment:42",
        b"R999999999999999payment:42",
        b"S00000000000000xkey",
        "R00000000000000\u{e9}key".as_bytes(),
        b"\xff",
    ],
};

fn notification(data: &[u8]) {
    let text = text(data);
    if let Some(Notification { topic, event }) = Notification::decode(&text) {
        match event {
            Event::Freed => {
                let freed = text.strip_prefix(FREED).map(freed_topic);
                assert_eq!(Some(topic), freed.or_else(|| text.strip_prefix(TURN).map(turn_topic)));
            }
            Event::Taken { how, .. } => assert!(topic == TAKEN_TOPIC && text.starts_with(letter_of(how))),
            Event::Granted { key, fence, holder } => {
                assert_eq!(topic, GRANTED_TOPIC);
                let said = format!("{GRANTED}{fence}{}", granted_to(holder.as_ref(), &key));
                let again = Notification::decode(&said).map(|said| said.event);
                assert_eq!(again, Some(Event::Granted { key, fence, holder }));
            }
            Event::Missed => panic!("nobody says that something was missed"),
        }
    }
    // What we say is understood as it was meant.
    let Ok(key) = Key::new(&text) else { return };
    let freed = Notification::decode(&format!("{FREED}{}", key.as_str()));
    assert_eq!(freed, Some(Notification::freed(key.as_str())));
    let least = Fence::new(1).expect("a fence");
    for (how, fence) in [(Loss::Stolen, Fence::MAX), (Loss::ForceReleased, least)] {
        let said = format!("{}{fence}{}", letter_of(how), key.as_str());
        let event = Event::Taken { key: key.clone(), fence, how };
        assert_eq!(Notification::decode(&said), Some(Notification { topic: TAKEN_TOPIC.to_owned(), event }));
    }
}
