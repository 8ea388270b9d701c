use std::sync::Mutex;

use leasehold::backend::Mode;

/// Those who hold one key at present, as far as they say so: they enter when they have been granted
/// it, and leave before they give it back.
#[derive(Debug, Default)]
pub struct Holders(Mutex<Vec<Mode>>);

impl Holders {
    /// One more holds it in this way.
    ///
    /// # Panics
    ///
    /// If it does not go with those who are in there, or is one too many.
    pub fn enter(&self, mode: Mode) {
        let mut inside = self.0.lock().unwrap();
        assert!(inside.iter().all(|other| other.goes_with(mode)), "{mode} beside {inside:?}");
        assert!(inside.len() < usize::try_from(mode.limit()).unwrap(), "{mode} beside {inside:?}");
        inside.push(mode);
    }

    /// One who holds it in this way is about to give it back.
    pub fn leave(&self, mode: Mode) {
        let mut inside = self.0.lock().unwrap();
        let place = inside.iter().position(|other| *other == mode).expect("it is inside");
        inside.swap_remove(place);
    }
}
