use std::env;
use std::fs::{self, DirBuilder, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use nix::unistd::geteuid;
use tempfile::TempDir;

use crate::account::Account;

/// Durability is what it is for users. Segments of one megabyte make less to copy, and the locale
/// is one that exists everywhere.
const INITDB: [&str; 7] =
    ["--no-sync", "--wal-segsize=1", "--auth=trust", "--username=postgres", "--encoding=UTF8", "--locale=C", "-D"];

/// What differs from PostgreSQL's defaults: small, private, and with nothing that would outlive a
/// killed server in `/dev/shm`.
const SETTINGS: &str = "
listen_addresses = '127.0.0.1'
max_connections = 100
shared_buffers = '16MB'
dynamic_shared_memory_type = 'mmap'
max_logical_replication_workers = 0
";

/// Counts statements, if it is installed. Debian has it in the same package as the server.
const STATISTICS: &str = "pg_stat_statements";

/// Fills `data` with a fresh database cluster.
///
/// `initdb` takes a second, so that what it made is kept for all tests on this machine: as one
/// file, which is there or not, whoever cleans up in the temporary directory.
pub(super) fn unpack(programs: &Path, account: &Account, data: &Path) -> io::Result<()> {
    let archive = open_or_make(programs, account)?;
    DirBuilder::new().mode(0o700).create(data)?;
    account.own(data)?;
    let mut tar = Command::new("tar");
    tar.args(["-x", "-f", "-", "-C"]).arg(data).stdin(archive);
    run(tar, account)
}

fn open_or_make(programs: &Path, account: &Account) -> io::Result<File> {
    let path = archive_path(programs, account)?;
    if let Some(archive) = open(&path)? {
        return Ok(archive);
    }
    // One makes it, and the others wait. The kernel frees the lock if its holder is killed.
    let lock = File::create(path.with_extension("lock"))?;
    lock.lock()?;
    if open(&path)?.is_none() {
        make(programs, account, &path)?;
    }
    open(&path)?.ok_or_else(|| io::Error::other(format!("somebody removes {}", path.display())))
}

/// Everything that decides what is in the archive is in its name.
fn archive_path(programs: &Path, account: &Account) -> io::Result<PathBuf> {
    let server = fs::metadata(programs.join("postgres"))?;
    let mut hasher = DefaultHasher::new();
    (INITDB, SETTINGS, STATISTICS, programs, server.mtime(), server.size(), account.uid().as_raw()).hash(&mut hasher);
    let name = format!("test-servers-postgres-{}-{:016x}.tar", geteuid(), hasher.finish());
    Ok(env::temp_dir().join(name))
}

/// The temporary directory is everybody's: whatever a stranger put there is refused.
fn open(path: &Path) -> io::Result<Option<File>> {
    let archive = match File::open(path) {
        Ok(archive) => archive,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    if archive.metadata()?.uid() != geteuid().as_raw() {
        return Err(io::Error::other(format!("{} belongs to somebody else: remove it", path.display())));
    }
    Ok(Some(archive))
}

fn make(programs: &Path, account: &Account, path: &Path) -> io::Result<()> {
    let directory = TempDir::with_prefix("test-servers-postgres-template-")?;
    account.own(directory.path())?;
    let data = directory.path().join("data");
    let mut initdb = Command::new(programs.join("initdb"));
    initdb.args(INITDB).arg(&data).current_dir(directory.path()).stdin(Stdio::null());
    run(initdb, account)?;

    let mut settings = SETTINGS.to_owned();
    if create_extension(programs, account, &data).is_ok() {
        settings += &format!("shared_preload_libraries = '{STATISTICS}'\n");
    }
    File::options().append(true).open(data.join("postgresql.conf"))?.write_all(settings.as_bytes())?;

    let archive = directory.path().join("data.tar");
    let mut tar = Command::new("tar");
    tar.arg("-C").arg(&data).args(["-c", "-f", "-", "."]).stdin(Stdio::null()).stdout(File::create(&archive)?);
    // Under our own account, so that whoever reads it later can see that it is ours.
    check(&tar.output()?, "tar")?;
    fs::rename(&archive, path)
}

fn create_extension(programs: &Path, account: &Account, data: &Path) -> io::Result<()> {
    let mut sql = tempfile::tempfile()?;
    sql.write_all(format!("CREATE EXTENSION {STATISTICS}\n").as_bytes())?;
    sql.rewind()?;
    let mut server = Command::new(programs.join("postgres"));
    server.arg("--single").arg("-D").arg(data).args(["-c", "exit_on_error=on", "-c", "fsync=off"]);
    server.args(["-c", &format!("shared_preload_libraries={STATISTICS}"), "postgres"]).current_dir(data).stdin(sql);
    run(server, account)
}

fn run(mut command: Command, account: &Account) -> io::Result<()> {
    account.run(&mut command);
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|error| io::Error::new(error.kind(), format!("{program}: {error}")))?;
    check(&output, &program)
}

fn check(output: &Output, program: &str) -> io::Result<()> {
    if output.status.success() {
        return Ok(());
    }
    Err(io::Error::other(format!("{program} fails: {}", String::from_utf8_lossy(&output.stderr).trim())))
}
