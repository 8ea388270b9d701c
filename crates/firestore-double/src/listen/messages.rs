//! What a listener is told.

use googleapis_tonic_google_firestore_v1::google::firestore::v1::listen_response::ResponseType;
use googleapis_tonic_google_firestore_v1::google::firestore::v1::target_change::TargetChangeType;
use googleapis_tonic_google_firestore_v1::google::firestore::v1::{ListenResponse, TargetChange};
use googleapis_tonic_google_firestore_v1::google::rpc;
use tonic::Status;

use crate::clock::{Micros, timestamp};

/// Something happened to a target as a whole.
pub(super) fn target_change(kind: TargetChangeType, target: i32) -> ListenResponse {
    response(TargetChange { target_change_type: kind.into(), target_ids: vec![target], ..TargetChange::default() })
}

/// The target has been told all that there was at this time.
pub(super) fn current(target: i32, time: Micros) -> ListenResponse {
    response(TargetChange {
        target_change_type: TargetChangeType::Current.into(),
        target_ids: vec![target],
        resume_token: token(time),
        read_time: Some(timestamp(time)),
        cause: None,
    })
}

/// All targets have been told all that there was at this time.
pub(super) fn snapshot(time: Micros) -> ListenResponse {
    response(TargetChange {
        target_change_type: TargetChangeType::NoChange.into(),
        resume_token: token(time),
        read_time: Some(timestamp(time)),
        ..TargetChange::default()
    })
}

/// The target is not listened to any more, and why.
pub(super) fn removed(target: i32, cause: Option<&Status>) -> ListenResponse {
    let cause = cause.map(|status| rpc::Status {
        code: status.code().into(),
        message: status.message().to_owned(),
        details: Vec::new(),
    });
    response(TargetChange {
        target_change_type: TargetChangeType::Remove.into(),
        target_ids: vec![target],
        cause,
        ..TargetChange::default()
    })
}

/// The time that a token stands for. It is good on every server that remembers what came later.
pub(super) fn time_of_token(token: &[u8]) -> Option<Micros> {
    token.try_into().ok().map(Micros::from_be_bytes)
}

fn token(time: Micros) -> Vec<u8> {
    time.to_be_bytes().to_vec()
}

fn response(change: TargetChange) -> ListenResponse {
    ListenResponse { response_type: Some(ResponseType::TargetChange(change)) }
}
