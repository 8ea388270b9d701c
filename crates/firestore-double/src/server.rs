use std::future::pending;
use std::sync::Arc;

use tokio::time::sleep;
use tonic::Status;

use crate::access::Access;
use crate::connections::{ConnectionId, Connections};
use crate::databases::Databases;
use crate::engine::Engine;
use crate::faults::{Action, Faults, Moment, requested};
use crate::listen::Listeners;

/// All that calls and control commands share.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) engine: Engine,
    pub(crate) access: Access,
    pub(crate) databases: Databases,
    pub(crate) faults: Faults,
    pub(crate) connections: Arc<Connections>,
    pub(crate) listeners: Listeners,
}

/// One call, as far as faults care.
#[derive(Debug)]
pub(crate) struct Call<'a> {
    pub(crate) method: &'static str,
    pub(crate) request: &'a [u8],
    pub(crate) connection: Option<ConnectionId>,
}

impl Server {
    /// Lets go wrong what a test wants to go wrong at this moment of a call.
    pub(crate) async fn fault(&self, call: &Call<'_>, moment: Moment) -> Result<(), Status> {
        for action in self.faults.take(call.method, moment, call.request) {
            match action {
                Action::Delay(duration) => sleep(duration).await,
                Action::Fail(code, message) => return Err(requested(code, &message)),
                Action::Silence => pending().await,
                Action::CloseConnection => {
                    if let Some(connection) = call.connection {
                        self.connections.close(connection);
                    }
                    pending::<()>().await;
                }
            }
        }
        Ok(())
    }
}
