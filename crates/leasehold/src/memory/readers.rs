use crate::LockId;
use crate::backend::{Event, Publisher};

/// Those who want to hear that a key is free, or that it is their turn.
#[derive(Clone, Debug, Default)]
pub(super) struct Readers(Vec<(Option<LockId>, Publisher)>);

impl Readers {
    pub(super) fn add(&mut self, turn_of: Option<LockId>, publisher: Publisher) {
        self.0.push((turn_of, publisher));
    }

    /// Tells the one who is called.
    pub(super) fn call(&self, id: &LockId) {
        self.tell(|turn_of| turn_of.as_ref() == Some(id));
    }

    /// Tells all: nobody is before them.
    pub(super) fn freed(&self) {
        self.tell(|_| true);
    }

    fn tell(&self, whom: impl Fn(&Option<LockId>) -> bool) {
        for (_, publisher) in self.0.iter().filter(|(turn_of, _)| whom(turn_of)) {
            publisher.publish(Event::Freed);
        }
    }

    /// Forgets those who do not listen any more, and tells whether anybody is left.
    pub(super) fn forget_closed(&mut self) -> bool {
        self.0.retain(|(_, publisher)| !publisher.is_closed());
        !self.0.is_empty()
    }
}
