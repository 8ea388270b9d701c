//! A cluster is whole when it is started, and its slots move.

use test_servers::RedisCluster;

#[test]
fn every_node_takes_commands_and_knows_the_others() {
    let cluster = RedisCluster::start();
    assert_eq!(cluster.urls().len(), 3);
    assert_eq!(cluster.url(), cluster.urls()[0]);
    for key in ["a", "b", "c", "d", "e"] {
        let owner = cluster.slot_owner(cluster.slot_of(key));
        for (index, node) in cluster.nodes().iter().enumerate() {
            let answer = node.cli(&["SET", key, "value"]);
            if index == owner {
                assert_eq!(answer, "OK");
            } else {
                let moved = format!("MOVED {} 127.0.0.1:{}", cluster.slot_of(key), cluster.nodes()[owner].port());
                assert_eq!(answer, moved);
            }
        }
    }
}

#[test]
fn a_slot_moves_with_its_keys_and_can_be_left_half_way() {
    let cluster = RedisCluster::start();
    let slot = cluster.slot_of("{tag}");
    let from = cluster.slot_owner(slot);
    let to = (from + 1) % 3;
    let (old, new) = (&cluster.nodes()[from], &cluster.nodes()[to]);
    let keys: Vec<_> = (0..250).map(|number| format!("{{tag}}:{number}")).collect();
    for key in &keys {
        assert_eq!(old.cli(&["SET", key, "value"]), "OK");
    }
    let ask = format!("ASK {slot} 127.0.0.1:{}", new.port());
    let moved = format!("MOVED {slot} 127.0.0.1:{}", new.port());

    cluster.begin_move(slot, to).abandon();
    assert_eq!(old.cli(&["GET", "{tag}:none"]), "");

    let slot_move = cluster.begin_move(slot, to);
    assert_eq!(old.cli(&["GET", &keys[0]]), "value");
    assert_eq!(old.cli(&["GET", "{tag}:none"]), ask);

    slot_move.move_keys();
    assert_eq!(old.cli(&["GET", &keys[0]]), ask);
    assert_eq!(new.cli(&["GET", &keys[0]]), format!("MOVED {slot} 127.0.0.1:{}", old.port()));

    slot_move.finish();
    assert_eq!(cluster.slot_owner(slot), to);
    assert_eq!(old.cli(&["GET", &keys[0]]), moved);
    for key in &keys {
        assert_eq!(new.cli(&["GET", key]), "value");
    }

    cluster.move_slot(slot, from);
    assert_eq!(old.cli(&["GET", &keys[0]]), "value");
}
