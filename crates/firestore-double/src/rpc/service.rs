use std::convert::Infallible;
use std::marker::PhantomData;
use std::sync::Arc;
use std::task::{Context, Poll};

use googleapis_tonic_google_firestore_v1::google::firestore::v1::{
    BatchGetDocumentsRequest, BatchWriteRequest, BeginTransactionRequest, CommitRequest, GetDocumentRequest,
    ListenRequest, ListenResponse, RollbackRequest, RunAggregationQueryRequest, RunQueryRequest,
};
use tokio_stream::Iter;
use tonic::body::Body;
use tonic::codegen::{BoxFuture, Service, http};
use tonic::server::{Grpc, ServerStreamingService};
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;

use super::Rpc;
use crate::connections::ConnectionId;
use crate::faults::Moment;
use crate::listen::ListenService;
use crate::server::{Call, Server};

/// The largest request, as documented.
const LARGEST_REQUEST: usize = 10 << 20;

/// Gives every call to whoever answers it.
#[derive(Clone, Debug)]
pub(crate) struct FirestoreService {
    server: Arc<Server>,
}

impl FirestoreService {
    pub(crate) fn new(server: Arc<Server>) -> Self {
        Self { server }
    }

    async fn dispatch(self, request: http::Request<Body>) -> http::Response<Body> {
        let path = request.uri().path().to_owned();
        match path.strip_prefix("/google.firestore.v1.Firestore/").unwrap_or_default() {
            BatchGetDocumentsRequest::NAME => self.answer::<BatchGetDocumentsRequest>(request).await,
            GetDocumentRequest::NAME => self.answer::<GetDocumentRequest>(request).await,
            RunQueryRequest::NAME => self.answer::<RunQueryRequest>(request).await,
            RunAggregationQueryRequest::NAME => self.answer::<RunAggregationQueryRequest>(request).await,
            BeginTransactionRequest::NAME => self.answer::<BeginTransactionRequest>(request).await,
            CommitRequest::NAME => self.answer::<CommitRequest>(request).await,
            BatchWriteRequest::NAME => self.answer::<BatchWriteRequest>(request).await,
            RollbackRequest::NAME => self.answer::<RollbackRequest>(request).await,
            ListenService::NAME => {
                let codec = ProstCodec::<ListenResponse, ListenRequest>::default();
                Grpc::new(codec).streaming(ListenService::new(self.server), request).await
            }
            other => Status::unimplemented(format!("firestore-double does not know {other}")).into_http(),
        }
    }

    async fn answer<R: Rpc>(self, request: http::Request<Body>) -> http::Response<Body> {
        let codec = ProstCodec::<R::Response, R>::default();
        let mut grpc = Grpc::new(codec).max_decoding_message_size(LARGEST_REQUEST);
        grpc.server_streaming(Answer { server: self.server, request: PhantomData }, request).await
    }
}

impl Service<http::Request<Body>> for FirestoreService {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Self::Error>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let service = self.clone();
        Box::pin(async move { Ok(service.dispatch(request).await) })
    }
}

/// Answers requests of one kind.
struct Answer<R> {
    server: Arc<Server>,
    request: PhantomData<R>,
}

impl<R: Rpc> ServerStreamingService<R> for Answer<R> {
    type Response = R::Response;
    type ResponseStream = Iter<std::vec::IntoIter<Result<R::Response, Status>>>;
    type Future = BoxFuture<Response<Self::ResponseStream>, Status>;

    fn call(&mut self, request: Request<R>) -> Self::Future {
        let server = Arc::clone(&self.server);
        Box::pin(async move {
            let answers = answer(&server, request).await?;
            Ok(Response::new(tokio_stream::iter(answers.into_iter().map(Ok).collect::<Vec<_>>())))
        })
    }
}

/// What every call has in common: it is counted, allowed, and can go wrong before and after.
async fn answer<R: Rpc>(server: &Server, request: Request<R>) -> Result<Vec<R::Response>, Status> {
    server.engine.state().counts.add_call(R::NAME);
    let connection = request.extensions().get::<ConnectionId>().copied();
    let bytes = request.get_ref().encode_to_vec();
    let call = Call { method: R::NAME, request: &bytes, connection };
    server.fault(&call, Moment::Before).await?;
    server.access.check(request.metadata(), request.get_ref().need())?;
    server.databases.check(&request.get_ref().database()?)?;
    let responses = request.into_inner().run(server).await?;
    server.fault(&call, Moment::After).await?;
    Ok(responses)
}
