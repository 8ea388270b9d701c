//! Whatever others write, it does nothing to the terminal of whoever reads it.

use std::ffi::{OsStr, OsString};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::ffi::OsStringExt;

use test_servers::eventually;
use test_support::{Case, blocking_cases};
use unicode_width::UnicodeWidthStr;

use crate::Store;
use crate::support::{Done, Place};
use crate::terminal::Terminal;

pub(crate) const CASES: &[Case] = blocking_cases![
    a_lock_does_nothing_to_the_terminal_of_whoever_looks_at_it,
    a_lock_does_nothing_to_the_terminal_of_whoever_wants_it,
    the_question_before_a_forced_release_does_nothing_to_the_terminal,
    arguments_do_nothing_to_the_terminal_and_forge_no_line,
    a_servers_errors_do_nothing_to_the_terminal,
    odd_keys_are_listed_and_watched_in_lines_that_fit_the_terminal,
];

/// What terminals act on, and names may contain: directions, invisible signs.
const MARKS: &str = "\u{202e}\u{2066}\u{61c}\u{200b}\u{feff}\u{e0041}\u{2028}";

/// What only keys, notes, arguments and servers can contain: a colour, the same as one character, a
/// title, a line of its own.
const SEQUENCES: &str = "\u{1b}[31m\u{9b}31m\u{1b}]0;title\u{7}\u{7f}\r\nhint: forged";

fn hostile() -> String {
    format!("x{MARKS}{SEQUENCES}")
}

/// No character of the above got through, and they were not just left out.
fn check(done: &Done) {
    let said = format!("{}{}", done.stdout, done.stderr);
    let found = said.chars().find(|c| (c.is_control() && *c != '\n') || MARKS.contains(*c));
    assert_eq!(found, None, "{done:?}");
    assert!(said.contains("\\u{202e}") || said.contains("\\u202e"), "{done:?}");
    assert!(!said.lines().any(|line| line.starts_with("hint: forged")), "{done:?}");
}

fn check_all<S: AsRef<OsStr> + std::fmt::Debug>(place: &Place, commands: &[&[S]]) {
    for arguments in commands {
        check(&place.run(*arguments));
        // As JSON, too.
        let json = [OsString::from("--json")];
        let arguments = arguments.iter().map(AsRef::as_ref);
        let (command, rest) = (arguments.clone().take(1), arguments.skip(1));
        check(&place.run(command.chain(json.iter().map(AsRef::as_ref)).chain(rest)));
    }
}

/// A lock whose key, holder and notes are hostile.
fn held(store: Store) -> (Place, String) {
    let place = Place::new(store);
    let (key, note) = (hostile(), format!("note{0}={0}", hostile()));
    let done = place.run(["acquire", &key, "--holder", &format!("me{MARKS}"), "--meta", &note]);
    assert_eq!(done.code, 0, "{done:?}");
    check(&done);
    (place, key)
}

fn a_lock_does_nothing_to_the_terminal_of_whoever_looks_at_it(store: Store) {
    let (place, key) = held(store);
    check_all(&place, &[&["ls"][..], &["show", &key], &["show", &format!("other{key}")]]);
    for arguments in [&["watch"][..], &["watch", "--json"]] {
        let watch = place.start(arguments);
        eventually("watch sees it", || watch.stdout().contains("202e"));
        watch.signal("INT");
        check(&watch.done());
    }
    check(&place.run(["force-release", "--yes", &key]));
}

fn a_lock_does_nothing_to_the_terminal_of_whoever_wants_it(store: Store) {
    let (place, key) = held(store);
    check_all(
        &place,
        &[
            &["run", "-n", &key, "--", "true"][..],
            &["run", "--wait", "20ms", &key, "--", "true"],
            &["run", "-n", "--proceed-unlocked", &key, "--", "true"],
            &["run", "-v", &format!("other{key}"), "--", "true"],
            &["acquire", "-n", &key],
        ],
    );
}

fn the_question_before_a_forced_release_does_nothing_to_the_terminal(store: Store) {
    let place = Place::new(store);
    // Written so that the shell does not echo it.
    let key = r"$(printf 'k\342\200\256\033[31m')";
    assert_eq!(place.run(["acquire", "k\u{202e}\u{1b}[31m", "--holder", "me\u{202e}"]).code, 0);
    let mut terminal = Terminal::new(&place);
    terminal.type_in(&format!("\"$LEASEHOLD\" force-release \"{key}\"\n"));
    terminal.see(r"Release 'k\u{202e}\u{1b}[31m', held by me\u{202e} for ");
    terminal.type_in("y\n");
    terminal.see(r"released 'k\u{202e}\u{1b}[31m', which me\u{202e} held");
    assert!(!terminal.screen().contains('\u{202e}') && !terminal.screen().contains("\u{1b}[31m"));
    assert_eq!(place.run(["ls", "--json"]).stdout, "");
}

