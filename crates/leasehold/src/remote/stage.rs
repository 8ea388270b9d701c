//! Requests that come while others are on their way, and are sent together.

use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::sync::lock;
use crate::{Error, ErrorCode};

/// So many requests are on their way by themselves before others are sent together: one that the
/// server works on, and one that is on the way to it.
const LANES: usize = 2;

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
/// A request that comes alone is sent at once by who asks, as if there were no stage. Nothing waits
/// until there are more: what came while two were on their way leaves when the first of these is
/// answered, when it is as many as may be sent together, or after a millisecond.
pub(crate) struct Stage<R, A> {
    runtime: Handle,
    /// How many requests may be on their way before others wait.
    lanes: usize,
    state: Mutex<State<R, A>>,
}

struct State<R, A> {
    under_way: usize,
    waiting: Vec<Waiting<R, A>>,
    /// Somebody sees to it that nobody waits for too long.
    watched: bool,
}

struct Waiting<R, A> {
    request: R,
    since: Instant,
    answer: oneshot::Sender<Result<A, Error>>,
}

impl<R, A> Stage<R, A> {
    /// A stage on the runtime that runs the caller. Without batching all requests are sent alone.
    pub(crate) fn new(batching: bool) -> Self {
        let lanes = if batching { LANES } else { usize::MAX };
        let state = State { under_way: 0, waiting: Vec::new(), watched: false };
        Self { runtime: Handle::current(), lanes, state: Mutex::new(state) }
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
        None => {
            let _lane = Lane::of(sender);
            sender.send_one(request).await
        }
        // Whoever should have answered is gone, with the runtime perhaps.
        Some(answered) => answered.await.unwrap_or_else(|_| Err(unanswered())),
    }
}

/// Has a request wait, unless it can be sent alone.
fn enter<R, B>(sender: &Arc<B>, request: &R) -> Option<oneshot::Receiver<Result<B::Answer, Error>>>
where
    R: Clone + Send + 'static,
    B: Batching<R>,
{
    let stage = sender.stage();
    let mut state = lock(&stage.state);
    if state.under_way < stage.lanes {
        state.under_way += 1;
        return None;
    }
    let (answer, answered) = oneshot::channel();
    state.waiting.push(Waiting { request: request.clone(), since: Instant::now(), answer });
    let full = (state.waiting.len() >= MOST_TOGETHER).then(|| state.begin());
    let watched = full.is_some() || std::mem::replace(&mut state.watched, true);
    // A runtime that is shutting down drops new tasks at once, and they take the same lock.
    drop(state);
    if let Some(waiting) = full {
        Lane::of(sender).follow(waiting);
    }
    if !watched {
        stage.runtime.spawn(watch(sender.clone()));
    }
    Some(answered)
}

impl<R, A> State<R, A> {
    /// Takes all that wait, for one lane more.
    fn begin(&mut self) -> Vec<Waiting<R, A>> {
        self.under_way += 1;
        std::mem::take(&mut self.waiting)
    }
}

/// One request that is on its way. When it is answered or given up, those that came in the meantime
/// follow.
struct Lane<R: Clone + Send + 'static, B: Batching<R>> {
    sender: Arc<B>,
    of: std::marker::PhantomData<fn(R)>,
}

impl<R: Clone + Send + 'static, B: Batching<R>> Lane<R, B> {
    /// Of a request that is counted already.
    fn of(sender: &Arc<B>) -> Self {
        Self { sender: sender.clone(), of: std::marker::PhantomData }
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
        for (answer, outcome) in answers.into_iter().zip(outcomes) {
            // The caller may be gone.
            let _ = answer.send(outcome);
        }
    }
}

impl<R: Clone + Send + 'static, B: Batching<R>> Drop for Lane<R, B> {
    fn drop(&mut self) {
        let waiting = {
            let mut state = lock(&self.sender.stage().state);
            if state.waiting.is_empty() {
                state.under_way -= 1;
            }
            std::mem::take(&mut state.waiting)
        };
        if !waiting.is_empty() {
            Self::of(&self.sender).follow(waiting);
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
        Some(due) if due <= Instant::now() => Next::Due(state.begin()),
        Some(due) => Next::At(due),
    };
    loop {
        let next = next(&mut lock(&sender.stage().state));
        match next {
            Next::Nothing => return,
            Next::Due(waiting) => Lane::of(&sender).follow(waiting),
            Next::At(due) => tokio::time::sleep_until(due).await,
        }
    }
}

/// What whoever watches has to do.
enum Next<R, A> {
    Nothing,
    At(Instant),
    Due(Vec<Waiting<R, A>>),
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
