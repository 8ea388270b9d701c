//! Burying what others left to us.

use std::pin::pin;

use rustix::process::{WaitOptions, wait};
use tokio::signal::unix::{self, SignalKind};

/// Does `work` while no command runs. The first process of a container, and whoever adopts what a
/// command left running, gets children that it never started: they stay in the table of processes
/// until somebody asks how they ended. Cancel-safe if `work` is.
pub(crate) async fn reaping<T>(work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    let Ok(mut children) = unix::signal(SignalKind::child()) else { return work.await };
    loop {
        while let Ok(Some(_)) = wait(WaitOptions::NOHANG) {}
        tokio::select! {
            done = &mut work => return done,
            _ = children.recv() => {}
        }
    }
}
