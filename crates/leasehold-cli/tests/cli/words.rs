use std::process::Command;

use test_support::{Case, blocking_cases};

use crate::Store;
use crate::support::{Done, Place};
use crate::terminal::Terminal;

pub(crate) const CASES: &[Case] = blocking_cases![
    a_time_that_could_mean_another_one_is_refused_with_what_to_write,
    a_command_needs_no_dashes_unless_it_starts_with_one,
    an_incomplete_command_line_says_what_to_type,
    keys_may_start_with_a_dash,
    a_table_on_a_terminal_leaves_out_columns_and_cuts_no_key,
    help_is_a_command_too,
    a_lock_of_somebody_else_is_no_news_for_those_who_want_none,
    bash_completes_commands_and_files_behind_the_dashes,
    no_completion_offers_what_is_not_for_users,
    the_manual_is_a_page_for_each_command,
];

fn a_time_that_could_mean_another_one_is_refused_with_what_to_write(store: Store) {
    let place = Place::new(store);
    for (option, time, hint) in [
        ("--ttl", "5M", "5m is minutes, 5d is days"),
        ("--ttl", "5", "5s? 5m?"),
        ("--wait", "1.5", "1.5s? 1.5m?"),
        ("--grace", "1month", "write it in days: 7d"),
        ("--max-hold", "1y", "write it in days: 7d"),
        ("--at-least", "30m 1h", "for example 500ms, 30s or 1h 30m"),
        ("--ttl", "2d", "write 48h if you mean it"),
    ] {
        let done = place.run(["run", option, time, "k", "--", "true"]);
        assert_eq!(done.code, 64, "{option} {time}: {done:?}");
        assert_eq!(done.stderr.lines().nth(1), Some(format!("hint: {hint}").as_str()), "{option} {time}: {done:?}");
    }
    assert_eq!(place.run(["run", "--ttl", "48h", "k", "--", "true"]).code, 0);
    for scheme in ["redis", "postgres"] {
        let done = place.run(["ls", "--store", &format!("{scheme}://127.0.0.1:1/0?timeout=5")]);
        assert_eq!(done.code, 78, "{done:?}");
        assert!(done.stderr.contains("timeout") && done.stderr.ends_with("hint: 5s? 5m?\n"), "{done:?}");
    }
}

fn a_command_needs_no_dashes_unless_it_starts_with_one(store: Store) {
    let place = Place::new(store);
    for (arguments, said) in [
        (&["run", "k", "echo", "--ttl", "-n", "a"][..], "--ttl -n a\n"),
        (&["run", "k", "--ttl", "5s", "echo", "a", "--", "b"], "a -- b\n"),
        (&["run", "--ttl", "5s", "k", "--", "echo", "--", "b"], "-- b\n"),
        // Several keys have to be asked for.
        (&["run", "k", "echo", "--", "b"], "-- b\n"),
        (&["run", "--all", "k", "l", "--", "echo", "--", "b"], "-- b\n"),
        (&["run", "--all", "k", "--", "echo", "--", "b"], "-- b\n"),
        (&["run", "--all", "--shared", "k", "--", "echo", "b"], "b\n"),
    ] {
        let done = place.run(arguments);
        assert_eq!((done.code, done.stdout.as_str()), (0, said), "{arguments:?}: {done:?}");
    }
}

