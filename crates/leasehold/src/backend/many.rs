use std::pin::Pin;
use std::task::Poll;

/// The most locks that one call of [`extend_many`](super::Backend::extend_many) or
/// [`release_many`](super::Backend::release_many) is about. A store is busy with one such call for
/// about a millisecond; larger ones would only keep others waiting.
pub const MOST_AT_ONCE: usize = 64;

/// The most locks that one call of [`acquire_all`](super::Backend::acquire_all) is about.
pub const MOST_KEYS: usize = 32;

/// Drives all calls at once, and gives their answers in the order of the calls.
pub(crate) async fn all<T>(calls: Vec<Pin<Box<dyn Future<Output = T> + Send + '_>>>) -> Vec<T> {
    let mut calls: Vec<_> = calls.into_iter().map(|call| (call, None)).collect();
    std::future::poll_fn(|cx| {
        let mut pending = false;
        for (call, answer) in &mut calls {
            if answer.is_none() {
                match call.as_mut().poll(cx) {
                    Poll::Ready(value) => *answer = Some(value),
                    Poll::Pending => pending = true,
                }
            }
        }
        if pending { Poll::Pending } else { Poll::Ready(()) }
    })
    .await;
    calls.into_iter().filter_map(|(_, answer)| answer).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test(start_paused = true)]
    async fn calls_go_on_together_and_answers_keep_their_order() {
        let begun = tokio::time::Instant::now();
        let call = |number: u64| -> Pin<Box<dyn Future<Output = u64> + Send>> {
            Box::pin(async move {
                tokio::time::sleep(Duration::from_secs(10 - number)).await;
                number
            })
        };
        assert_eq!(all((0..10).map(call).collect()).await, (0..10).collect::<Vec<_>>());
        assert_eq!(begun.elapsed(), Duration::from_secs(10));
    }
}
