//! Which store is used, and who is told.

use std::ffi::OsStr;
use std::fs::Permissions;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use test_support::{Case, blocking_cases};

use crate::Store;
use crate::servers::unused_address;
use crate::sqlite::through;
use crate::support::{Done, Place};

pub(crate) const CASES: &[Case] = blocking_cases![
    users_of_one_host_are_told_that_they_do_not_exclude_each_other,
    root_and_the_members_of_a_group_exclude_each_other_once_there_is_a_store_for_them,
    a_member_of_the_group_can_put_nothing_in_the_place_of_the_store,
    a_store_for_a_group_is_made_nowhere_else,
    the_store_of_this_user_comes_before_that_of_the_host,
    a_store_has_a_name_also_for_the_command,
    a_configuration_that_makes_no_sense_is_refused_with_its_line,
    a_password_is_no_secret_on_the_command_line_and_in_a_file_for_all,
    without_a_home_it_is_said_what_to_set,
    locks_in_memory_are_never_recommended_and_warned_of,
    errors_name_the_address_that_was_tried,
];

/// Runs `script` as root of a host of its own, as far as the directories for locks and settings go,
/// with `$LEASEHOLD`, and `as USER COMMAND` to run something as another user, in no group but 54321
/// if the user is below 54330.
fn on_a_host(place: &Place, script: &str) -> Done {
    std::fs::set_permissions(place.path("."), Permissions::from_mode(0o777)).unwrap();
    let setup = r#"
mount -t tmpfs -o mode=755 none /var/lib
mount -t tmpfs -o mode=755 none /etc
unset LEASEHOLD_STORE XDG_CONFIG_HOME XDG_STATE_HOME
export HOME=$PWD/root
as() {
    user=$1; shift
    groups=54321; [ $user -lt 54330 ] || groups=54399
    HOME=$PWD/home-$user setpriv --reuid $user --regid 54398 --groups $groups "$@"
}
code() { expected=$1; shift; set +e; "$@"; got=$?; set -e; [ $got = $expected ] || { echo "$*: $got"; exit 99; }; }
"#;
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-e", "-c", &format!("{setup}\n{script}")]);
    command.env("LEASEHOLD", env!("CARGO_BIN_EXE_leasehold")).current_dir(place.path("."));
    let done = Done::from(command.output().expect("these tests need the program `unshare`"));
    assert_eq!(done.code, 0, "the tests need root: {done:?}");
    done
}

fn users_of_one_host_are_told_that_they_do_not_exclude_each_other(store: Store) {
    let place = Place::new(store);
    let script = r#"
mkdir -m 700 home-54331; chown 54331 home-54331
as 54331 "$LEASEHOLD" run k -- true 2> first
as 54331 "$LEASEHOLD" run k -- true 2> second
as 54331 "$LEASEHOLD" run -v k -- true 2> verbose
as 54331 "$LEASEHOLD" ls > /dev/null 2> ls
as 54331 "$LEASEHOLD" ls -q 2> quiet
as 54331 "$LEASEHOLD" doctor > doctor
"#;
    on_a_host(&place, script);
    for (file, expected) in [
        ("first", "for the user 54331 alone: other users of this host do not see them"),
        ("verbose", "/home-54331/.local/state/leasehold/locks.db (by default, for the user 54331 alone)"),
        ("ls", "for the user 54331 alone"),
        ("doctor", "warn  chosen       by default, for the user 54331 alone"),
    ] {
        assert!(place.read(file).contains(expected), "{file}: {}", place.read(file));
    }
    assert_eq!((place.read("second"), place.read("quiet")), (String::new(), String::new()), "said once");
}

