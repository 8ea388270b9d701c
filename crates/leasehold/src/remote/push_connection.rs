//! What a store's server must be able to do so that others can listen to it.

use crate::Error;
#[cfg(any(feature = "redis", feature = "postgres"))]
use crate::inbox::Received;
use crate::remote::notification::Notification;

/// How many messages of a server may be unread. However many strangers send, and however long, no
/// more are kept.
#[cfg(any(feature = "firestore", feature = "redis", feature = "postgres"))]
pub(crate) const UNREAD: usize = 1024;

/// A connection over which a server sends notifications.
pub(crate) trait PushConnection: Sized + Send + 'static {
    /// What it takes to make one.
    type Server: Send + Sync + 'static;

    /// Makes a connection, within a deadline.
    fn open(server: &Self::Server) -> impl Future<Output = Result<Self, Error>> + Send;

    /// Has the server tell of `wanted` topics from now on, and no more of `unwanted` ones, within a
    /// deadline. Returns the wanted topics of which it cannot tell at present: a stranger who is in
    /// the way of one must not make everybody deaf to all.
    fn change(
        &mut self,
        wanted: &[String],
        unwanted: &[String],
    ) -> impl Future<Output = Result<Vec<String>, Error>> + Send;

    /// Makes sure that the server is still there, within a deadline.
    fn check(&mut self) -> impl Future<Output = Result<(), Error>> + Send;

    /// What the server sends next. Cancel-safe.
    fn next(&mut self) -> impl Future<Output = Pushed> + Send;
}

/// What came over a [`PushConnection`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Pushed {
    Notification(Notification),
    /// Notifications came faster than they were read, and some are lost.
    Missed,
    /// Something of no interest.
    Noise,
    /// The connection is lost.
    Lost,
}

impl Pushed {
    /// What was received, of which `decode` makes a notification.
    #[cfg(any(feature = "redis", feature = "postgres"))]
    pub(crate) fn of<T>(received: Option<Received<T>>, decode: impl FnOnce(T) -> Option<Notification>) -> Self {
        match received {
            Some(Received::Item(message)) => decode(message).into(),
            Some(Received::Missed) => Pushed::Missed,
            None => Pushed::Lost,
        }
    }
}

impl From<Option<Notification>> for Pushed {
    fn from(decoded: Option<Notification>) -> Self {
        decoded.map_or(Pushed::Noise, Pushed::Notification)
    }
}
