//! What was answered survives a crash of the server, whatever the server's defaults.

use leasehold::backend::{Backend, Extend, LookupBy, Release};
use test_servers::Postgres as Server;
use test_support::postgres::{number, session};
use test_support::{granted, request, ttl};

use crate::support::{connect, migrated};

/// Commits are answered long before they are written.
fn careless() -> Server {
    Server::with(&[("synchronous_commit", "off"), ("wal_writer_delay", "10s")])
}

#[tokio::test]
async fn a_crash_right_after_an_answer_forgets_nothing_even_if_synchronous_commit_is_off() {
    let server = careless();
    migrated(&server).await;
    server.sql("CREATE TABLE careless (round integer)");
    let mut forgotten = 0;
    let crash = async |round: u64| {
        // What others write without our care, a moment later, shows that the crash is one.
        session(&server).await.execute(&format!("INSERT INTO careless VALUES ({round})"), &[]).await.unwrap();
        server.kill();
        server.restart();
        1 - number(&server, &format!("SELECT count(*) FROM careless WHERE round = {round}"))
    };
    for round in 0..2 {
        let store = connect(&server).await;
        let (mine, other) = (request(&format!("order:{round}")), request(&format!("other:{round}")));
        granted(&store, &other).await;
        let grant = granted(&store, &mine).await;
        forgotten += crash(round * 10).await;

        let store = connect(&server).await;
        let kept = store.lookup(LookupBy::Key(&mine.key)).await.unwrap().expect("an acquire was forgotten");
        assert_eq!((kept.lock_id, kept.fence, kept.expires_at), (mine.lock_id, grant.fence, grant.expires_at));
        let Extend::Extended { expires_at } = store.extend(&mine.lock_id, ttl(90_000)).await.unwrap() else { panic!() };
        forgotten += crash(round * 10 + 1).await;

        let store = connect(&server).await;
        let kept = store.lookup(LookupBy::Key(&mine.key)).await.unwrap().unwrap();
        assert_eq!(kept.expires_at, expires_at, "an extend was forgotten");
        assert_eq!(store.release(&mine.lock_id).await.unwrap(), Release::Released);
        forgotten += crash(round * 10 + 2).await;

        let store = connect(&server).await;
        assert!(!store.is_locked(&mine.key).await.unwrap(), "a release was forgotten");
        assert!(!store.force_release(&other.key, None).await.unwrap().is_empty());
        forgotten += crash(round * 10 + 3).await;

        let store = connect(&server).await;
        assert!(!store.is_locked(&other.key).await.unwrap(), "a forced release was forgotten");
        assert!(granted(&store, &mine).await.fence > grant.fence);
    }
    assert!(forgotten > 0, "no crash ever lost what was not on disk");
}