fn an_incomplete_command_line_says_what_to_type(store: Store) {
    let place = Place::new(store);
    for (arguments, hint) in [
        (&["run"][..], "leasehold run KEY CMD"),
        (&["run", "my key"], "leasehold run 'my key' -- CMD"),
        (&["run", "k", "--"], "leasehold run k -- CMD"),
        // As of a script whose variable for the key is empty.
        (&["run", "--", "touch", "a b"], "leasehold run KEY -- touch 'a b'"),
        (&["run", "k", "-x", "a b"], "if it belongs to the command: leasehold run k -- -x 'a b'"),
        (&["run", "k", "-xyz", "a"], "if it belongs to the command: leasehold run k -- -xyz a"),
        (&["run", "k", "--foo=1", "a"], "if it belongs to the command: leasehold run k -- --foo=1 a"),
        (&["run", "k", "--store", "", "true"], "give a URL or a name, or leave it out for the default store"),
        (&["run", "-x", "--", "true"], "if it is the key: leasehold run -- -x -- true"),
        (&["run", "--wiat", "5s", "k", "--", "true"], "a similar argument exists: '--wait'"),
        (&["run", "--all", "a", "b"], "leasehold run --all a b -- CMD"),
        (&["run", "--all", "a", "b", "--"], "leasehold run --all a b -- CMD"),
        (&["run", "--all", "--", "git", "checkout", "--", "f"], "leasehold run --all KEY -- git checkout -- f"),
        (&["run", "--all", "a", "b", "--ttl", "5s", "--", "true"], "options stand before the keys"),
        (&["run", "--all", "a", "b", "a", "--", "true"], "name each key once"),
        (&["run", "--all", "e\u{301}", "é", "--", "true"], "name each key once"),
        (&["run", "--shared", "--permits", "2", "k", "true"], "see leasehold run --help"),
        (&["run", "--permits", "70000", "k", "true"], "65535 are the most"),
        (&["ls", "--jsno"], "a similar argument exists: '--json'"),
    ] {
        let done = place.run(arguments);
        assert_eq!(done.code, 64, "{arguments:?}: {done:?}");
        assert_eq!(done.stderr.lines().nth(1), Some(format!("hint: {hint}").as_str()), "{done:?}");
    }
}

fn keys_may_start_with_a_dash(store: Store) {
    let place = Place::new(store);
    let done = place.run(["run", "--", "-k", "--", "sh", "-c", "echo $LEASEHOLD_KEY"]);
    assert_eq!((done.code, done.stdout.as_str()), (0, "-k\n"), "{done:?}");
    let done = place.run(["run", "--all", "--", "-k", "l", "--", "sh", "-c", "echo $LEASEHOLD_KEYS"]);
    assert_eq!((done.code, done.stdout.as_str()), (0, "-k l\n"), "{done:?}");
    assert_eq!(place.run(["acquire", "--", "-k"]).code, 0);
    assert_eq!(place.run(["show", "--", "-k"]).code, 0);
    assert_eq!(place.run(["force-release", "--yes", "--", "-k"]).code, 0);
}

fn a_table_on_a_terminal_leaves_out_columns_and_cuts_no_key(store: Store) {
    let place = Place::new(store);
    let (short, long) = ("job:short", format!("job:{}", "x".repeat(56)));
    place.run(["acquire", short, "--holder", "host.example.com/report.sh", "--meta", "order=A-17"]);
    let mut terminal = Terminal::new(&place);
    terminal.type_in("stty cols 80 rows 24; \"$LEASEHOLD\" ls; echo listed=$?\n");
    terminal.see("listed=0");
    let screen = terminal.screen();
    let titles = screen.lines().find(|line| line.contains("KEY ")).unwrap();
    assert!(titles.contains("HOLDER") && titles.contains("FENCE"), "{screen}");
    place.run(["acquire", &long, "--holder", "host.example.com/report.sh"]);
    terminal.type_in("\"$LEASEHOLD\" ls; echo again=$?\n");
    terminal.see("again=0");
    let screen = terminal.screen();
    // The shell goes back to the start of the line when it has set up the terminal.
    let shown = |line: &str| line.trim_end().rsplit('\r').next().unwrap_or_default().to_owned();
    let table: Vec<_> = screen.lines().skip_while(|line| !line.contains("echo again")).map(shown).collect();
    assert!(table.iter().all(|line| line.chars().count() <= 80), "{screen}");
    assert!(table.iter().any(|line| line.starts_with(&format!("{long}  host"))), "{screen}");
    assert!(table.iter().any(|line| line.starts_with("KEY ") && !line.contains("FENCE")), "{screen}");
}

fn help_is_a_command_too(store: Store) {
    let place = Place::new(store);
    assert_eq!(place.run(["help"]).stdout, place.run(["--help"]).stdout);
    assert_eq!(place.run(["help", "run"]).stdout, place.run(["run", "--help"]).stdout);
    assert_eq!(place.run(["help", "nonsense"]).code, 64);
}

