//! Sentinels replace the primary, when told to and when it dies.

use test_servers::{RedisSentinel, eventually};

#[test]
fn everybody_agrees_on_the_primary() {
    let group = RedisSentinel::start();
    let master = group.master();
    assert_eq!(group.sentinel_urls().len(), 3);
    for sentinel in group.sentinels() {
        let address = sentinel.cli(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", group.master_name()]);
        assert_eq!(address, format!("127.0.0.1\n{}", master.port()));
    }
    assert_eq!(master.cli(&["SET", "key", "value"]), "OK");
    for server in group.servers() {
        eventually("the value to arrive", || server.cli(&["GET", "key"]) == "value");
    }
}

#[test]
fn a_failover_makes_a_replica_the_primary() {
    let group = RedisSentinel::start();
    let old = group.failover();
    let new = group.wait_for_new_master();
    assert_ne!(new.port(), old.port());
    assert_eq!(new.cli(&["SET", "key", "value"]), "OK");
    assert_eq!(group.master().port(), new.port());
}

#[test]
fn a_dead_primary_is_replaced_and_comes_back_as_a_replica() {
    let group = RedisSentinel::start();
    let old = group.kill_master();
    let new = group.wait_for_new_master();
    assert_ne!(new.port(), old.port());
    assert_eq!(new.cli(&["SET", "key", "value"]), "OK");
    old.restart();
    group.wait_for_demotion(old);
    eventually("the old primary to catch up", || old.cli(&["GET", "key"]) == "value");
}
