use test_support::{Case, blocking_cases};

use crate::Store;
use crate::support::Place;

pub(crate) const CASES: &[Case] = blocking_cases![
    the_command_finds_its_lock_in_its_environment_whatever_it_inherited,
    a_command_without_the_lock_gets_no_fence,
    the_holder_is_the_host_and_the_command_by_default,
    a_relative_store_is_named_from_the_root,
    stdin_and_stdout_are_the_commands_own,
    the_command_leads_a_process_group_of_its_own,
    the_default_store_is_a_file_that_only_this_user_can_reach,
];

const SCRIPT: &str = r#"for name in KEY LOCK_ID FENCE HOLDER STORE; do
  eval "echo $name=\${LEASEHOLD_$name-unset}"
done"#;

fn value(stdout: &str, name: &str) -> String {
    let line = stdout.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    line.unwrap_or_else(|| panic!("no {name} in {stdout}")).to_owned()
}

fn the_command_finds_its_lock_in_its_environment_whatever_it_inherited(store: Store) {
    let place = Place::new(store);
    let mut command = place.leasehold(["run", "--holder", "me", "a key", "--", "sh", "-c", SCRIPT]);
    for name in ["KEY", "LOCK_ID", "FENCE", "HOLDER"] {
        command.env(format!("LEASEHOLD_{name}"), "inherited");
    }
    let stdout = String::from_utf8(command.output().unwrap().stdout).unwrap();
    assert_eq!(value(&stdout, "KEY"), "a key");
    assert_eq!(value(&stdout, "HOLDER"), "me");
    assert_eq!(value(&stdout, "STORE"), place.public_store());
    assert_eq!(value(&stdout, "LOCK_ID").len(), 22);
    assert_eq!(value(&stdout, "FENCE").len(), 15);
}

fn a_command_without_the_lock_gets_no_fence(store: Store) {
    let place = Place::new(store);
    place.run(["acquire", "k"]);
    let mut command = place.leasehold(["run", "-n", "--proceed-unlocked", "k", "--", "sh", "-c", SCRIPT]);
    let output = command.env("LEASEHOLD_FENCE", "inherited").env("LEASEHOLD_LOCK_ID", "inherited").output().unwrap();
    let stdout = String::from_utf8(output.stdout).unwrap();
    assert_eq!((value(&stdout, "FENCE"), value(&stdout, "LOCK_ID")), ("unset".to_owned(), "unset".to_owned()));
    assert_eq!(value(&stdout, "KEY"), "k");
    assert!(String::from_utf8(output.stderr).unwrap().contains("WITHOUT the lock"));
}

fn the_holder_is_the_host_and_the_command_by_default(store: Store) {
    let place = Place::new(store);
    let done = place.run(["run", "k", "--", "sh", "-c", SCRIPT]);
    assert!(value(&done.stdout, "HOLDER").ends_with("/sh"), "{}", done.stdout);
}

fn a_relative_store_is_named_from_the_root(store: Store) {
    let place = Place::new(store);
    let done = place.run(["run", "--store", "sqlite:here.db", "k", "--", "sh", "-c", SCRIPT]);
    assert!(value(&done.stdout, "STORE").starts_with("sqlite:/"), "{}", done.stdout);
    assert!(place.path("here.db").exists());
}

fn stdin_and_stdout_are_the_commands_own(store: Store) {
    let place = Place::new(store);
    std::fs::write(place.path("input"), "through\n").unwrap();
    let mut command = place.leasehold(["run", "k", "--", "cat"]);
    let output = command.stdin(std::fs::File::open(place.path("input")).unwrap()).output().unwrap();
    assert_eq!(output.stdout, b"through\n");
    assert_eq!(output.stderr, b"", "nothing to say if all is well");
}

fn the_command_leads_a_process_group_of_its_own(store: Store) {
    let place = Place::new(store);
    let done = place.run(["run", "k", "--", "sh", "-c", "echo $$; ps -o pgid= -p $$"]);
    let lines: Vec<_> = done.stdout.lines().map(str::trim).collect();
    assert_eq!(lines[0], lines[1]);
}

fn the_default_store_is_a_file_that_only_this_user_can_reach(store: Store) {
    let place = Place::new(store);
    let script = r#"
mount -t tmpfs none /var/lib
unset LEASEHOLD_STORE
"$LEASEHOLD" run k -- sh -c 'echo $LEASEHOLD_STORE > store'
stat -c %a /var/lib/leasehold > mode
"#;
    assert!(place.with_mounts(script).wait().unwrap().success(), "user namespaces with mounts must be allowed here");
    assert_eq!(place.read("store"), "sqlite:/var/lib/leasehold/locks.db\n", "of root");
    assert_eq!(place.read("mode"), "700\n");
}
