use std::path::Path;

use crate::support::Place;

/// The reference contains the whole `--help` of every command, so this is its snapshot too. Set `UPDATE=1` to write it.
#[test]
fn the_reference_is_up_to_date() {
    let page = Place::new().run(["markdown"]).stdout;
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/cli.md");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    let stored = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(stored == page, "docs/cli.md is out of date: run `UPDATE=1 cargo test -p leasehold-cli reference`");
}

#[test]
fn every_shell_gets_its_completions() {
    let place = Place::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let done = place.run(["completions", shell]);
        assert!(done.code == 0 && done.stdout.contains("force-release"), "{shell}");
    }
}

#[test]
fn there_is_a_manual_page_for_each_command() {
    let place = Place::new();
    assert!(place.run(["man"]).stdout.contains(".TH leasehold 1"));
    assert!(place.run(["man", "run"]).stdout.contains(".TH leasehold-run 1"));
    assert_eq!(place.run(["man", "nonsense"]).code, 64);
}

#[test]
fn help_documents_the_exit_codes() {
    let place = Place::new();
    for arguments in [&["--help"][..], &["run", "--help"], &["ls", "--help"]] {
        let help = place.run(arguments).stdout;
        for code in ["64", "69", "75", "77", "78", "79", "126", "127", "128+N"] {
            assert!(help.lines().any(|line| line.starts_with(&format!("  {code:<6} "))), "{code} in {arguments:?}");
        }
    }
}
