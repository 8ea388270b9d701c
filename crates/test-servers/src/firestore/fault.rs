use std::time::Duration;

use serde_json::{Value as Json, json};

/// Something that is to go wrong in a [`Firestore`](crate::Firestore), from the moment it is
/// [injected](crate::Firestore::inject) until it has happened often enough or is cleared.
///
/// ```
/// # use test_servers::FirestoreFault;
/// // The next two commits that mention the document happen, and the client hears of an error.
/// let fault = FirestoreFault::status("UNAVAILABLE").after().on("Commit");
/// let fault = fault.about("locks/one").times(2);
/// ```
#[derive(Clone, Debug)]
#[must_use = "nothing goes wrong until it is injected"]
pub struct FirestoreFault(Json);

impl FirestoreFault {
    /// Calls fail with this code, such as `UNAVAILABLE`.
    pub fn status(code: &str) -> Self {
        Self(json!({"action": "status", "code": code}))
    }

    /// Calls take longer.
    ///
    /// # Panics
    ///
    /// If that is more than some hundred million years.
    pub fn delay(duration: Duration) -> Self {
        let ms = u64::try_from(duration.as_millis());
        Self(json!({"action": "delay", "ms": ms.unwrap_or_else(|_| panic!("{duration:?} is forever"))}))
    }

    /// Calls are never answered.
    pub fn silence() -> Self {
        Self(json!({"action": "silence"}))
    }

    /// The connections of calls are closed.
    pub fn close_connection() -> Self {
        Self(json!({"action": "close_connection"}))
    }

    /// Hits calls when they have done their work, rather than before. What fails by itself is not
    /// hit.
    pub fn after(self) -> Self {
        self.with("when", json!("after"))
    }

    /// Hits only calls of this name, such as `Commit`; `Token` is a request for a token.
    pub fn on(self, method: &str) -> Self {
        self.with("method", json!(method))
    }

    /// Hits only requests with this text in them, such as the path of a document.
    pub fn about(self, text: &str) -> Self {
        self.with("contains", json!(text))
    }

    /// Hits so many calls, rather than all.
    pub fn times(self, times: u64) -> Self {
        self.with("times", json!(times))
    }

    /// Hits a call only with this probability, by dice that fall the same way for the same seed.
    pub fn at_random(self, probability: f64, seed: u64) -> Self {
        self.with("probability", json!(probability)).with("seed", json!(seed))
    }

    pub(super) fn into_command(self) -> Json {
        self.with("command", json!("fault")).0
    }

    fn with(mut self, name: &str, value: Json) -> Self {
        self.0[name] = value;
        self
    }
}
