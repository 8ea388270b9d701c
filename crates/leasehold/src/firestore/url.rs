use std::ffi::OsString;

use super::FirestoreOptions;
use super::names::is_id;
use super::place::{Place, Server, split};
use crate::Error;
use crate::stores::Credentials;
use crate::url_option::{UrlOption, UrlReader};
use crate::url_writer::{self, UrlWriter, time};

/// What our errors say of URLs.
pub(super) const READER: UrlReader = UrlReader { scheme: "firestore" };

const KNOWN: &str = "locks, fences, timeout, emulator, endpoint, ca, credentials";

/// The database of a project that nobody gave a name.
const DEFAULT_DATABASE: &str = "(default)";

/// The variable that leads to an emulator, as Google's own clients know it.
const EMULATOR: &str = "FIRESTORE_EMULATOR_HOST";

/// What a URL says, before anything is opened.
pub(super) struct Target {
    project: String,
    database: String,
    pub(super) options: FirestoreOptions,
}

impl Target {
    /// Reads `firestore://PROJECT[/DATABASE]` and its options.
    pub(super) fn read(url: &str, mut options: FirestoreOptions) -> Result<Self, Error> {
        let (address, given) = READER.split(url)?;
        let Some(rest) = address.strip_prefix("firestore://") else {
            return Err(READER.unusable("does not start with firestore://"));
        };
        let (project, database) = rest.split_once('/').unwrap_or((rest, ""));
        let (project, database) = (READER.decode(project)?, READER.decode(database)?);
        if project.contains('@') {
            return Err(READER
                .unusable("names a user, which a project does not have")
                .with_hint("the option credentials names the key file of a service account"));
        }
        let is_name = |text: &str| text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.:".contains(c));
        if project.is_empty() || !is_name(&project) {
            return Err(READER.unusable("names no project"));
        }
        let database = if database.is_empty() { DEFAULT_DATABASE.to_owned() } else { database };
        if database != DEFAULT_DATABASE && !is_name(&database) {
            return Err(READER.unusable("names no database"));
        }
        for UrlOption { name, value, .. } in given {
            if value.is_empty() {
                return Err(READER.unusable("has an option without a value"));
            }
            match name {
                "locks" => options.locks = value,
                "fences" => options.fences = value,
                "timeout" => options.timeout = READER.time("timeout", &value)?,
                "emulator" => options.emulator = Some(value),
                "endpoint" => options.endpoint = Some(value),
                "ca" => options.ca = Some(value.into()),
                "credentials" => options.credentials = Some(value.into()),
                _ => return Err(READER.unknown_option(KNOWN)),
            }
        }
        READER.check_time(options.timeout)?;
        check_collections(&options)?;
        options.emulator.as_deref().map(|host| split(host, None)).transpose()?;
        options.endpoint.as_deref().map(|host| split(host, Some(443))).transpose()?;
        if options.emulator.is_some() && (options.endpoint.is_some() || options.ca.is_some()) {
            return Err(READER.unusable("names an emulator, which has no TLS, and options for TLS"));
        }
        Ok(Self { project, database, options })
    }

    /// Where the database is, with what the environment says.
    pub(super) fn place(self) -> Result<(Place, FirestoreOptions), Error> {
        let Self { project, database, options } = self;
        let emulator = match (&options.emulator, &options.endpoint) {
            (Some(emulator), _) => Some(emulator.clone()),
            (None, Some(_)) => None,
            (None, None) => {
                std::env::var_os(EMULATOR).filter(|host| !host.is_empty()).map(from_environment).transpose()?
            }
        };
        let server = match emulator {
            Some(host) => Server::emulator(&host, options.timeout)?,
            None => Server::google(&options)?,
        };
        let name = format!("projects/{project}/databases/{database}");
        Ok((Place { project, database: name, server, timeout: options.timeout }, options))
    }

    /// A path to credentials is none itself.
    pub(super) fn credentials(&self) -> Credentials {
        if self.options.credentials.is_some() { Credentials::Name } else { Credentials::None }
    }

