//! Requests that come while others are on their way, and are sent together.

use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::sync::lock;
use crate::{Error, ErrorCode};

/// The most requests that are on their way by themselves before others are sent together.
const MOST_ALONE: usize = 256;

/// The quickest of so many answers tells how long the way is. One may be slow for any reason.
const WINDOW: u32 = 256;

/// The most that are sent together. A server does nothing else in the meantime.
const MOST_TOGETHER: usize = 32;

/// The longest that a request waits for those before it: they may be on a long way, or nobody may
/// ask for their answers.
const PATIENCE: Duration = Duration::from_millis(1);

/// Who can send requests of one kind alone and together.
pub(crate) trait Batching<R>: Send + Sync + Sized + 'static {
    /// What is answered to one of them.
    type Answer: Send + 'static;

    /// Where they wait.
    fn stage(&self) -> &Stage<R, Self::Answer>;

    /// Sends one request.
    fn send_one(&self, request: &R) -> impl Future<Output = Result<Self::Answer, Error>> + Send;

    /// Sends two or more together, and gives an answer to each, in their order.
    fn send_many(&self, requests: Vec<R>) -> impl Future<Output = Vec<Result<Self::Answer, Error>>> + Send;
}

/// Where requests of one kind wait that come while others are on their way. It belongs to the
/// runtime on which it was made, as the connection does over which they are sent.
///
/// A request that comes alone is sent at once by who asks, as if there were no stage, and so is one
/// that comes while the server has little to do. Nothing waits until there are more: what came
/// while enough were on their way leaves when the first of these is answered, when it is as many as
/// may be sent together, or after a millisecond.
pub(crate) struct Stage<R, A> {
    runtime: Handle,
    batching: bool,
    pace: Pace,
    state: Mutex<State<R, A>>,
}

/// How quick a server is that is near.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// How many requests it is sent alone before others are sent together: one that it works on,
    /// and some that are on their way. If it is not near, it is as many as it can answer while one
    /// is on its way: fewer would leave it idle.
    pub(crate) alone: usize,
    /// What it takes for one request, about.
    pub(crate) service: Duration,
}

struct State<R, A> {
    /// How many lanes are in use, and how many requests are on their way on them.
    lanes: usize,
    under_way: usize,
    waiting: Vec<Waiting<R, A>>,
    /// Somebody sees to it that nobody waits for too long.
    watched: bool,
    /// About how long the way to the server and back takes.
    round_trip: Duration,
    /// The shortest time of the answers since it was found out, and their number.
    shortest: Duration,
    answers: u32,
}

struct Waiting<R, A> {
    request: R,
    since: Instant,
    answer: oneshot::Sender<Result<A, Error>>,
}

impl<R, A> Stage<R, A> {
    /// A stage on the runtime that runs the caller, before a server of this pace. Without batching
    /// all requests are sent alone.
    pub(crate) fn new(batching: bool, pace: Pace) -> Self {
        let state = State {
            lanes: 0,
            under_way: 0,
            waiting: Vec::new(),
            watched: false,
            round_trip: Duration::ZERO,
            shortest: Duration::MAX,
            answers: 0,
        };
        Self { runtime: Handle::current(), batching, pace, state: Mutex::new(state) }
    }

    /// How many lanes there may be before others wait.
    fn lanes(&self, state: &State<R, A>) -> usize {
        if !self.batching {
            return usize::MAX;
        }
        let lanes = state.round_trip.as_micros() / self.pace.service.as_micros().max(1);
        usize::try_from(lanes).unwrap_or(usize::MAX).clamp(self.pace.alone, MOST_ALONE)
    }

    /// Takes note of how long an answer took for which the server had to do so many requests.
    fn note(&self, took: Duration, requests: usize) {
        let work = self.pace.service * u32::try_from(requests).unwrap_or(u32::MAX);
        let on_the_way = took.saturating_sub(work);
        let mut state = lock(&self.state);
        state.round_trip = state.round_trip.min(on_the_way);
        state.shortest = state.shortest.min(on_the_way);
        state.answers += 1;
        if state.answers == WINDOW {
            state.round_trip = std::mem::replace(&mut state.shortest, Duration::MAX);
            state.answers = 0;
        }
    }
}

/// Sends a request, alone or together with others.
///
/// Cancel-safe as far as `send_one` is: a request that still waits is not sent if the future is
/// dropped, and one that was sent with others goes on without it.
pub(crate) async fn send<R, B>(sender: &Arc<B>, request: &R) -> Result<B::Answer, Error>
where
    R: Clone + Send + 'static,
    B: Batching<R>,
{
    match enter(sender, request) {
        Entered::Lane(lane) => {
            let answer = sender.send_one(request).await;
            if answer.is_ok() {
                lane.answered();
            }
            answer
        }
        // Whoever should have answered is gone, with the runtime perhaps.
        Entered::Waits(answered) => answered.await.unwrap_or_else(|_| Err(unanswered())),
    }
}

/// What becomes of a request.
enum Entered<R: Clone + Send + 'static, B: Batching<R>> {
    /// It is sent alone.
    Lane(Lane<R, B>),
    /// It is sent with others, and answered here.
    Waits(oneshot::Receiver<Result<B::Answer, Error>>),
}

