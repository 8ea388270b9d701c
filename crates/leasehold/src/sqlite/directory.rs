//! Where the sockets are at which the processes that use a database hear of each other.

use std::fs::{File, Metadata, Permissions};
use std::io::{self, ErrorKind};
#[cfg(target_os = "linux")]
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown, lchown};
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What the name of the directory ends with, after the name of the database.
const SUFFIX: &str = "-listeners";

/// How often the directory is made, if others remove it as often.
const TRIES: usize = 20;

/// A file that is older and at which nobody is was left behind. A newer one may be on its way to be
/// somebody's.
const STRAY_AFTER: Duration = Duration::from_secs(60);

/// The directory of the sockets, beside the database file. Whoever may write the file may enter it,
/// and nobody else: messages have names of keys in them, and make those who hear them look at the
/// database.
#[derive(Debug)]
pub(super) struct SocketDirectory {
    path: PathBuf,
    directory: File,
    file: Access,
    /// Whether it stays when nobody listens: those who may write the file could not make it again.
    stays: bool,
}

/// Whom a file belongs to, and who else may write it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Access {
    owner: u32,
    group: u32,
    /// The bits of the mode that allow to write.
    writers: u32,
}

impl Access {
    fn of(found: &Metadata) -> Self {
        Self { owner: found.uid(), group: found.gid(), writers: found.mode() & 0o222 }
    }

    /// The mode of something made beside the file that is for all who may write the file, with
    /// these `bits` for each of them. It is not for the group if it is that of another one.
    fn mode(self, beside: &Metadata, bits: u32) -> u32 {
        let group = if beside.gid() == self.group { self.writers & 0o020 } else { 0 };
        ((0o200 | group | self.writers & 0o002) >> 1) * bits
    }
}

