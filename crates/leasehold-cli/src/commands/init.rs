use std::fs::Permissions;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use clap::Args;
use leasehold::{Locks, Verdict};
use nix::unistd::Group;
use serde_json::json;

use crate::default_store::{DIRECTORY, FILE, group_name};
use crate::exit::{self, Failure};
use crate::options::Common;
use crate::output;

/// Make a store for the users of a group
///
/// A SQLite file that root and the members of GROUP may use, and nobody else. Run by root without a
/// DIRECTORY, it is the default store of every user of this host from then on; locks that root
/// holds stay held. Members can neither remove nor replace the file. Safe to run again, for example
/// with another group.
#[derive(Args, Debug)]
#[command(after_help = exit::help())]
pub(crate) struct Options {
    /// Whose members may use the store: a name or a number
    #[arg(long, value_name = "GROUP", value_parser = group)]
    group: u32,
    /// Where to make it: a directory for nothing but locks
    #[arg(value_name = "DIRECTORY", default_value = DIRECTORY)]
    directory: PathBuf,
    #[command(flatten)]
    pub(crate) common: Common,
}

pub(crate) async fn run(options: &Options) -> Result<u8, Failure> {
    if options.common.store.is_some() {
        return Err(Failure::new(exit::USAGE, "init makes a store of its own, and takes no --store")
            .hint("name the directory to make it in"));
    }
    let directory = std::path::absolute(&options.directory).map_err(|error| cannot(&options.directory, &error))?;
    let failed = |error: io::Error| cannot(&directory, &error);
    make_directory(&directory)?;
    let file = directory.join(FILE);
    make_file(&file, options.group).map_err(failed)?;
    // This makes whatever else there is beside the file, for those whom the file is for.
    let url = format!("sqlite:{}", file.display());
    let checks = Locks::examine(&url).await?;
    if let Some(bad) = checks.iter().find(|check| check.verdict == Verdict::Fail) {
        return Err(Failure::new(exit::BAD_STORE, format!("{}: {}: {}", file.display(), bad.name, bad.detail)));
    }
    chown(&directory, None, Some(options.group)).map_err(failed)?;
    std::fs::set_permissions(&directory, Permissions::from_mode(0o750)).map_err(failed)?;
    tell(options, &directory, &url)
}

fn tell(options: &Options, directory: &Path, url: &str) -> Result<u8, Failure> {
    let group = group_name(options.group);
    let is_default = directory == Path::new(DIRECTORY);
    if options.common.json {
        output::json([json!({ "store": url, "group": group, "is_default": is_default })])?;
    } else if !options.common.quiet {
        let who = if is_default { "every user of this host uses it by default" } else { "use it with --store" };
        output::text(&format!("made {url} for root and the group {group}; {who}\n"))?;
    }
    Ok(0)
}

/// A directory that nobody else can change anything in, from now on.
fn make_directory(directory: &Path) -> Result<(), Failure> {
    let failed = |error: io::Error| cannot(directory, &error);
    match std::fs::DirBuilder::new().mode(0o700).create(directory) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        made => return made.map_err(failed),
    }
    let found = std::fs::metadata(directory).map_err(failed)?;
    let unusable = |why: &str| {
        Failure::new(exit::NOT_ALLOWED, format!("cannot make a store in {}: {why}", directory.display()))
            .hint("name a new directory, or one with nothing but locks")
    };
    if found.uid() != rustix::process::geteuid().as_raw() {
        return Err(unusable("it belongs to somebody else"));
    }
    for entry in std::fs::read_dir(directory).map_err(failed)? {
        if !entry.map_err(failed)?.file_name().to_string_lossy().starts_with(FILE) {
            return Err(unusable("there are other things in it"));
        }
    }
    if found.mode() & 0o022 != 0 {
        std::fs::set_permissions(directory, Permissions::from_mode(0o700)).map_err(failed)?;
    }
    Ok(())
}

/// The file with the locks, for us and a group.
fn make_file(file: &Path, group: u32) -> io::Result<()> {
    match std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(file) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    // Others may have been able to put something there before.
    let found = std::fs::symlink_metadata(file)?;
    if !found.is_file() || found.nlink() != 1 {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("{FILE} is no regular file")));
    }
    chown(file, Some(rustix::process::geteuid().as_raw()), Some(group))?;
    std::fs::set_permissions(file, Permissions::from_mode(0o660))
}

fn cannot(directory: &Path, error: &io::Error) -> Failure {
    let code = match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => exit::NOT_ALLOWED,
        _ => exit::BAD_STORE,
    };
    let failure = Failure::new(code, format!("cannot make a store in {}: {error}", directory.display()));
    if code == exit::NOT_ALLOWED { failure.hint("run it as root, for example with sudo") } else { failure }
}

/// A group, by its name or number.
fn group(text: &str) -> Result<u32, String> {
    if let Ok(number) = text.parse() {
        return Ok(number);
    }
    match Group::from_name(text) {
        Ok(Some(group)) => Ok(group.gid.as_raw()),
        _ => Err("there is no such group".to_owned()),
    }
}
