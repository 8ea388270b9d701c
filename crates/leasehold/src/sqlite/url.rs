use super::{Sqlite, SqliteOptions, Synchronous};
use crate::Error;
use crate::url_option::{UrlOption, UrlReader};
use crate::url_writer::UrlWriter;

impl Sqlite {
    /// Opens what follows `sqlite:` in a URL: a path, absolute or relative, with or without the two
    /// slashes of an empty host, and options after a question mark.
    pub(crate) async fn open_url(rest: &str) -> Result<Self, Error> {
        let (path, options) = parse(rest)?;
        Self::open_with(path, options).await
    }
}

/// What our errors say of URLs.
const READER: UrlReader = UrlReader { scheme: "sqlite" };

const KNOWN: &str = "synchronous=full, synchronous=normal, create=false, create=true";

pub(super) fn parse(rest: &str) -> Result<(&str, SqliteOptions), Error> {
    let (path, given) = READER.split(rest)?;
    let path = match path.strip_prefix("//") {
        Some(path) if path.starts_with('/') => path,
        Some(_) => return Err(READER.unusable("names a host, where a file should be")),
        None => path,
    };
    if path.is_empty() {
        return Err(READER.unusable("names no file"));
    }
    let mut options = SqliteOptions::default();
    for UrlOption { name, value, .. } in &given {
        match (*name, value.as_str()) {
            ("synchronous", "full") => options.synchronous = Synchronous::Full,
            ("synchronous", "normal") => options.synchronous = Synchronous::Normal,
            ("create", "false") => options.create = false,
            ("create", "true") => options.create = true,
            _ => return Err(READER.unknown_option(KNOWN)),
        }
    }
    Ok((path, options))
}

/// The URL as others may see it. Paths are no secrets.
pub(super) fn public(scheme: &str, rest: &str) -> Result<String, Error> {
    let (path, options) = parse(rest)?;
    let usual = SqliteOptions::default();
    // Two slashes in front would be taken for those of a URL.
    let slashes = if path.starts_with("//") { "//" } else { "" };
    let mut url = UrlWriter::new(format!("{scheme}:{slashes}{path}"));
    url.option_unless(word(usual.synchronous), "synchronous", word(options.synchronous));
    url.option_unless(&usual.create, "create", &options.create);
    Ok(url.finish())
}

fn word(synchronous: Synchronous) -> &'static str {
    match synchronous {
        Synchronous::Full => "full",
        Synchronous::Normal => "normal",
    }
}

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
            let public = public("sqlite", rest).unwrap();
            let again = public.strip_prefix("sqlite:").unwrap();
            assert_eq!(parse(again).unwrap(), (path, options), "{rest} is shown as {public}");
        }
        for wrong in ["", "?synchronous=full", "//host/file.db", "a.db?synchronous=off", "a.db?password=x"] {
            let error = parse(wrong).unwrap_err();
            assert!(public("sqlite", wrong).is_err(), "{wrong}");
            assert_eq!(error.code(), crate::ErrorCode::InvalidArgument, "{wrong}");
            assert!(error.hint().is_some() && !error.to_string().contains("password"), "{error}");
        }
    }
}