    /// The URL as others may see it.
    pub(super) fn public_url(&self) -> String {
        let (options, usual) = (&self.options, FirestoreOptions::default());
        let project = url_writer::part(&self.project);
        let mut url = UrlWriter::new(match self.database.as_str() {
            DEFAULT_DATABASE => format!("firestore://{project}"),
            database => format!("firestore://{project}/{}", url_writer::part(database)),
        });
        url.option_unless(&usual.locks, "locks", &options.locks);
        url.option_unless(&usual.fences, "fences", &options.fences);
        url.option_unless(&time(usual.timeout), "timeout", &time(options.timeout));
        for (name, value) in [("emulator", &options.emulator), ("endpoint", &options.endpoint)] {
            if let Some(value) = value {
                url.option(name, value);
            }
        }
        for (name, file) in [("ca", &options.ca), ("credentials", &options.credentials)] {
            if let Some(file) = file {
                url.option(name, file.display());
            }
        }
        url.finish()
    }
}

/// The address of an emulator that the environment names. Who meant an emulator must not end up at
/// Google's servers.
fn from_environment(host: OsString) -> Result<String, Error> {
    let host = host.into_string().ok().filter(|host| split(host, None).is_ok());
    host.ok_or_else(|| {
        Error::invalid(format!("the variable {EMULATOR} has no address in it")).with_hint("for example localhost:8080")
    })
}

fn check_collections(options: &FirestoreOptions) -> Result<(), Error> {
    if !is_id(&options.locks) || !is_id(&options.fences) {
        return Err(Error::invalid("the name of a collection cannot be used")
            .with_hint("no slash, not . or .., and not between two pairs of underscores"));
    }
    if options.locks == options.fences {
        return Err(Error::invalid("locks and fences need a collection each")
            .with_hint("choose another name for one of them: locks=…&fences=…"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::ErrorCode;

    fn read(url: &str) -> Result<Target, Error> {
        Target::read(url, FirestoreOptions::default())
    }

    #[test]
    fn urls_name_a_project_a_database_and_options() {
        let target = read("firestore://acme").unwrap();
        assert_eq!((target.project.as_str(), target.database.as_str()), ("acme", "(default)"));
        let url = "firestore://acme/eu%2D1?locks=l&fences=f&timeout=2s&endpoint=localhost:1&ca=/a%20b&credentials=k";
        let target = read(url).unwrap();
        assert_eq!((target.project.as_str(), target.database.as_str()), ("acme", "eu-1"));
        let usual = FirestoreOptions::default().with_locks("l").with_fences("f").with_timeout(Duration::from_secs(2));
        let wanted = usual.with_endpoint("localhost:1").with_ca("/a b").with_credentials("k");
        assert_eq!(target.options, wanted);
        assert_eq!(read("firestore://example.com:acme/(default)").unwrap().database, "(default)");
    }

    #[test]
    fn what_is_shown_of_a_url_reads_as_the_same_store() {
        for url in [
            "firestore://acme",
            "firestore://acme/eu",
            "firestore://acme?locks=a%26b&timeout=1.5s&emulator=[::1]:80",
            "firestore://acme?endpoint=h&ca=/x&credentials=/k%3D",
        ] {
            let target = read(url).unwrap();
            let again = read(&target.public_url()).unwrap();
            assert_eq!((&again.project, &again.database), (&target.project, &target.database), "{url}");
            assert_eq!(again.options, target.options, "{url}");
        }
    }

    #[test]
    fn wrong_urls_are_refused_with_a_word_of_advice_and_without_their_secrets() {
        for wrong in [
            "firestore:",
            "firestore:acme",
            "firestore://",
            "firestore:///eu",
            "firestore://acme/a/b",
            "firestore://me:secret@acme",
            "firestore://acme?password=secret",
            "firestore://acme?timeout=0s",
            "firestore://acme?locks=",
            "firestore://acme?locks=a/b",
            "firestore://acme?locks=__a__",
            "firestore://acme?locks=x&fences=x",
            "firestore://acme?emulator=h:1&ca=/x",
            "firestore://acme?emulator=h",
            "firestore://acme?endpoint=me:secret@h",
            "firestore://acme%2Fother",
            "firestore://%ff",
        ] {
            let error = read(wrong).map(|_| ()).unwrap_err();
            assert_eq!(error.code(), ErrorCode::InvalidArgument, "{wrong}");
            assert!(error.hint().is_some() && !error.to_string().contains("secret"), "{wrong}: {error}");
        }
    }
}
