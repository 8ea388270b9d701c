//! Whatever takes a URL goes by the table.

use std::path::Path;

use leasehold::stores::{StoreDescriptor, absolute_url, all, public_url};
use leasehold::{Error, ErrorCode, Locks};

fn store(name: &str) -> StoreDescriptor {
    all().into_iter().find(|store| store.name == name).unwrap()
}

/// What everything that takes a URL says to it.
async fn refusals(url: &str) -> Vec<Error> {
    vec![
        Locks::connect(url).await.unwrap_err(),
        Locks::connect_with(url, |builder| builder).await.unwrap_err(),
        Locks::examine(url).await.unwrap_err(),
        Locks::migrate(url).await.unwrap_err(),
        Locks::migration(url).unwrap_err(),
    ]
}

#[test]
fn the_table_has_the_stores_of_this_library_and_says_which_are_in_this_build() {
    for (name, feature, built_in) in [
        ("Memory", None, true),
        ("SQLite", Some("sqlite"), cfg!(feature = "sqlite")),
        ("Redis", Some("redis"), cfg!(feature = "redis")),
        ("PostgreSQL", Some("postgres"), cfg!(feature = "postgres")),
    ] {
        let store = store(name);
        assert_eq!((store.feature, store.is_built_in()), (feature, built_in), "{name}");
    }
}

#[tokio::test]
async fn a_store_that_is_not_in_this_build_is_refused_with_the_feature_it_needs() {
    // With all features there is none, so `scripts/test` runs this without any.
    for store in all().into_iter().filter(|store| !store.is_built_in()) {
        for scheme in store.schemes {
            let url = format!("{scheme}://me:secret@host");
            for error in refusals(&url).await {
                assert_eq!(error.code(), ErrorCode::InvalidArgument);
                assert_eq!(error.to_string(), format!("this build has no {} store", store.name));
                assert_eq!(error.hint(), Some(format!("build with `--features {}`", store.feature.unwrap()).as_str()));
            }
            assert_eq!(public_url(&url), format!("{scheme}:"));
            assert_eq!(absolute_url(&url, Path::new("/srv")), url);
        }
    }
}

#[tokio::test]
async fn unknown_schemes_are_refused_everywhere_and_the_known_ones_named() {
    // Other tests add to them.
    let known = all();
    for error in refusals("nosuch://me:secret@host").await {
        assert_eq!(error.code(), ErrorCode::InvalidArgument);
        let hint = error.hint().unwrap();
        for store in &known {
            for scheme in store.schemes {
                assert_eq!(hint.contains(&format!(" {scheme}:")), store.is_built_in(), "{scheme}: in {hint}");
            }
        }
        assert!(!format!("{error} {error:?}").contains("secret"), "{error:?}");
    }
    for error in refusals("secret").await {
        let hint = error.hint().unwrap();
        for store in &known {
            // Locks in memory exclude nobody else.
            let is_example = store.is_built_in() && store.name != "Memory";
            assert_eq!(hint.contains(store.example), is_example, "{hint}");
        }
        assert!(!format!("{error} {error:?}").contains("secret"), "{error:?}");
    }
}

#[test]
fn a_public_url_has_no_credentials_whatever_the_store() {
    // Other tests may have registered stores of their own.
    let ours = |scheme: &&str| ["memory", "sqlite", "redis", "postgres"].contains(scheme);
    for store in all().into_iter().filter(|store| store.is_built_in() && store.schemes.iter().any(ours)) {
        assert!(!public_url(store.example).contains('@'), "{store:?}");
        for scheme in store.schemes.iter().filter(|_| store.schemes != ["sqlite"]) {
            for url in [
                format!("{scheme}://me:secret@host/x?password=secret"),
                format!("{scheme}:me:secret"),
                format!("{scheme}://host/0?p%61ssword=secret"),
                format!("{scheme}://user:1?a=secret@host"),
                format!("{scheme}://host/0?user=me&password=p@secret"),
                format!("{scheme}://host/0?password=a&password=secret"),
            ] {
                assert!(!public_url(&url).contains("secret"), "{url}");
                assert!(public_url(&url).starts_with(&format!("{scheme}:")), "{url}");
            }
        }
    }
    for unknown in ["nosuch://me:secret@host", "secret", "secret:me@host", ""] {
        assert_eq!(public_url(unknown), "unknown:");
    }
    assert_eq!(public_url("memory:"), "memory:");
}

#[cfg(feature = "redis")]
#[test]
fn a_server_is_named_without_credentials_and_from_anywhere() {
    let here = Path::new("/srv/app");
    let absolute = absolute_url("rediss://:pw@host?ca=ca.pem&key=/k.pem&prefix=x", here);
    assert_eq!(absolute, "rediss://:pw@host?ca=/srv/app/ca.pem&key=/k.pem&prefix=x");
    assert_eq!(public_url("redis://me:secret@host:6379/0?prefix=app"), "redis://host:6379?prefix=app");
    assert_eq!(public_url("unix:///run/r.sock?pass=sec@ret&db=1"), "unix:///run/r.sock?db=1");
}

#[cfg(feature = "postgres")]
#[test]
fn a_database_is_named_without_credentials_and_from_anywhere() {
    let absolute = |url: &str| absolute_url(url, Path::new("/srv/app"));
    for file in ["ca.pem", "system.pem"] {
        let url = format!("postgres://h/db?sslrootcert={file}");
        assert_eq!(absolute(&url), format!("postgres://h/db?sslrootcert=/srv/app/{file}"));
    }
    let system = "postgres://h/db?sslrootcert=system&sslkey=k.pem";
    assert_eq!(absolute(system), "postgres://h/db?sslrootcert=system&sslkey=/srv/app/k.pem");
    assert_eq!(public_url("postgresql://u:p@h/db?sslmode=require&password=x"), "postgresql://h/db?sslmode=require");
    let migration = Locks::migration("postgres://u@192.0.2.1/db?schema=mine").unwrap().unwrap();
    assert!(migration.contains("mine"), "without connecting to anything");
}

#[cfg(feature = "sqlite")]
#[test]
fn files_have_no_credentials_and_are_named_from_the_root() {
    for url in ["sqlite:/var/lib/a@b.db", "sqlite:/var/lib/a@b.db?synchronous=full", "sqlite:a.db?create=false"] {
        assert_eq!(public_url(url), url);
    }
    assert_eq!(public_url("sqlite:///a.db"), "sqlite:/a.db");
    assert_eq!(public_url("sqlite:a.db?password=secret"), "sqlite:", "not one of its URLs");
    let here = Path::new("/srv/app");
    assert_eq!(absolute_url("sqlite:locks.db?create=false", here), "sqlite:/srv/app/locks.db?create=false");
    for already in ["sqlite:/locks.db", "memory:", "redis://host", "nosuch:x"] {
        assert_eq!(absolute_url(already, here), already);
    }
}