fn root_and_the_members_of_a_group_exclude_each_other_once_there_is_a_store_for_them(store: Store) {
    let place = Place::new(store);
    // As a cron job of root that lets nobody else read what it makes.
    let script = r#"
umask 077
hold='echo $$ > held; while [ ! -e stop ]; do sleep 0.02; done'
start() { rm -f held stop; "$@" run k -- sh -c "$hold" & while [ ! -s held ]; do sleep 0.02; done; }
stop() { > stop; chmod 666 stop; wait; }
start "$LEASEHOLD" 2> /dev/null
"$LEASEHOLD" init --group 54321 > made
code 75 as 54322 "$LEASEHOLD" run -qn k -- true
as 54322 "$LEASEHOLD" run --wait 5m k -- touch woken 2> waiting &
while ! grep -q "held by" waiting; do sleep 0.02; done
stop
start as 54323 "$LEASEHOLD"
code 75 "$LEASEHOLD" run -qn k -- true
code 75 as 54322 "$LEASEHOLD" run -qn k -- true
stop
as 54322 "$LEASEHOLD" doctor > doctor
code 77 as 54331 "$LEASEHOLD" run k -- true 2> stranger
stat -c %a:%g /var/lib/leasehold /var/lib/leasehold/locks.db* > modes
"#;
    std::fs::write(place.path("waiting"), "").unwrap();
    std::fs::set_permissions(place.path("waiting"), Permissions::from_mode(0o666)).unwrap();
    on_a_host(&place, script);
    assert!(place.path("woken").exists());
    assert!(
        place.read("made").contains("for root and the group 54321; every user of this host"),
        "{}",
        place.read("made")
    );
    assert!(place.read("stranger").contains("is for the group 54321"), "{}", place.read("stranger"));
    let doctor = place.read("doctor");
    assert!(doctor.contains("ok    chosen       by default, for root and the group 54321"), "{doctor}");
    assert!(doctor.contains("everybody who waits can be woken") && doctor.contains("verdict: good"), "{doctor}");
    assert_eq!(place.read("modes"), "750:54321\n660:54321\n770:54321\n660:54321\n660:54321\n");
}

fn a_member_of_the_group_can_put_nothing_in_the_place_of_the_store(store: Store) {
    let place = Place::new(store);
    let script = r#"
"$LEASEHOLD" init -q --group 54321
for file in /var/lib/leasehold/locks.db*; do
    code 1 as 54322 mv $file /var/lib/leasehold/other 2> /dev/null
    code 1 as 54322 ln -sfT /etc/nologin $file 2> /dev/null
done
code 1 as 54322 touch /var/lib/leasehold/new 2> /dev/null
"$LEASEHOLD" run k -- true
"#;
    on_a_host(&place, script);
}

