use std::collections::HashMap;
use std::str::FromStr;

use super::url::READER;
use crate::Error;

/// A URL that can be read in two ways leads to a host that nobody meant, which is then told the
/// password: to the server's own clients, what stands before an `@` is a user, even after a
/// question mark.
pub(super) fn check_at_sign(url: &str) -> Result<(), Error> {
    let authority = url.split_once("://").map_or(url, |(_, rest)| rest).split('/').next().unwrap_or_default();
    match authority.split_once('?') {
        Some((before, after)) if after.contains('@') && !before.contains('@') => Err(READER
            .unusable("has an @ after a question mark, without a slash between the host and that")
            .with_hint("put a slash after the host, or write %40 for @ and %3F for a question mark")),
        _ => Ok(()),
    }
}

/// What stands before the question mark, in words.
pub(super) fn read_address(address: &str) -> Result<HashMap<String, String>, Error> {
    let rest = ["postgres://", "postgresql://"].iter().find_map(|scheme| address.strip_prefix(scheme));
    let rest = rest.ok_or_else(|| READER.unusable("cannot be used"))?;
    let (authority, database) = rest.split_once('/').unwrap_or((rest, ""));
    let (credentials, hosts) = authority.split_once('@').unwrap_or(("", authority));
    if hosts.contains('@') {
        return Err(READER
            .unusable("has more than one @")
            .with_hint("write %40 for an @ in a user name or a password"));
    }
    // Of a URL with a slash too many, this is the rest of a password.
    if database.contains('@') {
        return Err(READER
            .unusable("has an @ after the first slash")
            .with_hint("write %40 for an @ in the name of a database"));
    }
    let (user, password) = credentials.split_once(':').unwrap_or((credentials, ""));
    let (mut names, mut ports) = (Vec::new(), Vec::new());
    for host in hosts.split(',') {
        let (name, port) = match host.strip_prefix('[').and_then(|host| host.split_once(']')) {
            Some((name, "")) => (name, ""),
            Some((name, port)) => (name, port.strip_prefix(':').ok_or_else(|| READER.unusable("has an odd host"))?),
            None => host.split_once(':').unwrap_or((host, "")),
        };
        names.push(name);
        ports.push(port);
    }
    let listed = |list: &[&str]| if list.iter().all(|one| one.is_empty()) { String::new() } else { list.join(",") };
    let (names, ports) = (listed(&names), listed(&ports));
    let words = [("user", user), ("password", password), ("dbname", database), ("host", &names), ("port", &ports)];
    let decoded = words.map(|(word, text)| READER.decode(text).map(|text| (word.to_owned(), text)));
    let words: HashMap<_, _> = decoded.into_iter().collect::<Result<_, _>>()?;
    match words.values().any(|text| text.contains('\0')) {
        true => Err(READER.unusable("has a NUL character")),
        false => Ok(words),
    }
}

/// What was said, and the variables that count for what was not. Whatever is empty was not said.
pub(super) struct Words<V> {
    pub(super) said: HashMap<String, String>,
    pub(super) variable: V,
}

impl<V: Fn(&str) -> Option<String>> Words<V> {
    pub(super) fn take(&mut self, word: &str) -> Option<String> {
        self.said.remove(word).filter(|text| !text.is_empty())
    }

    pub(super) fn take_or(&mut self, word: &str, variable: &str) -> Option<String> {
        self.take(word).or_else(|| self.variable(variable))
    }

    pub(super) fn variable(&self, name: &str) -> Option<String> {
        (self.variable)(name).filter(|text| !text.is_empty())
    }

    pub(super) fn number<T: FromStr>(&mut self, word: &str) -> Result<Option<T>, Error> {
        let number = self.take(word).map(|text| text.parse());
        number.transpose().map_err(|_| READER.unusable("has an option that is not a number"))
    }

    /// One of the meanings that a word can have.
    pub(super) fn choice<T: Copy>(&mut self, word: &str, choices: &[(&str, T)]) -> Result<Option<T>, Error> {
        let Some(text) = self.take(word) else { return Ok(None) };
        let found = choices.iter().find(|(name, _)| *name == text).map(|(_, meaning)| *meaning);
        found.map(Some).ok_or_else(|| {
            let names: Vec<_> = choices.iter().map(|(name, _)| *name).collect();
            READER
                .unusable("has an option with an unknown value")
                .with_hint(format!("{word} is one of: {}", names.join(", ")))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(address: &str) -> [String; 5] {
        let mut words = read_address(address).unwrap_or_else(|error| panic!("{address}: {error:?}"));
        ["user", "password", "host", "port", "dbname"].map(|word| words.remove(word).unwrap())
    }

    #[test]
    fn an_address_is_read_as_the_servers_own_clients_do() {
        for (address, expected) in [
            ("postgres://", ["", "", "", "", ""]),
            ("postgresql:///app", ["", "", "", "", "app"]),
            ("postgres://db", ["", "", "db", "", ""]),
            ("postgres://me@db:1/app", ["me", "", "db", "1", "app"]),
            ("postgres://me:p%40s%3As@db/a%2Fb", ["me", "p@s:s", "db", "", "a/b"]),
            ("postgres://me:a:b@db", ["me", "a:b", "db", "", ""]),
            ("postgres://a:1,b,c:3/app", ["", "", "a,b,c", "1,,3", "app"]),
            ("postgres://[::1]:7,[fe80::2]/app", ["", "", "::1,fe80::2", "7,", "app"]),
            ("postgres://me@%2Frun%2Fpg:7/app", ["me", "", "/run/pg", "7", "app"]),
            ("postgres://db/a%40b", ["", "", "db", "", "a@b"]),
        ] {
            assert_eq!(words(address), expected, "{address}");
        }
        for wrong in [
            "postgres:",
            "mysql://db",
            "postgres://db/a@b",
            "postgres://me:p@ss@db",
            "postgres://[::1]7/app",
            "postgres://%00",
        ] {
            assert!(read_address(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_at_sign_belongs_to_the_user_or_to_an_option_and_never_to_either() {
        for clear in [
            "postgres://db/app?user=me&password=p@ss",
            "postgres://me@db?password=p@ss",
            "postgres://?host=/run&password=p@ss",
            "postgres://me@db/app?application_name=me@work",
        ] {
            assert!(check_at_sign(clear).is_ok(), "{clear}");
        }
        for ambiguous in ["postgres://db?password=p@ss", "postgres://me:pa?ss@db/app", "postgres://?user=me@work"] {
            let error = check_at_sign(ambiguous).expect_err(ambiguous);
            assert!(error.hint().is_some_and(|hint| hint.contains("%40")), "{error:?}");
        }
    }
}
