use googleapis_tonic_google_firestore_v1::google::firestore::v1::{
    BatchWriteRequest, BatchWriteResponse, BeginTransactionRequest, BeginTransactionResponse, CommitRequest,
    CommitResponse, RollbackRequest, WriteResult,
};
use googleapis_tonic_google_firestore_v1::google::rpc;
use tonic::Status;

use super::{Rpc, is_read_only, need_of};
use crate::access::Need;
use crate::data::write::{each_once, validate};
use crate::name::Database;
use crate::server::Server;

/// The most writes of one batch, as documented.
const MOST_WRITES: usize = 500;

impl Rpc for BeginTransactionRequest {
    const NAME: &'static str = "BeginTransaction";

    type Response = BeginTransactionResponse;

    fn database(&self) -> Result<Database, Status> {
        Database::of(&self.database)
    }

    fn need(&self) -> Need {
        need_of(self.options.as_ref())
    }

    async fn run(self, server: &Server) -> Result<Vec<BeginTransactionResponse>, Status> {
        let transaction = server.engine.begin(is_read_only(self.options.as_ref()));
        Ok(vec![BeginTransactionResponse { transaction }])
    }
}

impl Rpc for CommitRequest {
    const NAME: &'static str = "Commit";

    type Response = CommitResponse;

    fn database(&self) -> Result<Database, Status> {
        Database::of(&self.database)
    }

    fn need(&self) -> Need {
        Need::Write
    }

    async fn run(self, server: &Server) -> Result<Vec<CommitResponse>, Status> {
        validate(&self.database()?, &self.writes)?;
        Ok(vec![server.engine.commit(&self.transaction, &self.writes, true).await?])
    }
}

/// Writes that have nothing to do with each other: each is one commit, and fails by itself.
impl Rpc for BatchWriteRequest {
    const NAME: &'static str = "BatchWrite";

    type Response = BatchWriteResponse;

    fn database(&self) -> Result<Database, Status> {
        Database::of(&self.database)
    }

    fn need(&self) -> Need {
        Need::Write
    }

    async fn run(self, server: &Server) -> Result<Vec<BatchWriteResponse>, Status> {
        if self.writes.len() > MOST_WRITES {
            return Err(Status::invalid_argument(format!("At most {MOST_WRITES} writes are allowed.")));
        }
        validate(&self.database()?, &self.writes)?;
        each_once(&self.writes)?;
        let mut response = BatchWriteResponse::default();
        for write in &self.writes {
            let (result, status) = match server.engine.commit(&[], std::slice::from_ref(write), true).await {
                Ok(done) => (done.write_results.into_iter().next().unwrap_or_default(), rpc::Status::default()),
                Err(status) => {
                    let (code, message) = (status.code().into(), status.message().to_owned());
                    (WriteResult::default(), rpc::Status { code, message, ..rpc::Status::default() })
                }
            };
            response.write_results.push(result);
            response.status.push(status);
        }
        Ok(vec![response])
    }
}

impl Rpc for RollbackRequest {
    const NAME: &'static str = "Rollback";

    type Response = ();

    fn database(&self) -> Result<Database, Status> {
        Database::of(&self.database)
    }

    fn need(&self) -> Need {
        Need::Read
    }

    async fn run(self, server: &Server) -> Result<Vec<()>, Status> {
        server.engine.roll_back(&self.transaction)?;
        Ok(vec![()])
    }
}