fn arguments_do_nothing_to_the_terminal_and_forge_no_line(store: Store) {
    let place = Place::new(store);
    let text = format!("{}\n  tip: forged", hostile());
    let option = format!("--{text}");
    let file = format!("sqlite:/no/such{text}");
    check_all(
        &place,
        &[
            &[text.as_str()][..],
            &["run", &option, "k", "--", "true"],
            &["run", "k", &text, "--", "true"],
            &["run", "--wait", &text, "k", "--", "true"],
            &["run", "--ttl", &text, "k", "--", "true"],
            &["run", "--meta", &text, "k", "--", "true"],
            &["run", "k", "--", &text],
            &["run", "-E", &text, "k", "--", "true"],
            &["release", &format!("--{text}")],
            &["doctor", "--store", &file],
        ],
    );
    check(&place.run(["completions", &text]));
    let not_text = OsString::from_vec(b"/no\xff\x1b[31m\xe2\x80\xae".to_vec());
    check_all(&place, &[&[OsStr::new("run"), OsStr::new("k"), OsStr::new("--"), &not_text][..]]);
    for arguments in [&[not_text.as_os_str()][..], &[OsStr::new("ls"), &not_text]] {
        let done = place.run(arguments);
        assert!(done.code == 64 && !done.stderr.contains('\u{1b}'), "{done:?}");
    }
}

/// A server that answers everything with an error that it made up.
fn lying_server() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let error = hostile().replace("\r\n", "");
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let error = error.clone();
            std::thread::spawn(move || {
                while stream.read(&mut [0; 4096]).is_ok_and(|read| read > 0) {
                    let _ = stream.write_all(format!("-ERR {error}\r\n").repeat(8).as_bytes());
                }
            });
        }
    });
    format!("redis://{address}")
}

fn a_servers_errors_do_nothing_to_the_terminal(store: Store) {
    let (place, server) = (Place::new(store), lying_server());
    for arguments in [
        &["ls", "-v", "--store", &server][..],
        &["ls", "--json", "--store", &server],
        &["run", "-nv", "--store", &server, "k", "--", "true"],
    ] {
        let done = place.run(arguments);
        assert!(matches!(done.code, 69..=78), "{done:?}");
        check(&done);
    }
}

/// Keys whose characters are drawn in one, or made of several.
fn odd_keys() -> [String; 5] {
    [
        "❤\u{fe0f}".repeat(60),
        "👩🏽\u{200d}🚒".repeat(25),
        "🇩🇪".repeat(50),
        "e\u{301}\u{323}".repeat(80),
        format!("日本語{}", MARKS.repeat(4)),
    ]
}

fn odd_keys_are_listed_and_watched_in_lines_that_fit_the_terminal(store: Store) {
    let place = Place::new(store);
    for key in odd_keys() {
        let done = place.run(["acquire", &key, "--holder", &HOLDER.repeat(20), "--meta", "n=❤\u{fe0f}❤\u{fe0f}"]);
        assert_eq!(done.code, 0, "{done:?}");
    }
    let mut terminal = Terminal::new(&place);
    terminal.type_in("stty cols 80 rows 24; \"$LEASEHOLD\" ls; echo listed=$?\n");
    terminal.see("listed=0");
    let listed = terminal.screen();
    assert_eq!(rows(&listed).len(), 6, "{listed}");
    terminal.type_in("\"$LEASEHOLD\" watch\n");
    let drawn = || terminal.screen().split_once(CLEAR).map(|(_, drawn)| rows(drawn).len());
    eventually("watch draws all of them", || drawn() >= Some(6));
    terminal.type_in("\u{3}");
    terminal.see_times("ready> ", 3);
    terminal.type_in("echo watched=$?\n");
    terminal.see("watched=130");
    for row in rows(&terminal.screen()) {
        assert!(row.width() <= 80, "{row}");
    }
}

/// What the name of the holder is made of.
const HOLDER: &str = "👩🏽";

/// Clears the screen.
const CLEAR: &str = "\u{1b}[H\u{1b}[2J";

/// The lines of tables, and those of changes: they have a holder, or its title.
fn rows(screen: &str) -> Vec<String> {
    let lines = screen.lines().filter(|line| line.contains(HOLDER) || line.contains("HOLDER"));
    // The shell goes back to the start of the line when it has set up the terminal.
    let shown = lines.map(|line| line.trim_end().rsplit(['\r', '\u{1b}']).next().unwrap_or_default());
    shown.map(|line| line.trim_start_matches("[2J").to_owned()).collect()
}