/// Has a request wait, unless it can be sent alone.
fn enter<R, B>(sender: &Arc<B>, request: &R) -> Entered<R, B>
where
    R: Clone + Send + 'static,
    B: Batching<R>,
{
    let stage = sender.stage();
    let mut state = lock(&stage.state);
    if state.lanes < stage.lanes(&state) {
        let numbers = state.begin(1);
        return Entered::Lane(Lane::new(sender, numbers));
    }
    let (answer, answered) = oneshot::channel();
    state.waiting.push(Waiting { request: request.clone(), since: Instant::now(), answer });
    let full = (state.waiting.len() >= MOST_TOGETHER).then(|| state.begin_all());
    let watched = full.is_some() || std::mem::replace(&mut state.watched, true);
    // A runtime that is shutting down drops new tasks at once, and they take the same lock.
    drop(state);
    if let Some((waiting, numbers)) = full {
        Lane::new(sender, numbers).follow(waiting);
    }
    if !watched {
        stage.runtime.spawn(watch(sender.clone()));
    }
    Entered::Waits(answered)
}

/// How many requests are sent on a lane, and how many are on their way then.
#[derive(Clone, Copy)]
struct Numbers {
    requests: usize,
    under_way: usize,
}

impl<R, A> State<R, A> {
    /// Begins one lane more.
    fn begin(&mut self, requests: usize) -> Numbers {
        self.lanes += 1;
        self.under_way += requests;
        Numbers { requests, under_way: self.under_way }
    }

    /// Begins one for all that wait.
    fn begin_all(&mut self) -> (Vec<Waiting<R, A>>, Numbers) {
        let waiting = std::mem::take(&mut self.waiting);
        let numbers = self.begin(waiting.len());
        (waiting, numbers)
    }
}

/// One request that is on its way, or several that were sent together. When they are answered or
/// given up, those that came in the meantime follow.
struct Lane<R: Clone + Send + 'static, B: Batching<R>> {
    sender: Arc<B>,
    numbers: Numbers,
    since: Instant,
    of: std::marker::PhantomData<fn(R)>,
}

impl<R: Clone + Send + 'static, B: Batching<R>> Lane<R, B> {
    fn new(sender: &Arc<B>, numbers: Numbers) -> Self {
        Self { sender: sender.clone(), numbers, since: Instant::now(), of: std::marker::PhantomData }
    }

    /// Takes note of how long it took.
    fn answered(&self) {
        self.sender.stage().note(self.since.elapsed(), self.numbers.under_way);
    }

    /// Sends what has waited.
    fn follow(self, waiting: Vec<Waiting<R, B::Answer>>) {
        let runtime = self.sender.stage().runtime.clone();
        // A task of its own: the future of a caller may be dropped, or not be polled for long.
        runtime.spawn(async move {
            self.send(waiting).await;
            drop(self);
        });
    }

    async fn send(&self, waiting: Vec<Waiting<R, B::Answer>>) {
        let wanted = waiting.into_iter().filter(|waiting| !waiting.answer.is_closed());
        let (requests, answers): (Vec<_>, Vec<_>) = wanted.map(|waiting| (waiting.request, waiting.answer)).unzip();
        let outcomes = match &requests[..] {
            [] => return,
            [request] => vec![self.sender.send_one(request).await],
            _ => self.sender.send_many(requests).await,
        };
        if outcomes.iter().any(Result::is_ok) {
            self.answered();
        }
        for (answer, outcome) in answers.into_iter().zip(outcomes) {
            // The caller may be gone.
            let _ = answer.send(outcome);
        }
    }
}

impl<R: Clone + Send + 'static, B: Batching<R>> Drop for Lane<R, B> {
    fn drop(&mut self) {
        let next = {
            let mut state = lock(&self.sender.stage().state);
            state.lanes -= 1;
            state.under_way -= self.numbers.requests;
            (!state.waiting.is_empty()).then(|| state.begin_all())
        };
        if let Some((waiting, numbers)) = next {
            Self::new(&self.sender, numbers).follow(waiting);
        }
    }
}

/// Sends what has waited long enough, until nothing waits.
async fn watch<R: Clone + Send + 'static, B: Batching<R>>(sender: Arc<B>) {
    let next = |state: &mut State<R, B::Answer>| match state.waiting.first().map(|oldest| oldest.since + PATIENCE) {
        None => {
            state.watched = false;
            Next::Nothing
        }
        Some(due) if due <= Instant::now() => {
            let (waiting, numbers) = state.begin_all();
            Next::Due(waiting, numbers)
        }
        Some(due) => Next::At(due),
    };
    loop {
        let next = next(&mut lock(&sender.stage().state));
        match next {
            Next::Nothing => return,
            Next::Due(waiting, numbers) => Lane::new(&sender, numbers).follow(waiting),
            Next::At(due) => tokio::time::sleep_until(due).await,
        }
    }
}

/// What whoever watches has to do.
enum Next<R, A> {
    Nothing,
    At(Instant),
    Due(Vec<Waiting<R, A>>, Numbers),
}

fn unanswered() -> Error {
    Error::new(ErrorCode::ServiceUnavailable, "the request was given up before it was answered").with_outcome_unknown()
}

impl<R, A> std::fmt::Debug for Stage<R, A> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = lock(&self.state);
        let (under_way, waiting) = (state.under_way, state.waiting.len());
        f.debug_struct("Stage").field("under_way", &under_way).field("waiting", &waiting).finish()
    }
}

#[cfg(test)]
#[path = "stage/tests.rs"]
mod tests;
