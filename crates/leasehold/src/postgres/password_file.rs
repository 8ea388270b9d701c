use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// The password file of a user: lines of `host:port:database:user:password`, of which the first
/// that matches counts. Read as the server's own clients do.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct PasswordFile {
    text: Vec<u8>,
    /// Why there is nothing in it, if it is there.
    pub(super) ignored: Option<&'static str>,
}

/// What is wrong with a file that is not used.
const NOT_A_FILE: &str = "the password file is ignored: it is no regular file";
const READABLE: &str = "the password file is ignored: others may read it; `chmod 600` helps";

impl PasswordFile {
    /// Reads the file. One that is not there is empty, and so is one that others may read: what is
    /// in it is no secret any more.
    pub(super) fn read(path: &Path) -> Self {
        // Before it is opened, as that may wait for ever.
        let Ok(found) = fs::metadata(path) else { return Self::default() };
        let ignored = if !found.is_file() {
            Some(NOT_A_FILE)
        } else if found.permissions().mode() & 0o077 != 0 {
            Some(READABLE)
        } else {
            None
        };
        if let Some(why) = ignored {
            tracing::warn!("{why}");
            return Self { text: Vec::new(), ignored };
        }
        Self { text: fs::read(path).unwrap_or_default(), ignored: None }
    }

    /// The password for a host, port, database and user.
    pub(super) fn password(&self, wanted: [&str; 4]) -> Option<Vec<u8>> {
        let lines = self.text.split(|byte| *byte == b'\n').filter(|line| !line.starts_with(b"#"));
        lines.map(|line| line.strip_suffix(b"\r").unwrap_or(line)).find_map(|line| {
            let rest = wanted.iter().try_fold(line, |rest, wanted| after_match(rest, wanted.as_bytes()))?;
            Some(field(rest).0).filter(|password| !password.is_empty())
        })
    }
}

/// What follows the first field and its colon, if that field is a star or stands for `wanted`.
fn after_match<'a>(line: &'a [u8], wanted: &[u8]) -> Option<&'a [u8]> {
    if let Some(rest) = line.strip_prefix(b"*:") {
        return Some(rest);
    }
    let (found, rest) = field(line);
    rest.filter(|_| found == wanted)
}

/// The first field, and what follows its colon. A backslash takes the next character as it is.
fn field(line: &[u8]) -> (Vec<u8>, Option<&[u8]>) {
    let (mut found, mut rest) = (Vec::new(), line);
    loop {
        match rest {
            [] => return (found, None),
            [b':', after @ ..] => return (found, Some(after)),
            [b'\\', byte, after @ ..] | [byte, after @ ..] => {
                found.push(*byte);
                rest = after;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn password(text: &str, wanted: [&str; 4]) -> Option<String> {
        let file = PasswordFile { text: text.into(), ignored: None };
        file.password(wanted).map(|password| String::from_utf8(password).unwrap())
    }

    #[test]
    fn the_first_line_that_matches_counts() {
        let text = "# comment\nelse:*:*:*:no\n*:5432:app:me:a\\:b\\\\c:d\r\n*:*:*:*:any\n";
        assert_eq!(password(text, ["db", "5432", "app", "me"]).as_deref(), Some("a:b\\c"), "a colon ends it");
        assert_eq!(password(text, ["db", "5432", "app", "you"]).as_deref(), Some("any"));
        assert_eq!(password("db:1:a", ["db", "1", "a", "b"]), None);
        assert_eq!(password("db:1:a:b:", ["db", "1", "a", "b"]), None);
        assert_eq!(password("\\*:*:*:*:x", ["db", "1", "a", "b"]), None, "a star of its own");
        assert_eq!(password("\\:\\:1:*:*:*:x", ["::1", "1", "a", "b"]).as_deref(), Some("x"));
    }

    #[test]
    fn what_others_may_read_or_what_is_no_file_is_ignored() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pgpass");
        assert_eq!(PasswordFile::read(&path), PasswordFile::default(), "there is none");
        fs::write(&path, "*:*:*:*:secret").unwrap();
        for (mode, read) in [(0o600, true), (0o400, true), (0o640, false), (0o604, false), (0o620, false)] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let file = PasswordFile::read(&path);
            assert_eq!(file.password(["a", "b", "c", "d"]).is_some(), read, "{mode:o}");
            assert_eq!(file.ignored.is_none(), read, "{mode:o}");
        }
        assert_eq!(PasswordFile::read(directory.path()).ignored, Some(NOT_A_FILE));
        let fifo = directory.path().join("fifo");
        assert!(std::process::Command::new("mkfifo").args(["-m", "600"]).arg(&fifo).status().unwrap().success());
        assert_eq!(PasswordFile::read(&fifo).ignored, Some(NOT_A_FILE));
    }
}
