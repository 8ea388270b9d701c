//! What the tests of this store share.

use leasehold::redis::Redis;
use test_servers::Redis as Server;

pub(crate) async fn connect(server: &Server) -> Redis {
    Redis::connect(&server.url()).await.unwrap()
}
