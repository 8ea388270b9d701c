use std::sync::Arc;

use googleapis_tonic_google_firestore_v1::google::firestore::v1::{ListenRequest, ListenResponse};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::codegen::BoxFuture;
use tonic::server::StreamingService;
use tonic::{Request, Response, Status, Streaming};

use super::stream::ListenStream;
use crate::access::Need;
use crate::connections::ConnectionId;
use crate::server::Server;

/// Messages that wait for a client which reads slowly. What comes later waits in the history.
const QUEUE: usize = 64;

/// Opens streams.
#[derive(Debug)]
pub(crate) struct ListenService {
    server: Arc<Server>,
}

impl ListenService {
    pub(crate) const NAME: &'static str = "Listen";

    pub(crate) fn new(server: Arc<Server>) -> Self {
        Self { server }
    }
}

impl StreamingService<ListenRequest> for ListenService {
    type Response = ListenResponse;
    type ResponseStream = ReceiverStream<Result<ListenResponse, Status>>;
    type Future = BoxFuture<Response<Self::ResponseStream>, Status>;

    fn call(&mut self, request: Request<Streaming<ListenRequest>>) -> Self::Future {
        let server = Arc::clone(&self.server);
        Box::pin(async move {
            server.engine.state().counts.add_call(Self::NAME);
            server.access.check(request.metadata(), Need::Read)?;
            let connection = request.extensions().get::<ConnectionId>().copied();
            let (sender, receiver) = mpsc::channel(QUEUE);
            let stream = ListenStream::new(server, sender, connection);
            tokio::spawn(stream.run(request.into_inner()));
            Ok(Response::new(ReceiverStream::new(receiver)))
        })
    }
}
