use std::path::Path;

use test_support::{Case, blocking_cases};

use crate::Store;
use crate::support::Place;

pub(crate) const CASES: &[Case] =
    blocking_cases![the_reference_is_up_to_date, help_names_every_store_of_the_table, help_documents_the_exit_codes,];

/// The reference contains the whole `--help` of every command, so this is its snapshot too. Set
/// `UPDATE=1` to write it.
fn the_reference_is_up_to_date(store: Store) {
    let page = Place::new(store).run(["markdown"]).stdout;
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/cli.md");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    let stored = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(stored == page, "docs/cli.md is out of date: run `UPDATE=1 cargo test -p leasehold-cli reference`");
}

fn help_names_every_store_of_the_table(store: Store) {
    let help = Place::new(store).run(["run", "--help"]).stdout;
    // Lines are broken between words.
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    for store in leasehold::stores::all().into_iter().filter(leasehold::stores::StoreDescriptor::is_built_in) {
        let schemes: Vec<_> = store.schemes.iter().map(|scheme| format!("{scheme}:")).collect();
        assert!(help.contains(&format!("{} ({})", store.name, schemes.join(", "))), "{}: {help}", store.name);
        assert!(help.contains(store.example), "{}: {help}", store.name);
    }
}

fn help_documents_the_exit_codes(store: Store) {
    let place = Place::new(store);
    for arguments in [&["--help"][..], &["run", "--help"], &["ls", "--help"]] {
        let help = place.run(arguments).stdout;
        for code in ["64", "69", "75", "77", "78", "79", "126", "127", "128+N"] {
            assert!(help.lines().any(|line| line.starts_with(&format!("  {code:<6} "))), "{code} in {arguments:?}");
        }
    }
}