impl SocketDirectory {
    /// Opens the directory of a database file, and makes it if it is not there.
    pub(super) fn make(database: &Path) -> io::Result<Self> {
        let (path, file) = beside(database)?;
        let made = std::fs::DirBuilder::new().mode(0o700).create(&path);
        match made {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let outcome = Self::enter(path.clone(), file);
        if outcome.is_err() && made.is_ok() {
            // It would be in the way of those who can make one for all.
            let _ = std::fs::remove_dir(&path);
        }
        outcome
    }

    /// Opens the directory of a database file if it is there.
    pub(super) fn open(database: &Path) -> io::Result<Self> {
        let (path, file) = beside(database)?;
        Self::enter(path, file)
    }

    fn enter(path: PathBuf, file: Access) -> io::Result<Self> {
        let flags = rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::NOFOLLOW;
        let flags = i32::try_from(flags.bits()).map_err(io::Error::other)?;
        let directory = File::options().read(true).custom_flags(flags).open(&path)?;
        let found = directory.metadata()?;
        let around = Access::of(&std::fs::metadata(parent(&path))?);
        let everybody_may_make_one = around.writers & 0o002 != 0;
        if everybody_may_make_one && found.uid() != file.owner && found.uid() != 0 {
            return Err(io::Error::new(ErrorKind::PermissionDenied, "it belongs to a stranger"));
        }
        let found = give_to_writers(&directory, file)?;
        if found.mode() & 0o777 & !file.mode(&found, 7) != 0 {
            return Err(io::Error::new(ErrorKind::PermissionDenied, "it is open to strangers"));
        }
        let stays = file.writers & !around.writers & 0o022 != 0;
        Ok(Self { path, directory, file, stays })
    }

    /// A new socket of this name, to which all may send who may write the database.
    pub(super) fn bind(&self, name: &str) -> io::Result<UnixDatagram> {
        let socket = UnixDatagram::bind_addr(&self.address(name)?)?;
        // It cannot be opened, so what is done to it is done by its name. No stranger can enter the
        // directory to put something else there.
        let path = self.inside(name);
        let mut found = std::fs::symlink_metadata(&path)?;
        if (found.uid(), found.gid()) != (self.file.owner, self.file.group) {
            let given = lchown(&path, Some(self.file.owner), Some(self.file.group));
            let _ = given.or_else(|_| lchown(&path, None, Some(self.file.group)));
            found = std::fs::symlink_metadata(&path)?;
        }
        std::fs::set_permissions(&path, Permissions::from_mode(self.file.mode(&found, 6)))?;
        socket.set_nonblocking(true)?;
        Ok(socket)
    }

    /// Where the socket of this name is.
    pub(super) fn address(&self, name: &str) -> io::Result<SocketAddr> {
        if !is_name(name) {
            return Err(io::Error::new(ErrorKind::NotFound, "not the name of a socket of ours"));
        }
        SocketAddr::from_pathname(self.inside(name))
    }

    /// The path through the directory that was opened: another one may be in its place by now, a
    /// stranger's, and the path to it may be too long for the address of a socket.
    #[cfg(target_os = "linux")]
    fn inside(&self, name: &str) -> PathBuf {
        format!("/proc/self/fd/{}/{name}", self.directory.as_raw_fd()).into()
    }

    #[cfg(not(target_os = "linux"))]
    fn inside(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Whether others find a socket of this name, in use or not.
    pub(super) fn has(&self, name: &str) -> bool {
        std::fs::symlink_metadata(self.path.join(name)).is_ok()
    }

    /// Removes the file of a socket, and the directory with the last one.
    pub(super) fn remove(&self, name: &str) {
        if is_name(name) && std::fs::remove_file(self.inside(name)).is_ok() && !self.stays {
            // Not if there are others.
            let _ = std::fs::remove_dir(&self.path);
        }
    }

    /// The names of files that have been there for a while.
    pub(super) fn old_names(&self) -> io::Result<Vec<String>> {
        let is_old = |entry: &std::fs::DirEntry| {
            let changed = entry.metadata().and_then(|found| found.modified());
            changed.is_ok_and(|at| at.elapsed().is_ok_and(|age| age > STRAY_AFTER))
        };
        let entries = std::fs::read_dir(self.inside("."))?.filter_map(Result::ok).filter(is_old);
        Ok(entries.filter_map(|entry| entry.file_name().into_string().ok()).collect())
    }
}

/// A new socket for wake-ups, in the directory of a database file.
pub(super) fn bind(database: &Path, name: &str) -> io::Result<(SocketDirectory, UnixDatagram)> {
    let mut tries = 0;
    loop {
        let bound = SocketDirectory::make(database).and_then(|directory| {
            let socket = directory.bind(name)?;
            Ok((directory, socket))
        });
        match bound {
            // Whoever was the last in it has removed it meanwhile.
            Err(error) if error.kind() == ErrorKind::NotFound && tries < TRIES => tries += 1,
            bound => return bound,
        }
    }
}

/// Where the directory is, and who may use the database file.
fn beside(database: &Path) -> io::Result<(PathBuf, Access)> {
    // As SQLite does with the files that it keeps beside a database.
    let database = database.canonicalize()?;
    let file = Access::of(&database.metadata()?);
    let mut path = database.into_os_string();
    path.push(SUFFIX);
    Ok((path.into(), file))
}

fn parent(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new("/"))
}

/// Lets all who may write the file use the directory, as far as we can: only its owner and root can
/// change it. Tells what it is like then.
fn give_to_writers(directory: &File, file: Access) -> io::Result<Metadata> {
    let mut found = directory.metadata()?;
    if (found.uid(), found.gid()) != (file.owner, file.group) {
        let given = fchown(directory, Some(file.owner), Some(file.group));
        let _ = given.or_else(|_| fchown(directory, None, Some(file.group)));
        found = directory.metadata()?;
    }
    let mode = file.mode(&found, 7);
    if found.mode() & 0o777 == mode {
        return Ok(found);
    }
    let _ = directory.set_permissions(Permissions::from_mode(mode));
    directory.metadata()
}

/// Names come from the database. None may lead out of the directory.
fn is_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
}
