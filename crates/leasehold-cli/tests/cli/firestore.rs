use test_servers::{Firestore, FirestoreRole};
use test_support::{Case, blocking_cases};

use crate::Store;
use crate::servers::{check_exit_codes, unused_address};
use crate::support::Place;

pub(crate) const CASES: &[Case] = blocking_cases![
    each_trouble_with_the_server_has_its_exit_code,
    options_of_the_store_are_passed_on,
    the_command_uses_the_same_key_file_wherever_it_goes,
    an_emulator_in_the_environment_is_used,
    an_account_that_may_only_read_sees_the_locks,
    doctor_says_which_role_is_missing,
];

fn each_trouble_with_the_server_has_its_exit_code(store: Store) {
    let (server, emulator) = (Firestore::builder().tls().credentials().start(), Firestore::start());
    let (project, address) = (emulator.project(), emulator.address());
    let place = Place::new(store);
    check_exit_codes(
        &place,
        &[
            (69, &format!("firestore://{project}?emulator={}", unused_address())),
            (77, &server.url_for(FirestoreRole::Stranger)),
            (77, &server.url_for(FirestoreRole::Nobody)),
            (77, &format!("{}/missing", server.url())),
            (78, &format!("firestore://{project}/elsewhere?emulator={address}")),
            (78, &format!("firestore://{project}?emulator={address}&prefix=x")),
            (78, &format!("firestore://{project}?emulator={address}&locks=x&fences=x")),
            (78, &format!("firestore://{project}?endpoint={address}&ca=missing")),
            (78, &format!("firestore://me:s3cret@{project}?emulator={address}")),
            (78, "firestore:nothing"),
        ],
    );
    for url in [server.url(), emulator.url()] {
        assert_eq!(place.run(["run", "--store", &url, "k", "--", "true"]).code, 0);
    }
}

fn options_of_the_store_are_passed_on(store: Store) {
    let server = Firestore::start();
    let place = Place::new(store);
    let base = format!("firestore://{}", server.project());
    let url = format!("{base}/(default)?emulator={}&locks=app&timeout=5s", server.address());
    let done = place.run(["run", "--store", &url, "k", "--", "sh", "-c", "echo $LEASEHOLD_STORE"]);
    assert_eq!(done.stdout.trim(), format!("{base}?locks=app&emulator={}", server.address()));
    assert_eq!(server.documents().into_keys().collect::<Vec<_>>(), ["fence_counters/fence:k"]);
}

fn the_command_uses_the_same_key_file_wherever_it_goes(store: Store) {
    let server = Firestore::builder().tls().credentials().start();
    let place = Place::new(store);
    let key_file = server.service_account(FirestoreRole::Writer);
    std::fs::copy(&key_file, place.path("key.json")).unwrap();
    let url = server.url().replace(key_file.to_str().unwrap(), "key.json");
    let leasehold = env!("CARGO_BIN_EXE_leasehold");
    let script = r#"echo $LEASEHOLD_STORE; cd /; "$0" ls"#;
    let done = place.run(["run", "--store", &url, "k", "--", "sh", "-c", script, leasehold]);
    assert_eq!((done.code, done.stderr.as_str()), (0, ""), "no warning, and the command can use it too");
    assert!(done.stdout.contains("/key.json\n") && done.stdout.contains("KEY"), "{done:?}");
}

fn an_emulator_in_the_environment_is_used(store: Store) {
    let server = Firestore::start();
    let place = Place::new(store);
    let mut command = place.leasehold(["acquire", "--store", &format!("firestore://{}", server.project()), "k"]);
    let done = command.env("FIRESTORE_EMULATOR_HOST", server.address().to_string()).output().unwrap();
    assert!(done.status.success(), "{done:?}");
    assert!(server.document("locks/k").is_some());
}

fn an_account_that_may_only_read_sees_the_locks(store: Store) {
    let server = Firestore::builder().tls().credentials().start();
    let (place, reader) = (Place::new(store), server.url_for(FirestoreRole::Reader));
    let done = place.run(["acquire", "--store", &server.url(), "k", "--holder", "somebody"]);
    assert_eq!(done.code, 0, "{done:?}");
    for arguments in [&["ls"][..], &["show", "k"]] {
        let done = place.run([arguments, &["--store", &reader]].concat());
        assert!(done.code == 0 && done.stdout.contains("somebody"), "{done:?}");
    }
    assert_eq!(place.run(["run", "-n", "other", "--store", &reader, "--", "true"]).code, 77);
}

fn doctor_says_which_role_is_missing(store: Store) {
    let server = Firestore::builder().tls().credentials().start();
    let place = Place::new(store);
    let done = place.run(["doctor", "--store", &server.url_for(FirestoreRole::Reader)]);
    assert_eq!(done.code, 77, "{done:?}");
    let grant = format!("gcloud projects add-iam-policy-binding {}", server.project());
    for expected in ["documents, but not write them", "roles/datastore.user", &grant] {
        assert!(done.stdout.contains(expected), "{expected} is not in\n{}", done.stdout);
    }
}
