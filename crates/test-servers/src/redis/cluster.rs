use super::{Redis, find_field};
use crate::deadline::eventually;

/// Slots of a cluster, by Redis' definition.
const SLOTS: u16 = 16_384;

/// Three nodes that share all slots, without replicas. A key's slot decides which of them has it.
#[derive(Debug)]
pub struct RedisCluster {
    nodes: Vec<Redis>,
    ids: Vec<String>,
}

impl RedisCluster {
    /// Starts the nodes and makes them one. When this returns, all of them take commands and agree
    /// on who has which slot. It takes two seconds: that long a fresh node waits before it takes
    /// commands, whatever the others say.
    ///
    /// # Panics
    ///
    /// As [`Redis::start`], or if the nodes do not get together.
    #[must_use]
    #[track_caller]
    pub fn start() -> Self {
        let nodes: Vec<_> = (0..3).map(|_| Redis::builder().cluster().start()).collect();
        let ids = nodes.iter().map(|node| node.cli(&["CLUSTER", "MYID"])).collect();
        let bounds = [0, SLOTS / 3, 2 * SLOTS / 3, SLOTS];
        for (index, node) in nodes.iter().enumerate() {
            let (first, last) = (bounds[index].to_string(), (bounds[index + 1] - 1).to_string());
            // Nodes with the same epoch would sort it out among themselves, but that takes time.
            node.order(&["CLUSTER", "SET-CONFIG-EPOCH", &(index + 1).to_string()]);
            node.order(&["CLUSTER", "ADDSLOTSRANGE", &first, &last]);
        }
        let cluster = Self { nodes, ids };
        // All pairs, as gossip takes seconds to get around.
        for (index, node) in cluster.nodes.iter().enumerate() {
            for other in &cluster.nodes[index + 1..] {
                let bus = other.bus.as_ref().map(|bus| bus.number().to_string()).unwrap_or_default();
                node.order(&["CLUSTER", "MEET", "127.0.0.1", &other.port().to_string(), &bus]);
            }
        }
        eventually("the nodes to become a cluster", || cluster.nodes.iter().all(|node| cluster.is_ready(node)));
        cluster
    }

    /// The URL of the first node. A client finds the others by itself.
    #[must_use]
    pub fn url(&self) -> String {
        self.nodes[0].url()
    }

    /// The URLs of all nodes.
    #[must_use]
    pub fn urls(&self) -> Vec<String> {
        self.nodes.iter().map(Redis::url).collect()
    }

    /// The nodes. Elsewhere they are meant by their index here.
    #[must_use]
    pub fn nodes(&self) -> &[Redis] {
        &self.nodes
    }

    /// The slot of a key.
    ///
    /// # Panics
    ///
    /// If the first node does not answer.
    #[must_use]
    #[track_caller]
    pub fn slot_of(&self, key: &str) -> u16 {
        let slot = self.nodes[0].cli(&["CLUSTER", "KEYSLOT", key]);
        slot.parse().unwrap_or_else(|_| panic!("no slot: {slot}"))
    }

    /// The node that has a slot, in the opinion of the first node that answers.
    ///
    /// # Panics
    ///
    /// If no node answers or knows.
    #[must_use]
    #[track_caller]
    pub fn slot_owner(&self, slot: u16) -> usize {
        let owner = self.nodes.iter().find_map(|node| self.slot_owner_seen_by(node, slot));
        owner.unwrap_or_else(|| panic!("nobody has slot {slot}"))
    }

    /// Moves a slot with its keys to another node. When this returns, all nodes know.
    ///
    /// # Panics
    ///
    /// If a node does not answer or refuses.
    #[track_caller]
    pub fn move_slot(&self, slot: u16, to: usize) {
        let slot_move = self.begin_move(slot, to);
        slot_move.move_keys();
        slot_move.finish();
    }

