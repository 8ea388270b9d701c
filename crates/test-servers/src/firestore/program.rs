use std::env;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

const NAME: &str = "firestore-double";

/// Where the program is. If nobody has built it yet it is built now, once.
pub(super) fn find() -> io::Result<PathBuf> {
    static PROGRAM: Mutex<Option<PathBuf>> = Mutex::new(None);
    let mut known = PROGRAM.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(program) = &*known {
        return Ok(program.clone());
    }
    let test = env::current_exe()?;
    let program = match beside(&test) {
        Some(program) => program,
        None => build(&test)?,
    };
    Ok(known.insert(program).clone())
}

/// Programs are in the directory above that of tests.
fn beside(test: &Path) -> Option<PathBuf> {
    test.ancestors().skip(1).take(2).map(|directory| directory.join(NAME)).find(|program| program.is_file())
}

fn build(test: &Path) -> io::Result<PathBuf> {
    let profile = test.ancestors().nth(2);
    let target = test.parent().filter(|parent| parent.ends_with("deps")).and(profile).and_then(Path::parent);
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(["build", "--quiet", "--package", NAME, "--message-format", "json"]);
    command.current_dir(env!("CARGO_MANIFEST_DIR"));
    if profile.is_some_and(|profile| profile.ends_with("release")) {
        command.arg("--release");
    }
    // The test of a documentation is somewhere else: then cargo knows best.
    if let Some(target) = target {
        command.arg("--target-dir").arg(target);
    }
    let output = command.output()?;
    let messages = String::from_utf8_lossy(&output.stdout);
    let program = messages.lines().find_map(|line| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        message.get("executable")?.as_str().map(PathBuf::from)
    });
    program.filter(|_| output.status.success()).ok_or_else(|| {
        let errors = String::from_utf8_lossy(&output.stderr);
        io::Error::other(format!("{NAME} cannot be built: {errors}"))
    })
}
