//! Cases in which something ends by itself before long.

use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::task::Poll;
use std::time::{Duration, Instant};

use super::Run;
use super::context::Context;

const ATTEMPTS: u32 = 3;

/// Runs a case that says something only if it is over within `time`. What fails after that is tried
/// again: the machine was too slow.
pub(super) async fn run(case: Run, context: &Context, time: Duration) {
    for attempt in 1..=ATTEMPTS {
        let context = context.attempt(attempt);
        let begun = Instant::now();
        let Err(panic) = caught(case(&context)).await else { return };
        // With something to spare, because the store's clock is another one.
        if begun.elapsed() < time * 3 / 4 || attempt == ATTEMPTS {
            resume_unwind(panic);
        }
        eprintln!("attempt {attempt} failed and took {:?}; trying again", begun.elapsed());
    }
}

async fn caught(mut case: Pin<Box<dyn Future<Output = ()> + Send + '_>>) -> std::thread::Result<()> {
    poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| case.as_mut().poll(cx))) {
        Ok(Poll::Pending) => Poll::Pending,
        Ok(Poll::Ready(())) => Poll::Ready(Ok(())),
        Err(panic) => Poll::Ready(Err(panic)),
    })
    .await
}
