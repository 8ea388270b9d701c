//! A client that listens, and writes down what it hears in short.

use googleapis_tonic_google_firestore_v1::google::firestore::v1::listen_request::TargetChange as Request;
use googleapis_tonic_google_firestore_v1::google::firestore::v1::listen_response::ResponseType;
use googleapis_tonic_google_firestore_v1::google::firestore::v1::target::query_target::QueryType;
use googleapis_tonic_google_firestore_v1::google::firestore::v1::target::{
    DocumentsTarget, QueryTarget, ResumeType, TargetType,
};
use googleapis_tonic_google_firestore_v1::google::firestore::v1::target_change::TargetChangeType;
use googleapis_tonic_google_firestore_v1::google::firestore::v1::{
    ListenRequest, ListenResponse, StructuredQuery, Target,
};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};

use crate::common::{Client, DATABASE, DEADLINE, ROOT, name, number_in};

pub(crate) struct Listener {
    requests: mpsc::Sender<ListenRequest>,
    responses: Streaming<ListenResponse>,
    /// The last one that was heard.
    pub(crate) token: Vec<u8>,
}

pub(crate) fn documents(ids: &[&str]) -> TargetType {
    TargetType::Documents(DocumentsTarget { documents: ids.iter().map(|id| name(id)).collect() })
}

pub(crate) fn query_target(query: StructuredQuery) -> TargetType {
    let query_type = Some(QueryType::StructuredQuery(query));
    TargetType::Query(QueryTarget { parent: ROOT.to_owned(), query_type })
}

impl Client {
    pub(crate) async fn listen(&self) -> Listener {
        let (requests, receiver) = mpsc::channel(16);
        let responses = self.0.clone().listen(ReceiverStream::new(receiver)).await.unwrap().into_inner();
        Listener { requests, responses, token: Vec::new() }
    }

    /// Listens to one thing, and returns when that is so, with all that was heard.
    pub(crate) async fn listen_to(&self, target: TargetType) -> (Listener, String) {
        let mut listener = self.listen().await;
        listener.add(1, target, None).await;
        let heard = listener.hear().await;
        (listener, heard)
    }
}

impl Listener {
    pub(crate) async fn add(&self, target_id: i32, target: TargetType, token: Option<&[u8]>) {
        let resume_type = token.map(|token| ResumeType::ResumeToken(token.to_vec()));
        let target = Target { target_id, target_type: Some(target), resume_type, ..Target::default() };
        self.request(Request::AddTarget(target)).await;
    }

    pub(crate) async fn remove(&self, target_id: i32) {
        self.request(Request::RemoveTarget(target_id)).await;
    }

    async fn request(&self, change: Request) {
        let target_change = Some(change);
        let request = ListenRequest { database: DATABASE.to_owned(), target_change, ..ListenRequest::default() };
        self.requests.send(request).await.unwrap();
    }

    /// All messages up to the next snapshot of everything, such as `+1 a=5[1] *1 .`: target 1 was
    /// added, document `a` with 5 belongs to it, it is current, and so is everything.
    pub(crate) async fn hear(&mut self) -> String {
        let mut heard = Vec::new();
        while heard.last().is_none_or(|last| last != ".") {
            heard.push(self.next().await.unwrap().unwrap());
        }
        heard.join(" ")
    }

    /// The next message, in short.
    pub(crate) async fn next(&mut self) -> Result<Option<String>, Status> {
        let response = timeout(DEADLINE, self.responses.message()).await.unwrap()?;
        Ok(response.map(|response| self.shorten(response.response_type.unwrap())))
    }

    fn shorten(&mut self, response: ResponseType) -> String {
        let id = |name: &str| name.rsplit('/').next().unwrap().to_owned();
        match response {
            ResponseType::TargetChange(change) => {
                let sign = match change.target_change_type() {
                    TargetChangeType::Add => "+",
                    TargetChangeType::Remove if change.cause.is_some() => "!",
                    TargetChangeType::Remove => "-",
                    TargetChangeType::Current => "*",
                    TargetChangeType::Reset => "reset",
                    TargetChangeType::NoChange => {
                        assert!(change.target_ids.is_empty() && change.read_time.is_some());
                        self.token = change.resume_token;
                        return ".".to_owned();
                    }
                };
                format!("{sign}{}", change.target_ids[0])
            }
            ResponseType::DocumentChange(change) => {
                let document = change.document.unwrap();
                let number = number_in(&document, "n");
                let removed = if change.removed_target_ids.is_empty() { "" } else { " and removed" };
                format!("{}={number}{:?}{removed}", id(&document.name), change.target_ids)
            }
            ResponseType::DocumentDelete(delete) => {
                format!("{} deleted{:?}", id(&delete.document), delete.removed_target_ids)
            }
            ResponseType::DocumentRemove(remove) => {
                format!("{} removed{:?}", id(&remove.document), remove.removed_target_ids)
            }
            ResponseType::Filter(_) => "filter".to_owned(),
        }
    }
}
