use super::{Sqlite, SqliteOptions, Synchronous};
use crate::Error;

impl Sqlite {
    /// Opens what follows `sqlite:` in a URL: a path, absolute or relative, with or without the two slashes of an empty
    /// host, and options after a question mark.
    pub(crate) async fn open_url(rest: &str) -> Result<Self, Error> {
        let (path, options) = parse(rest)?;
        Self::open_with(path, options).await
    }
}

fn parse(rest: &str) -> Result<(&str, SqliteOptions), Error> {
    let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
    let path = match path.strip_prefix("//") {
        Some(path) if path.starts_with('/') => path,
        Some(_) => return Err(Error::invalid("a sqlite: URL names a file, not a host").with_hint(EXAMPLE)),
        None => path,
    };
    if path.is_empty() {
        return Err(Error::invalid("the sqlite: URL names no file").with_hint(EXAMPLE));
    }
    let mut options = SqliteOptions::default();
    for option in query.split('&').filter(|option| !option.is_empty()) {
        match option {
            "synchronous=full" => options.synchronous = Synchronous::Full,
            "synchronous=normal" => options.synchronous = Synchronous::Normal,
            "create=false" => options.create = false,
            "create=true" => options.create = true,
            _ => {
                return Err(Error::invalid("the sqlite: URL has an option this build does not know")
                    .with_hint("the known ones are: synchronous=full, synchronous=normal, create=false, create=true"));
            }
        }
    }
    Ok((path, options))
}

const EXAMPLE: &str = "for example sqlite:/var/lib/leasehold/locks.db, or sqlite:locks.db for a file in this directory";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_options_are_understood_and_the_rest_refused() {
        let full = SqliteOptions { synchronous: Synchronous::Full, ..SqliteOptions::default() };
        let no_create = SqliteOptions { create: false, ..SqliteOptions::default() };
        for (rest, path, options) in [
            ("locks.db", "locks.db", SqliteOptions::default()),
            ("/var/locks.db", "/var/locks.db", SqliteOptions::default()),
            ("///var/locks.db", "/var/locks.db", SqliteOptions::default()),
            ("a.db?synchronous=full", "a.db", full),
            ("a.db?create=false&synchronous=normal", "a.db", no_create),
        ] {
            assert_eq!(parse(rest).unwrap(), (path, options), "{rest}");
        }
        for wrong in ["", "?synchronous=full", "//host/file.db", "a.db?synchronous=off", "a.db?password=x"] {
            let error = parse(wrong).unwrap_err();
            assert_eq!(error.code(), crate::ErrorCode::InvalidArgument, "{wrong}");
            assert!(error.hint().is_some() && !error.to_string().contains("password"), "{error}");
        }
    }
}
