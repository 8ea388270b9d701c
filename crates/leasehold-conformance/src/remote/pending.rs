use std::collections::HashMap;

use leasehold::Error;
use leasehold::backend::Publisher;
use tokio::sync::oneshot;

use super::wire::{Answer, Reply, Said};

/// Why there will be no more answers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gone(pub(super) &'static str);

/// Who waits for what from the other process.
#[derive(Default)]
pub(super) struct Pending {
    calls: HashMap<u64, oneshot::Sender<Result<Answer, Error>>>,
    subscriptions: HashMap<u64, Publisher>,
    gone: Option<Gone>,
}

impl Pending {
    /// Waits for the answer to a call that is about to be sent.
    pub(super) fn await_answer(&mut self, id: u64) -> Result<oneshot::Receiver<Result<Answer, Error>>, Gone> {
        if let Some(gone) = self.gone {
            return Err(gone);
        }
        let (sender, receiver) = oneshot::channel();
        self.calls.insert(id, sender);
        Ok(receiver)
    }

    /// Passes the events of a subscription on. Before it is asked for, so that none is missed.
    pub(super) fn listen(&mut self, id: u64, publisher: Publisher) {
        if self.gone.is_none() {
            self.subscriptions.insert(id, publisher);
        }
    }

    pub(super) fn forget(&mut self, id: u64) {
        self.calls.remove(&id);
        self.subscriptions.remove(&id);
    }

    pub(super) fn deliver(&mut self, Reply { id, said }: Reply) {
        let outcome = match said {
            Said::Answer(answer) => Ok(answer),
            Said::Error(failure) => Err(failure.into()),
            Said::Event(event) => {
                if let Some(publisher) = self.subscriptions.get(&id) {
                    publisher.publish(event);
                }
                return;
            }
            Said::Closed => return drop(self.subscriptions.remove(&id)),
        };
        if let Some(caller) = self.calls.remove(&id) {
            // Whoever asked may have stopped waiting.
            let _ = caller.send(outcome);
        }
    }

    /// Ends all that waits. The first reason counts, because the others follow from it.
    pub(super) fn close(&mut self, why: &'static str) {
        self.gone.get_or_insert(Gone(why));
        self.calls.clear();
        self.subscriptions.clear();
    }

    pub(super) fn why_gone(&self) -> Gone {
        self.gone.unwrap_or(Gone(ENDED))
    }
}

pub(super) const ENDED: &str = "the process of the store has ended";