fn a_store_for_a_group_is_made_nowhere_else(store: Store) {
    let place = Place::new(store);
    let script = r#"
code 77 as 54331 "$LEASEHOLD" init --group 54399 2> not-root
mkdir full theirs linked; touch full/report; chown 54331 theirs; ln -s /etc/nologin linked/locks.db
code 77 "$LEASEHOLD" init --group 54321 full 2> /dev/null
code 77 "$LEASEHOLD" init --group 54321 theirs 2> /dev/null
code 78 "$LEASEHOLD" init --group 54321 linked 2> /dev/null
[ ! -e /etc/nologin ]
code 64 "$LEASEHOLD" init --group no-such-group 2> /dev/null
code 64 "$LEASEHOLD" init --store sqlite:x --group 54321 2> /dev/null
"$LEASEHOLD" init --json --group 54321 new > json
"$LEASEHOLD" init --group 54321 new
as 54322 "$LEASEHOLD" run --store sqlite:$PWD/new/locks.db k -- true
"#;
    on_a_host(&place, script);
    assert!(place.read("not-root").contains("hint: run it as root"), "{}", place.read("not-root"));
    assert!(place.read("json").contains(r#""is_default":false"#), "{}", place.read("json"));
}

fn the_store_of_this_user_comes_before_that_of_the_host(store: Store) {
    let place = Place::new(store);
    let script = r#"
origin() { "$LEASEHOLD" doctor "$@" | grep -E '^(ok|warn) +(store|chosen) '; }
mkdir -p /etc/leasehold root/.config/leasehold
printf 'store = "sqlite:/etc/leasehold/host.db"\n[stores]\na = "sqlite:/etc/leasehold/a.db"\n' > /etc/leasehold/config.toml
origin
printf '[stores]\na = "sqlite:user.db"\n' > root/.config/leasehold/config.toml
origin --store a
printf 'store = "a"\n[stores]\na = "sqlite:user.db"\n' > root/.config/leasehold/config.toml
origin
LEASEHOLD_STORE=sqlite:variable.db origin
LEASEHOLD_STORE=sqlite:variable.db origin --store sqlite:option.db
"#;
    let said = on_a_host(&place, script).stdout;
    let lines: Vec<_> =
        said.lines().map(|line| line.split_whitespace().skip(2).collect::<Vec<_>>().join(" ")).collect();
    let here = place.path(".").canonicalize().unwrap().display().to_string();
    let of_user = format!("{here}/root/.config/leasehold");
    assert_eq!(lines[..2], ["sqlite:/etc/leasehold/host.db", "from /etc/leasehold/config.toml"]);
    let user = [format!("sqlite:{of_user}/user.db"), format!("from {of_user}/config.toml")];
    assert_eq!((&lines[2..4], &lines[4..6]), (&user[..], &user[..]));
    assert_eq!(lines[6..8], [format!("sqlite:{here}/variable.db"), "from LEASEHOLD_STORE".to_owned()]);
    assert_eq!(lines[8..], [format!("sqlite:{here}/option.db"), "from --store".to_owned()]);
}

/// The command with only what this configuration says.
fn configured(place: &Place, config: &str, arguments: &[&str]) -> Command {
    let directory = place.path("config/leasehold");
    std::fs::create_dir_all(&directory).unwrap();
    std::fs::write(directory.join("config.toml"), config).unwrap();
    let mut command = place.leasehold(arguments);
    command.env_remove("LEASEHOLD_STORE").env("XDG_CONFIG_HOME", place.path("config"));
    command
}

fn done(mut command: Command) -> Done {
    Done::from(command.output().unwrap())
}

fn a_store_has_a_name_also_for_the_command(store: Store) {
    let place = Place::new(store);
    let config = format!("[stores]\nprod = \"{}\"\n", place.store());
    let script = r#"echo $LEASEHOLD_STORE; "$0" show k > /dev/null"#;
    let leasehold = env!("CARGO_BIN_EXE_leasehold");
    let named =
        done(configured(&place, &config, &["run", "--store", "prod", "k", "--", "sh", "-c", script, leasehold]));
    assert_eq!((named.code, named.stdout.as_str()), (0, "prod\n"), "{named:?}");
    let unknown = done(configured(&place, &config, &["ls", "--store", "test"]));
    assert_eq!(unknown.code, 78);
    assert!(unknown.stderr.contains("there is no store called 'test'"), "{unknown:?}");
    assert!(unknown.stderr.contains("config/leasehold/config.toml or /etc/leasehold/config.toml"), "{unknown:?}");
}

fn a_configuration_that_makes_no_sense_is_refused_with_its_line(store: Store) {
    let place = Place::new(store);
    let wrong = done(configured(&place, "\n[stores]\n\n[stoers]\na = \"s3cret\"\n", &["ls"]));
    assert_eq!(wrong.code, 78);
    assert!(wrong.stderr.contains("config.toml: line 4: unknown key 'stoers'\nhint: "), "{wrong:?}");
    let with_url = done(configured(&place, "nonsense", &["ls", "--store", &place.store()]));
    assert_eq!(with_url.code, 0, "whoever names a store needs no file: {with_url:?}");
    let mut unreadable = place.leasehold(["ls"]);
    let unreadable = unreadable.env("LEASEHOLD_STORE", OsStr::from_bytes(b"sqlite:\xff")).output().unwrap();
    assert_eq!(unreadable.status.code(), Some(78), "not the default store");
    configured(&place, "", &[]);
    let file = place.path("config/leasehold/config.toml");
    std::fs::set_permissions(&file, Permissions::from_mode(0o666)).unwrap();
    let by_anybody = done(configured(&place, "", &["ls"]));
    assert!(by_anybody.code == 78 && by_anybody.stderr.contains("others may write it"), "{by_anybody:?}");
    std::fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
    std::fs::set_permissions(place.path("."), Permissions::from_mode(0o777)).unwrap();
    let stranger = ["setpriv", "--reuid", "54340", "--regid", "54340", "--clear-groups"];
    let not_for_us = done(through(&stranger, &configured(&place, "", &["ls"])));
    assert!(not_for_us.code == 78 && not_for_us.stderr.contains("config.toml"), "not the default: {not_for_us:?}");
    std::fs::remove_file(&file).unwrap();
    assert!(Command::new("mkfifo").arg(&file).status().unwrap().success());
    let mut pipe = place.leasehold(["ls"]);
    pipe.env_remove("LEASEHOLD_STORE").env("XDG_CONFIG_HOME", place.path("config"));
    let pipe = done(pipe);
    assert!(pipe.code == 78 && pipe.stderr.contains("config.toml"), "{pipe:?}");
}

fn a_password_is_no_secret_on_the_command_line_and_in_a_file_for_all(store: Store) {
    let place = Place::new(store);
    let url = format!("redis://:s3cret@{}", unused_address());
    let warned = |done: &Done, expected: &str| {
        assert_eq!(done.code, 69, "{done:?}");
        assert!(!done.stderr.contains("s3cret"), "{done:?}");
        done.stderr.matches(expected).count()
    };
    let told = "warning: the password in --store can be read";
    assert_eq!(warned(&place.run(["ls", "--store", &url]), told), 1);
    assert_eq!(warned(&place.run(["ls", "-q", "--store", &url]), told), 0);
    let from_variable = Done::from(place.leasehold(["ls"]).env("LEASEHOLD_STORE", &url).output().unwrap());
    assert_eq!(warned(&from_variable, "warning"), 0);
    let config = format!("[stores]\nprod = \"{url}\"\n");
    let mut named = configured(&place, &config, &["ls", "--store", "prod"]);
    let set = |mode| std::fs::set_permissions(place.path("config/leasehold/config.toml"), Permissions::from_mode(mode));
    set(0o644).unwrap();
    assert_eq!(warned(&Done::from(named.output().unwrap()), "warning: others may read the password in"), 1);
    set(0o600).unwrap();
    assert_eq!(warned(&Done::from(named.output().unwrap()), "warning"), 0);
}

fn without_a_home_it_is_said_what_to_set(store: Store) {
    let place = Place::new(store);
    let script = r#"
mkdir -m 755 home-54332
mkdir -m 700 home-54333; chown 54333 home-54333
run() { as $1 env $2 "$LEASEHOLD" run -q k -- true; }
code 78 run 54331 -uHOME 2> none
code 78 run 54331 HOME=relative 2> relative
code 77 run 54331 HOME=/nonexistent 2> missing
code 77 run 54332 A=b 2> read-only
run 54333 A=b
run 54332 XDG_STATE_HOME=$PWD/home-54332/../state
run 54332 LEASEHOLD_STORE=sqlite:$PWD/state/other.db
"#;
    std::fs::create_dir(place.path("state")).unwrap();
    std::fs::set_permissions(place.path("state"), Permissions::from_mode(0o777)).unwrap();
    on_a_host(&place, script);
    let hint = "hint: name a store with --store or LEASEHOLD_STORE, or set HOME or XDG_STATE_HOME";
    for (file, expected) in [
        ("none", "there is no home directory"),
        ("relative", "there is no home directory"),
        ("missing", "cannot keep locks in /nonexistent/.local/state/leasehold: "),
        ("read-only", "/home-54332/.local/state/leasehold: "),
    ] {
        let said = place.read(file);
        assert!(said.contains(expected) && said.contains(hint), "{file}: {said}");
    }
}

fn locks_in_memory_are_never_recommended_and_warned_of(store: Store) {
    let place = Place::new(store);
    for url in ["nonsense", "sqlite:", "redis:x", ""] {
        let done = place.run(["run", "--store", url, "k", "--", "true"]);
        assert!(!done.stderr.contains("memory:"), "{url}: {done:?}");
    }
    for command in [&["run", "--store", "memory:", "k", "--", "true"][..], &["acquire", "--store", "memory:", "k"]] {
        let done = place.run(command);
        assert_eq!(done.code, 0);
        assert!(done.stderr.contains("warning: locks in memory: exclude nobody"), "{done:?}");
    }
}

fn errors_name_the_address_that_was_tried(store: Store) {
    let place = Place::new(store);
    let address = unused_address();
    let missing = place.path("missing/locks.db").display().to_string();
    // Whoever only looks at a file that is not there sees no locks.
    let commands = [&["run", "-n", "k", "--", "true"][..], &["migrate"], &["ls"], &["show", "k"]];
    for (tried, url, commands) in [
        (format!("redis://{address}"), format!("redis://me:s3cret@{address}"), &commands[..]),
        (format!("postgres://{address}/app"), format!("postgres://me:s3cret@{address}/app"), &commands[..]),
        (format!("sqlite:{missing}"), format!("sqlite:{missing}"), &commands[..2]),
    ] {
        for command in commands {
            let mut command = place.leasehold(*command);
            let done = Done::from(command.env("LEASEHOLD_STORE", &url).output().unwrap());
            assert!(done.stderr.starts_with(&format!("leasehold: {tried}")), "{tried}: {done:?}");
        }
    }
    assert!(!Path::new(&missing).exists());
}
