use std::future::poll_fn;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio_postgres::{AsyncMessage, Client};

use super::connections::Connections;
use super::error::translate;
use super::tables::Tables;
use crate::backend::Event;
use crate::ear::{self, News};
use crate::{Error, ErrorCode};

/// The topic of locks that are taken from their holders. No key's topic has this name, because those have a prefix.
pub(super) const TAKEN: &str = "taken";

/// The topic of a key that is freed.
pub(super) fn freed(storage_key: &str) -> String {
    format!("freed:{storage_key}")
}

/// The topic of a word that we send ourselves.
pub(super) fn echo(word: &str) -> String {
    format!("echo:{word}")
}

/// How a word is sent.
pub(super) fn echo_message(word: &str) -> String {
    format!("E{word}")
}

/// A connection for wake-ups. All news of the tables come over one channel; a share in the advisory lock of a key tells those
/// who release it that somebody wants to hear.
pub(super) struct Line {
    client: Client,
    driver: AbortHandle,
    heard: mpsc::UnboundedReceiver<String>,
    interest: String,
    shares: String,
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
            let [interest, shares] = ["{{interest}}", "{{shares}}"].map(|name| source.tables.fill(name));
            Ok(Self { client, driver: driver.abort_handle(), heard, interest, shares, timeout: *timeout })
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
                orders.push_str(&format!("SELECT {function}({}, hashtext({key}) & {});", self.interest, self.shares));
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

impl Drop for Line {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// The first letter says what, the rest which.
fn understand(text: &str) -> News {
    match text.split_at_checked(1)? {
        ("F", key) => Some((freed(key), Event::Freed)),
        ("E", word) => Some((echo(word), Event::Freed)),
        _ => ear::taken(text).map(|event| (TAKEN.to_owned(), event)),
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
        assert_eq!(understand("Eword"), Some((echo("word"), Event::Freed)));
        assert!(matches!(understand("SAAAAAAAAAAAAAAAAAAAAAA"), Some((topic, Event::Taken { .. })) if topic == TAKEN));
        for noise in ["", "\u{e9}", "X", "Sshort"] {
            assert_eq!(understand(noise), None, "{noise}");
        }
    }
}
