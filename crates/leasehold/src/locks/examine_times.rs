use std::time::Duration;

use super::Locks;
use crate::{Check, Error, ListRequest, TIME_TOLERANCE, Timestamp, Verdict};

/// The most locks that are looked at: enough to notice, few enough not to be a burden.
const MOST: usize = 10_000;

impl Locks {
    /// Looks for locks that were taken in the future: the store's clock was set back since then, so
    /// they end that much later than they should, if nobody releases them.
    pub(super) async fn examine_times(&self) -> Result<Check, Error> {
        let core = &self.inner.core;
        let (mut looked_at, mut ahead, mut furthest) = (0, 0, Duration::ZERO);
        let mut request = ListRequest::new("").with_page_size(ListRequest::MAX_PAGE_SIZE);
        loop {
            let page = self.list(&request).await?;
            let now = core.store_clock.latest(core.now()).unwrap_or_else(Timestamp::now);
            for lock in &page.locks {
                let by = lock.info.acquired_at.since(now);
                if by > TIME_TOLERANCE {
                    (ahead, furthest) = (ahead + 1, furthest.max(by));
                }
            }
            looked_at += page.locks.len();
            match page.next.filter(|_| looked_at < MOST) {
                Some(next) => request = request.with_cursor(next),
                None => break,
            }
        }
        if ahead == 0 {
            return Ok(Check::new("lock times", Verdict::Ok, "no lock was taken in the future"));
        }
        let detail = format!(
            "{ahead} of {looked_at} locks were taken up to {} s in the future: the store's clock was set back. They may stay \
             that much too long: end those whose holders are gone with `leasehold force-release`",
            furthest.as_secs()
        );
        Ok(Check::new("lock times", Verdict::Warn, detail))
    }
}
