use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::Error;

/// The password in a file. The line end that editors leave behind it is not part of it.
pub(super) fn read(path: &Path) -> Result<String, Error> {
    // Before it is opened, as that may wait for ever.
    let found = std::fs::metadata(path).map_err(|source| unusable("cannot be read").with_source(source))?;
    if !found.is_file() {
        return Err(unusable("is no regular file"));
    }
    if found.permissions().mode() & 0o007 != 0 {
        // No error: whoever mounts secrets into a container often cannot choose.
        tracing::warn!("everybody may read or write the password file of Redis; `chmod 600` helps");
    }
    let text = std::fs::read_to_string(path).map_err(|source| unusable("cannot be read").with_source(source))?;
    match text.trim_end_matches(['\r', '\n']) {
        "" => Err(unusable("is empty")),
        password => Ok(password.to_owned()),
    }
}

fn unusable(why: &str) -> Error {
    Error::invalid(format!("the password file {why}")).with_hint("check the option password_file of the store's URL")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_end_is_not_part_of_the_password() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("password");
        for (text, password) in [("s3cret", "s3cret"), ("s3cret\n", "s3cret"), (" a b \r\n", " a b ")] {
            std::fs::write(&path, text).unwrap();
            assert_eq!(read(&path).unwrap(), password);
        }
        std::fs::write(&path, "\n").unwrap();
        for unusable in [path.as_path(), directory.path(), Path::new("/no/such/file")] {
            let error = read(unusable).unwrap_err();
            assert!(error.hint().is_some(), "{error}");
        }
    }
}
