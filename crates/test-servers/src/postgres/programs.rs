use std::path::{Path, PathBuf};
use std::{env, fs, io};

/// Where Debian puts each version's programs, which are not on the path.
const DEBIAN: &str = "/usr/lib/postgresql";

/// The directory with the programs of the newest PostgreSQL on this machine: Debian's, or else the
/// one on the path.
pub(super) fn find() -> io::Result<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    find_in(Path::new(DEBIAN), env::split_paths(&path))
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "postgres is not installed: apt-get install postgresql"))
}

fn find_in(debian: &Path, path: impl Iterator<Item = PathBuf>) -> Option<PathBuf> {
    let versions = fs::read_dir(debian).into_iter().flatten().flatten();
    let mut versions: Vec<u32> = versions.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    versions.sort_unstable_by(|a, b| b.cmp(a));
    let mut directories = versions.iter().map(|version| debian.join(version.to_string()).join("bin")).chain(path);
    // A link on the path to `postgres` alone leads to a directory that has the others too.
    directories.find_map(|directory| {
        let programs = directory.join("postgres").canonicalize().ok()?.parent()?.to_owned();
        ["initdb", "psql"].iter().all(|name| programs.join(name).exists()).then_some(programs)
    })
}

#[cfg(test)]
mod tests {
    use std::iter::once;

    use super::*;

    fn install(directory: &Path) -> PathBuf {
        fs::create_dir_all(directory).unwrap();
        for name in ["postgres", "initdb", "psql"] {
            fs::write(directory.join(name), "").unwrap();
        }
        directory.canonicalize().unwrap()
    }

    #[test]
    fn the_newest_version_comes_first_and_the_path_last() {
        let root = tempfile::tempdir().unwrap();
        let on_path = root.path().join("somewhere");
        assert_eq!(find_in(root.path(), once(on_path.clone())), None);
        let expected = install(&on_path);
        assert_eq!(find_in(root.path(), once(on_path.clone())), Some(expected));
        let expected = install(&root.path().join("9/bin"));
        assert_eq!(find_in(root.path(), once(on_path.clone())), Some(expected));
        let expected = install(&root.path().join("15/bin"));
        fs::create_dir_all(root.path().join("17/bin")).unwrap();
        assert_eq!(find_in(root.path(), once(on_path)), Some(expected));
    }

    #[test]
    fn a_link_leads_to_its_target() {
        let root = tempfile::tempdir().unwrap();
        let expected = install(&root.path().join("real"));
        let links = root.path().join("links");
        fs::create_dir(&links).unwrap();
        std::os::unix::fs::symlink(expected.join("postgres"), links.join("postgres")).unwrap();
        assert_eq!(find_in(&root.path().join("none"), once(links)), Some(expected));
    }
}
