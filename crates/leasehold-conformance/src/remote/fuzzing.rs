//! What the fuzz target of the folder `fuzz` checks of the pipes. Not for users.

use std::io::Cursor;
use std::sync::Arc;

use leasehold::fuzzing::Target;
use leasehold::memory::Memory;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::serve::serve_on;
use super::wire::{Reply, Request};

/// Lines that go over the pipes between a peer and its store.
pub const PEER_PROTOCOL: Target = Target {
    name: "peer_protocol",
    run: peer_protocol,
    corpus: &[
        b"{\"id\":1,\"call\":\"capabilities\"}\n{\"id\":2,\"call\":{\"is_locked\":\"a\"}}\n",
        b"{\"id\":3,\"call\":{\"extend\":[\"abcdefghijklmnopqrstuv\",30000]}}",
        b"{\"id\":4,\"call\":{\"subscribe\":\"taken\"}}\n{\"id\":4,\"call\":\"unsubscribe\"}",
        b"{\"id\":7,\"call\":{\"subscribe\":{\"turn\":[\"a\",\"abcdefghijklmnopqrstuv\"]}}}\n{\"id\":8,\"call\":{\"inspect\":\"a\"}}",
        b"{\"id\":18446744073709551615,\"call\":{\"lookup_id\":\"abcdefghijklmnopqrstuv\"}}",
        b"{\"id\":5,\"said\":{\"answer\":{\"is_locked\":true}}}\n{\"id\":5,\"said\":\"closed\"}",
        b"{\"id\":6,\"said\":{\"event\":\"freed\"}}",
        b"hello\n",
    ],
};

fn peer_protocol(data: &[u8]) {
    let mut understood = true;
    for line in data.split(|byte| *byte == b'\n') {
        understood &= is_stable::<Request>(line) || line.is_empty();
        is_stable::<Reply>(line);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    let served = runtime.block_on(serve_on(Arc::new(Memory::new()), Cursor::new(data.to_vec()), std::io::sink()));
    assert!(understood || served.is_err(), "the service went on after what is no request");
}

/// Whether a line is a message. If so, it is the same after it was sent once more.
fn is_stable<T: Serialize + DeserializeOwned>(line: &[u8]) -> bool {
    let Ok(message) = serde_json::from_slice::<T>(line) else { return false };
    let sent = serde_json::to_string(&message).expect("what was read can be written");
    assert!(!sent.contains('\n'), "{sent:?}");
    let arrived: T = serde_json::from_str(&sent).expect("what was written can be read");
    assert_eq!(serde_json::to_string(&arrived).expect("what was read can be written"), sent);
    true
}
