use super::StoreDescriptor;

/// One line of the table. With a feature, the driver is there only if that is on.
macro_rules! store {
    ($name:literal, $schemes:expr, $example:literal, $driver:expr) => {
        StoreDescriptor::new($name, &$schemes, $example, &$driver)
    };
    ($name:literal, $schemes:expr, $example:literal, $driver:expr, feature = $feature:literal) => {
        StoreDescriptor {
            name: $name,
            schemes: &$schemes,
            example: $example,
            feature: Some($feature),
            #[cfg(feature = $feature)]
            driver: Some(&$driver),
            #[cfg(not(feature = $feature))]
            driver: None,
        }
    };
}

/// The stores that come with this library: for each a folder and a line here. Those whose feature
/// is off are here too, so that errors can say what is missing.
#[rustfmt::skip]
pub(super) static TABLE: &[StoreDescriptor] = &[
    store!("Memory", ["memory"], "memory:", crate::memory::Driver),
    store!("SQLite", ["sqlite"], "sqlite:/var/lib/app/locks.db", crate::sqlite::Driver, feature = "sqlite"),
    store!("Redis", REDIS, "redis://host:6379/0", crate::redis::Driver, feature = "redis"),
    store!("PostgreSQL", ["postgres", "postgresql"], "postgres://user@host/database", crate::postgres::Driver, feature = "postgres"),
    store!("Firestore", ["firestore"], "firestore://project", crate::firestore::Driver, feature = "firestore"),
];

/// Too many for a line.
const REDIS: [&str; 7] = ["redis", "rediss", "valkey", "valkeys", "unix", "redis+sentinel", "rediss+sentinel"];

/// The example among the URLs with `scheme`, for the errors of a store of the table.
pub(crate) fn example_of(scheme: &str) -> &'static str {
    TABLE
        .iter()
        .find(|store| store.schemes.contains(&scheme))
        .map_or("sqlite:/var/lib/app/locks.db", |store| store.example)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scheme_belongs_to_one_store_and_every_example_to_its_own() {
        let mut seen = std::collections::HashSet::new();
        for store in TABLE {
            assert!(store.schemes.iter().all(|scheme| seen.insert(scheme)), "{store:?}");
            let (scheme, _) = store.example.split_once(':').unwrap();
            assert_eq!((store.schemes.contains(&scheme), example_of(scheme)), (true, store.example), "{store:?}");
        }
    }

    #[test]
    fn a_store_whose_feature_is_off_is_known_and_says_what_it_needs() {
        let postgres = TABLE.iter().find(|store| store.name == "PostgreSQL").unwrap();
        let off = StoreDescriptor { driver: None, ..*postgres };
        let error = off.driver().unwrap_err();
        assert_eq!(error.code(), crate::ErrorCode::InvalidArgument);
        assert_eq!(error.to_string(), "this build has no PostgreSQL store");
        assert_eq!(error.hint(), Some("build with `--features postgres`"));
        assert!(!off.is_built_in());
    }
}