fn a_lock_of_somebody_else_is_no_news_for_those_who_want_none(store: Store) {
    let place = Place::new(store);
    assert_eq!(place.run(["acquire", "k"]).code, 0);
    for (code, arguments) in [
        (75, &["run", "-n", "-q", "k", "--", "true"][..]),
        (0, &["run", "-n", "-E", "0", "k", "--", "false"]),
        (75, &["acquire", "-q", "--wait", "10ms", "k"]),
    ] {
        let done = place.run(arguments);
        assert_eq!((done.code, done.stderr.as_str()), (code, ""), "{arguments:?}");
    }
    let done = place.run(["run", "-n", "-E", "0", "-v", "k", "--", "false"]);
    assert!(done.stderr.contains("'k' is held by "), "{done:?}");
    let done = place.run(["run", "-q", "k", "--ttl", "5", "--", "true"]);
    assert!(done.stderr.contains("the time has no unit"), "an error is one with -q too: {done:?}");
}

/// What bash offers for the last of these words.
fn offered(place: &Place, words: &[&str]) -> Vec<String> {
    let script = r#"
        source ./completions
        COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMP_LINE="$*" COMP_POINT=${#COMP_LINE}
        spec=$(complete -p leasehold) function=${spec#*-F } function=${function%% *}
        "$function" leasehold "${@: -1}" "${@: -2:1}"
        printf '%s\n' "${COMPREPLY[@]}"
    "#;
    let mut bash = Command::new("bash");
    bash.args(["--norc", "-c", script, "bash"]).args(words).current_dir(place.path(""));
    let done = Done::from(bash.output().unwrap());
    assert_eq!(done.stderr, "", "{words:?}");
    done.stdout.lines().map(|line| line.trim().to_owned()).collect()
}

fn bash_completes_commands_and_files_behind_the_dashes(store: Store) {
    let place = Place::new(store);
    std::fs::write(place.path("completions"), place.run(["completions", "bash"]).stdout).unwrap();
    std::fs::write(place.path("a-file"), "").unwrap();
    let of = |words: &[&str]| offered(&place, words);
    assert!(of(&["leasehold", "run", "k", "--", "tru"]).contains(&"true".to_owned()));
    assert_eq!(of(&["leasehold", "run", "k", "--", "true", "a-f"]), ["a-file"]);
    assert_eq!(of(&["leasehold", "run", "k", "--", "true", "--tt"]), [""]);
    assert_eq!(of(&["leasehold", "run", "k", "--tt"]), ["--ttl"]);
    let commands = of(&["leasehold", ""]);
    assert!(commands.contains(&"force-release".to_owned()) && !commands.contains(&"markdown".to_owned()));
}

fn no_completion_offers_what_is_not_for_users(store: Store) {
    let place = Place::new(store);
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let done = place.run(["completions", shell]);
        assert!(done.stdout.contains("force-release") && !done.stdout.contains("markdown"), "{shell}");
    }
}

fn the_manual_is_a_page_for_each_command(store: Store) {
    let place = Place::new(store);
    let done = place.run(["man", "pages/man1"]);
    assert_eq!((done.code, done.stdout.as_str(), done.stderr.as_str()), (0, "", ""));
    let mut commands: Vec<_> =
        ["acquire", "bench", "completions", "doctor", "extend", "force-release", "init", "ls", "man"]
            .into_iter()
            .chain(["migrate", "release", "run", "show", "watch"])
            .map(|name| format!("leasehold-{name}.1"))
            .collect();
    commands.push("leasehold.1".to_owned());
    commands.sort();
    let mut written: Vec<_> = std::fs::read_dir(place.path("pages/man1"))
        .unwrap()
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .collect();
    written.sort();
    assert_eq!(written, commands);
    for name in commands {
        let page = place.read(&format!("pages/man1/{name}"));
        assert!(page.contains(&format!(".TH {} 1", name.trim_end_matches(".1"))), "{name}: {page}");
        for section in [".SH NAME", ".SH SYNOPSIS", ".SH \"EXIT STATUS\"", ".SH EXAMPLES"] {
            assert!(page.lines().any(|line| line == section), "{name} has no {section}");
        }
        assert!(!page.contains("Exit codes:"), "they have a section: {name}");
    }
    std::fs::write(place.path("file"), "").unwrap();
    assert_eq!(place.run(["man", "file"]).code, 69);
}
