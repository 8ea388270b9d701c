//! What a contest came to.

use crate::spread::Spread;

/// The numbers of tasks whose pace is measured.
pub const TASKS: [usize; 3] = [1, 64, 256];

/// Everything that the page shows.
#[derive(Clone, Debug)]
pub struct Results {
    /// The machine and its software, a line each.
    pub machine: Vec<String>,
    /// When it was measured.
    pub date: String,
    /// What was typed.
    pub command: String,
    /// How many rounds there were, and of what length.
    pub rounds: String,
    /// A section each.
    pub stores: Vec<StoreResults>,
}

/// The contestants of one store.
#[derive(Clone, Debug, Default)]
pub struct StoreResults {
    /// As in `redis`.
    pub name: &'static str,
    /// The server and its version.
    pub server: String,
    /// In the order of the tables.
    pub contestants: Vec<ContestantResults>,
    /// What there is to add.
    pub notes: Vec<String>,
}

/// What one contestant has shown. Nothing where it cannot do that.
#[derive(Clone, Debug, Default)]
pub struct ContestantResults {
    /// What it is called in tables and figures.
    pub name: &'static str,
    /// What it says of its version.
    pub version: String,
    /// Whether it is leasehold.
    pub ours: bool,
    /// How long an acquire and its release take in one task, in seconds.
    pub pair: Option<Spread>,
    /// How many of them there are in a second, for each of [`TASKS`].
    pub pace: [Option<Spread>; TASKS.len()],
    /// From the start of a release in one process to the grant in another, in seconds.
    pub hand_over: Option<Spread>,
    /// What is counted in a pair, for each of [`TASKS`].
    pub of_a_pair: [Option<Cost>; TASKS.len()],
    /// The bytes that a held lock takes.
    pub bytes: Option<f64>,
    /// Requests in a hand-over.
    pub requests_of_a_hand_over: Option<f64>,
    /// Requests of one that waits for a minute.
    pub requests_of_a_minute: Option<f64>,
}

/// What a pair of acquire and release costs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cost {
    /// Requests to the server.
    pub requests: f64,
    /// Commands that it ran for them.
    pub commands: f64,
    /// Seconds of its processors.
    pub server_cpu: f64,
    /// Seconds of the processors of the contestant.
    pub client_cpu: f64,
}
