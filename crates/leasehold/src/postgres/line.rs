use std::future::poll_fn;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio_postgres::types::Type;
use tokio_postgres::{AsyncMessage, Client};

use super::connections::{Connections, Parameter};
use super::error::translate;
use super::tables::Tables;
use crate::backend::Event;
use crate::ear::{self, News};
use crate::{Error, ErrorCode, Operation};

/// The topic of locks that are taken from their holders. No key's topic has this name, because those have a prefix.
pub(super) const TAKEN: &str = "taken";

/// The topic of a key that is freed.
pub(super) fn freed(storage_key: &str) -> String {
    format!("freed:{storage_key}")
}

/// How long a message from one connection to another may take before we believe that none arrives.
const ECHO: Duration = Duration::from_secs(1);

/// A connection for wake-ups. All news of the tables come over one channel; a share in the advisory lock of a key tells those
/// who release it that somebody wants to hear.
pub(super) struct Line {
    client: Client,
    driver: AbortHandle,
    heard: mpsc::UnboundedReceiver<String>,
    interest: String,
    timeout: Duration,
}

/// How to get a connection, and what to listen to.
pub(super) struct Source {
    pub(super) connections: Connections,
    pub(super) tables: Tables,
}

impl ear::Line for Line {
    type Server = Source;

    async fn open(source: &Source) -> Result<Self, Error> {
        let Connections { config, tls, timeout, .. } = &source.connections;
        let open = async {
            let (client, mut connection) = config.connect(tls.clone()).await?;
            let (news, heard) = mpsc::unbounded_channel();
            let driver = tokio::spawn(async move {
                while let Some(Ok(message)) = poll_fn(|cx| connection.poll_message(cx)).await {
                    if let AsyncMessage::Notification(told) = message {
                        let _ = news.send(told.payload().to_owned());
                    }
                }
            });
            client.batch_execute(&format!("LISTEN \"{}\"", source.tables.channel())).await?;
            let interest = source.tables.fill("{{interest}}");
            Ok(Self { client, driver: driver.abort_handle(), heard, interest, timeout: *timeout })
        };
        within(*timeout, open).await
    }

    async fn change(&mut self, wanted: &[String], unwanted: &[String]) -> Result<(), Error> {
        let mut orders = String::new();
        for (function, topics) in [("pg_advisory_lock_shared", wanted), ("pg_advisory_unlock_shared", unwanted)] {
            for key in topics.iter().filter_map(|topic| topic.strip_prefix("freed:")) {
                let key = key.replace('\'', "''");
                // Never an escape: the text has no other meaning than itself, whatever the settings.
                let key =
                    if key.contains('\\') { format!("E'{}'", key.replace('\\', "\\\\")) } else { format!("'{key}'") };
                orders.push_str(&format!("SELECT {function}({}, hashtext({key}));", self.interest));
            }
        }
        if orders.is_empty() {
            return Ok(());
        }
        within(self.timeout, self.client.batch_execute(&orders)).await
    }

    async fn check(&mut self) -> Result<(), Error> {
        within(self.timeout, self.client.batch_execute("")).await
    }

    async fn next(&mut self) -> Option<News> {
        self.heard.recv().await.map(|text| understand(&text))
    }
}

impl Line {
    /// Whether what one connection says arrives on another: not so through a pooler that lends connections for a transaction.
    pub(super) async fn works(source: &Source) -> Result<bool, Error> {
        let mut line = <Self as ear::Line>::open(source).await?;
        let word = format!("echo {:016x}", fastrand::u64(..));
        let channel = source.tables.channel();
        let parameters: [Parameter<'_>; 2] = [(&channel, Type::TEXT), (&word, Type::TEXT)];
        source.connections.query(Operation::Subscribe, "SELECT pg_notify($1, $2)", &parameters).await?;
        let echo = async {
            while let Some(heard) = line.heard.recv().await {
                if heard == word {
                    return true;
                }
            }
            false
        };
        Ok(tokio::time::timeout(ECHO, echo).await.unwrap_or(false))
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// The first letter says what, the rest which.
fn understand(text: &str) -> News {
    match text.strip_prefix('F') {
        Some(key) => Some((freed(key), Event::Freed)),
        None => ear::taken(text).map(|event| (TAKEN.to_owned(), event)),
    }
}

async fn within<T>(timeout: Duration, run: impl Future<Output = Result<T, tokio_postgres::Error>>) -> Result<T, Error> {
    match tokio::time::timeout(timeout, run).await {
        Ok(outcome) => outcome.map_err(|error| translate(error, false)),
        Err(_) => Err(Error::new(ErrorCode::NetworkTimeout, format!("the server did not answer within {timeout:?}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn news_are_understood_and_noise_is_not() {
        assert_eq!(understand("Fpayment:42"), Some(("freed:payment:42".to_owned(), Event::Freed)));
        assert!(matches!(understand("SAAAAAAAAAAAAAAAAAAAAAA"), Some((topic, Event::Taken { .. })) if topic == TAKEN));
        for noise in ["", "echo 0", "X", "Sshort"] {
            assert_eq!(understand(noise), None, "{noise}");
        }
    }
}