    /// Begins to move a slot to another node, and leaves it at that: the old node answers for keys
    /// that it still has, and for others sends clients on with `ASK`.
    ///
    /// # Panics
    ///
    /// If a node does not answer or refuses, or already has the slot.
    #[track_caller]
    pub fn begin_move(&self, slot: u16, to: usize) -> SlotMove<'_> {
        let from = self.slot_owner(slot);
        assert_ne!(from, to, "node {to} has slot {slot} already");
        let number = slot.to_string();
        self.nodes[to].order(&["CLUSTER", "SETSLOT", &number, "IMPORTING", &self.ids[from]]);
        self.nodes[from].order(&["CLUSTER", "SETSLOT", &number, "MIGRATING", &self.ids[to]]);
        SlotMove { cluster: self, slot, from, to }
    }

    fn is_ready(&self, node: &Redis) -> bool {
        let info = node.cli(&["CLUSTER", "INFO"]);
        let is = |field, value: &str| find_field(&info, field).is_some_and(|found| found == value);
        is("cluster_state", "ok")
            && is("cluster_slots_ok", "16384")
            && is("cluster_known_nodes", "3")
            && [0, SLOTS / 2, SLOTS - 1]
                .iter()
                .enumerate()
                .all(|(owner, slot)| self.slot_owner_seen_by(node, *slot) == Some(owner))
    }

    fn slot_owner_seen_by(&self, node: &Redis, slot: u16) -> Option<usize> {
        let lines = node.command(&["CLUSTER", "NODES"]).ok()?.into_raw();
        let line = lines.lines().find(|line| line.split(' ').skip(8).any(|slots| range_contains(slots, slot)))?;
        self.ids.iter().position(|id| line.starts_with(id))
    }
}

/// A slot on its way from one node to another. Dropping it leaves the slot where it is.
#[derive(Debug)]
pub struct SlotMove<'a> {
    cluster: &'a RedisCluster,
    slot: u16,
    from: usize,
    to: usize,
}

impl SlotMove<'_> {
    /// Moves the keys of the slot. The slot stays: the old node now sends clients on with `ASK` for
    /// all of them.
    ///
    /// # Panics
    ///
    /// If a node does not answer or refuses.
    #[track_caller]
    pub fn move_keys(&self) {
        let (from, to) = (&self.cluster.nodes[self.from], &self.cluster.nodes[self.to]);
        let (slot, port) = (self.slot.to_string(), to.port().to_string());
        loop {
            let keys = from.cli(&["CLUSTER", "GETKEYSINSLOT", &slot, "100"]);
            if keys.is_empty() {
                return;
            }
            let mut migrate = vec!["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "KEYS"];
            migrate.extend(keys.lines());
            from.order(&migrate);
        }
    }

    /// Gives the slot to its new node. When this returns, all nodes know.
    ///
    /// # Panics
    ///
    /// If a node does not answer or refuses, as it does while it still has keys of the slot.
    #[track_caller]
    pub fn finish(self) {
        let Self { cluster, slot, from, to } = self;
        let others = (0..cluster.nodes.len()).filter(|index| *index != to && *index != from);
        // The new owner first: it takes a higher epoch, so that nobody can take the old one's word
        // for it.
        for index in [to, from].into_iter().chain(others) {
            cluster.nodes[index].order(&["CLUSTER", "SETSLOT", &slot.to_string(), "NODE", &cluster.ids[to]]);
        }
        eventually("all nodes to know of the move", || {
            cluster.nodes.iter().all(|node| cluster.slot_owner_seen_by(node, slot) == Some(to))
        });
    }

    /// Calls the move off. Keys that were moved stay where they are, out of reach: use it before
    /// [`move_keys`](Self::move_keys).
    ///
    /// # Panics
    ///
    /// If a node does not answer or refuses.
    #[track_caller]
    pub fn abandon(self) {
        for index in [self.from, self.to] {
            self.cluster.nodes[index].order(&["CLUSTER", "SETSLOT", &self.slot.to_string(), "STABLE"]);
        }
    }
}

/// Whether `7` or `5-9`, as `CLUSTER NODES` lists them, contains a slot. Slots on their way are in
/// brackets.
fn range_contains(slots: &str, slot: u16) -> bool {
    let (first, last) = slots.split_once('-').unwrap_or((slots, slots));
    matches!((first.parse::<u16>(), last.parse::<u16>()), (Ok(first), Ok(last)) if (first..=last).contains(&slot))
}
