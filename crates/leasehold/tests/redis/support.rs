//! What the tests of this store share.

use std::num::NonZeroU16;

use leasehold::backend::{AcquireRequest, Line, Mode};
use leasehold::redis::Redis;
use test_servers::Redis as Server;
use test_support::{request, ttl};

pub(crate) async fn connect(server: &Server) -> Redis {
    Redis::connect(&server.url()).await.unwrap()
}

/// A request for a lock that others may share.
pub(crate) fn shared(name: &str) -> AcquireRequest {
    request(name).with_mode(Mode::Shared)
}

/// A request for one of some permits.
pub(crate) fn permit(name: &str, of: u16) -> AcquireRequest {
    request(name).with_mode(Mode::Permit { of: NonZeroU16::new(of).unwrap() })
}

/// The same request with a place in line, for some milliseconds.
pub(crate) fn joining(request: AcquireRequest, lease: u64) -> AcquireRequest {
    request.with_line(Line::Join { lease: ttl(lease) })
}

/// What stands beside a lock, under a letter.
pub(crate) fn beside(lock: &str, letter: &str) -> String {
    format!("{lock}\0{letter}")
}
