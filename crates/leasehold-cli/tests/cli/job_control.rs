//! What a person at a terminal does with a command: Ctrl-C, Ctrl-Z, `fg`, `bg`, a larger window.

use test_servers::{eventually, is_alive};
use test_support::{Case, blocking_cases};

use crate::Store;
use crate::support::{Place, signal};
use crate::terminal::Terminal;

pub(crate) const CASES: &[Case] = blocking_cases![
    top_has_the_terminal_from_the_start,
    a_program_that_draws_can_be_stopped_continued_and_resized,
    a_program_in_the_background_gets_the_terminal_when_it_is_brought_to_the_foreground,
    a_shell_controls_its_own_jobs,
    a_program_that_is_killed_leaves_the_terminal_as_it_was,
    a_program_that_ends_by_itself_may_change_the_terminal,
    the_others_in_a_pipeline_can_read_the_terminal,
    a_program_in_a_pipeline_gets_the_terminal_when_it_asks,
    ctrl_c_ends_the_loop_or_the_script_around_the_command,
    ctrl_c_ends_all_that_the_command_started,
    a_command_that_handles_ctrl_c_decides_about_the_script_around_it,
    a_shell_that_has_taken_the_terminal_back_keeps_it,
    messages_do_not_stop_us_on_a_terminal_that_stops_writers,
    ctrl_z_without_anybody_to_continue_us_stops_nothing,
    a_run_inside_a_run_can_be_stopped_and_continued,
    a_terminal_that_goes_away_ends_who_does_not_expect_it_and_nobody_else,
];

/// A program that does to the terminal what editors and pagers do, and stops itself as `top` does.
/// It says what happens to it, in words that are not in its text.
const SCREEN: &str = r#"
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>
static struct termios before, raw;
static void say(const char *what, const char *more) {
    char line[80];
    write(1, line, snprintf(line, sizeof line, "[%s%s]\r\n", what, more));
}
static void wait_for_terminal(int number) {
    raise(SIGSTOP);
    say("aga", "in");
}
static void stop(int number) {
    tcsetattr(0, TCSANOW, &before);
    raise(SIGSTOP);
    tcsetattr(0, TCSANOW, &raw);
    say("aga", "in");
}
static void resized(int number) { say("resi", "zed"); }
static void hear(int number, void (*handler)(int)) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = handler;
    action.sa_flags = SA_RESTART;
    sigaction(number, &action, 0);
}
int main(void) {
    tcgetattr(0, &before);
    raw = before;
    raw.c_lflag &= ~(ICANON | ECHO);
    hear(SIGTSTP, stop);
    hear(SIGTTOU, wait_for_terminal);
    hear(SIGWINCH, resized);
    tcsetattr(0, TCSANOW, &raw);
    say("dra", "wn");
    for (char key[2] = {0}; read(0, key, 1) == 1;) {
        say("key ", key);
        if (*key == 'q') break;
    }
    tcsetattr(0, TCSANOW, &before);
    return 3;
}
"#;

/// A shell on a terminal, in a place where there is the program `./screen`.
fn with_screen(place: &Place) -> Terminal<'_> {
    let source = place.script("screen.c", SCREEN);
    let compiled = std::process::Command::new("cc").arg("-o").arg(place.path("screen")).arg(source).status().unwrap();
    assert!(compiled.success());
    Terminal::new(place)
}

/// Types a command that shows how the one before ended.
fn expect_code(terminal: &mut Terminal<'_>, code: i32) {
    terminal.type_in("echo '<'$?'>'\n");
    terminal.see(&format!("<{code}>"));
}

fn top_has_the_terminal_from_the_start(store: Store) {
    let place = Place::new(store);
    let mut terminal = Terminal::new(&place);
    terminal.type_in("TERM=xterm \"$LEASEHOLD\" run k -- top\n");
    terminal.see("load average");
    assert!(place.is_held("k"));
    terminal.type_in("q");
    // It throws away what was typed before it ends.
    terminal.see_times("ready> ", 2);
    expect_code(&mut terminal, 0);
    assert!(!place.is_held("k"));
}

fn a_program_that_draws_can_be_stopped_continued_and_resized(store: Store) {
    let place = Place::new(store);
    let mut terminal = with_screen(&place);
    // The shell is to say at once when a job in the background stops.
    terminal.type_in("set -b; tty > tty; \"$LEASEHOLD\" run k -- ./screen\n");
    terminal.see("[drawn]");
    terminal.type_in("a");
    terminal.see("[key a]");
    let tty = place.first_line("tty");
    let sized = std::process::Command::new("stty").args(["-F", &tty, "cols", "99"]).status().unwrap();
    assert!(sized.success());
    terminal.see("[resized]");

    terminal.type_in("\u{1a}");
    terminal.see("Stopped");
    terminal.type_in("stty -a | grep -ow -e -icanon -e icanon | sed 's/^/mode:/'\n");
    terminal.see("mode:icanon");
    terminal.type_in("fg\n");
    terminal.see("[again]");
    terminal.type_in("b");
    terminal.see("[key b]");

    terminal.type_in("\u{1a}");
    terminal.see_times("Stopped", 2);
    // In the background it wants the terminal, and stops.
    terminal.type_in("bg\n");
    terminal.see_times("Stopped", 3);
    terminal.type_in("fg\n");
    terminal.see_times("[again]", 2);
    terminal.type_in("q");
    terminal.see("[key q]");
    expect_code(&mut terminal, 3);
    assert!(!place.is_held("k"));
}

fn a_program_in_the_background_gets_the_terminal_when_it_is_brought_to_the_foreground(store: Store) {
    let place = Place::new(store);
    let mut terminal = with_screen(&place);
    terminal.type_in("\"$LEASEHOLD\" run k -- ./screen &\n");
    let stopped = || {
        let list = std::process::Command::new("ps").args(["-A", "-o", "stat=,args="]).output().unwrap();
        String::from_utf8_lossy(&list.stdout).lines().any(|line| line.starts_with('T') && line.ends_with("./screen"))
    };
    eventually("it is held", || place.is_held("k"));
    eventually("it has stopped itself", stopped);
    terminal.type_in("fg\n");
    terminal.see("[again]");
    terminal.type_in("q");
    terminal.see("[key q]");
    expect_code(&mut terminal, 3);
}

fn a_shell_controls_its_own_jobs(store: Store) {
    let place = Place::new(store);
    let mut terminal = Terminal::new(&place);
    terminal.type_in("PS1='in''ner> ' \"$LEASEHOLD\" run k -- bash --norc --noprofile -i\n");
    terminal.see("inner> ");
    terminal.type_in("sh -c 'echo und''erway; exec sleep 600'\n");
    terminal.see("underway");
    terminal.type_in("\u{3}");
    terminal.see_times("inner> ", 2);
    terminal.type_in("echo slept=$?\n");
    terminal.see("slept=130");
    terminal.type_in("cat -n\none\n");
    terminal.see("1\tone");
    terminal.type_in("\u{1a}");
    terminal.see("Stopped");
    terminal.type_in("fg\ntwo\n");
    terminal.see("2\ttwo");
    terminal.type_in("\u{4}");
    terminal.see_times("inner> ", 5);
    terminal.type_in("exit 7\n");
    terminal.see_times("ready> ", 2);
    expect_code(&mut terminal, 7);
    assert!(!place.is_held("k"));
}

fn a_program_that_is_killed_leaves_the_terminal_as_it_was(store: Store) {
    let place = Place::new(store);
    let mut terminal = with_screen(&place);
    // A script without job control goes on with the terminal that it is left.
    terminal.type_in(
        "sh -c '\"$LEASEHOLD\" run k -- sh -c \"echo \\$\\$ > child; exec ./screen\"; stty -a; read line; echo got $line'\n",
    );
    terminal.see("[drawn]");
    signal(place.pid("child"), "KILL");
    terminal.see(" icanon ");
    terminal.type_in("this\n");
    terminal.see("got this");
    let screen = terminal.screen();
    assert!(screen.contains(" echo ") && !screen.contains("-echo "), "{screen}");
}

fn a_program_that_ends_by_itself_may_change_the_terminal(store: Store) {
    let place = Place::new(store);
    let mut terminal = Terminal::new(&place);
    terminal.type_in("\"$LEASEHOLD\" run k -- stty susp ^P; stty -a | grep -o 'susp = ..'\n");
    terminal.see("susp = ^P");
}

fn the_others_in_a_pipeline_can_read_the_terminal(store: Store) {
    let place = Place::new(store);
    let mut terminal = Terminal::new(&place);
    terminal.type_in("cat | \"$LEASEHOLD\" run k -- sh -c 'echo und''erway; exec sed -u s/^/from:/'\n");
    terminal.see("underway");
    terminal.type_in("here\n");
    terminal.see("from:here");
    terminal.type_in("\u{4}");
    eventually("it is over", || !place.is_held("k"));
    place.script("pager.sh", "read text\necho \"$text\"\nread answer < /dev/tty\necho \"answer:$answer\"\ntouch go\n");
    let job = "echo te''xt; while [ ! -e go ]; do sleep 0.02; done";
    terminal.type_in(&format!("\"$LEASEHOLD\" run k -- sh -c '{job}' | sh pager.sh\n"));
    terminal.see("text\r\n");
    terminal.type_in("Ada\n");
    terminal.see("answer:Ada");
}

fn a_program_in_a_pipeline_gets_the_terminal_when_it_asks(store: Store) {
    let place = Place::new(store);
    let mut terminal = with_screen(&place);
    terminal.type_in("\"$LEASEHOLD\" run k -- ./screen | cat\n");
    terminal.see("[again]");
    terminal.type_in("q");
    terminal.see("[key q]");
    eventually("it is over", || !place.is_held("k"));
    terminal.type_in("echo ba''ck\n");
    terminal.see("back");
}

fn ctrl_c_ends_the_loop_or_the_script_around_the_command(store: Store) {
    let place = Place::new(store);
    let around = "for i in 1 2 3; do \"$LEASEHOLD\" run k -- sh -c \"echo \\$\\$ > child; exec sleep 600\"; done";
    let mut terminal = Terminal::new(&place);
    for (number, command) in [
        around.to_owned(),
        format!("sh -c '{around}; echo survived > survived'"),
        format!("bash -c '{around}; echo survived > survived'"),
        // Not with a terminal of its own.
        format!("bash -c '{around}; echo survived > survived' | cat"),
    ]
    .iter()
    .enumerate()
    {
        terminal.type_in(&format!("{command}\n"));
        place.pid("child");
        terminal.type_in("\u{3}");
        terminal.see_times("ready> ", 2 * number + 2);
        terminal.type_in(&format!("echo ended={number}${{PIPESTATUS[0]}}\n"));
        terminal.see(&format!("ended={number}130"));
        assert!(!place.is_held("k") && !place.path("survived").exists(), "{command}");
        std::fs::remove_file(place.path("child")).unwrap();
    }
}

fn ctrl_c_ends_all_that_the_command_started(store: Store) {
    let place = Place::new(store);
    // What a script starts in the background does not hear Ctrl-C.
    place.script("job.sh", "sleep 600 &\necho $! > background\nwait\n");
    let mut terminal = Terminal::new(&place);
    terminal.type_in("\"$LEASEHOLD\" run --grace 100ms k -- sh job.sh\n");
    let background = place.pid("background");
    terminal.type_in("\u{3}");
    terminal.see_times("ready> ", 2);
    expect_code(&mut terminal, 130);
    assert!(!is_alive(background) && !place.is_held("k"));
}

fn a_command_that_handles_ctrl_c_decides_about_the_script_around_it(store: Store) {
    let place = Place::new(store);
    place.script("job.sh", "trap 'exit 5' INT\necho $$ > child\nwhile :; do sleep 0.02; done\n");
    let mut terminal = Terminal::new(&place);
    terminal.type_in("bash -c '\"$LEASEHOLD\" run k -- sh job.sh; echo code:$?'\n");
    place.pid("child");
    terminal.type_in("\u{3}");
    terminal.see("code:5");
}

fn a_shell_that_has_taken_the_terminal_back_keeps_it(store: Store) {
    let place = Place::new(store);
    place.script("job.sh", "echo $PPID > parent\nwhile [ ! -e go ]; do sleep 0.02; done\n");
    let mut terminal = Terminal::new(&place);
    terminal.type_in("\"$LEASEHOLD\" run -v k -- sh job.sh\n");
    signal(place.pid("parent"), "STOP");
    terminal.see("Stopped");
    terminal.type_in("bg\n");
    terminal.type_in("echo lis''tening\n");
    terminal.see("listening");
    std::fs::write(place.path("go"), "").unwrap();
    terminal.see("released the lock");
    terminal.type_in("echo st''ill\n");
    terminal.see("still");
}

fn messages_do_not_stop_us_on_a_terminal_that_stops_writers(store: Store) {
    let place = Place::new(store);
    place.script("job.sh", "echo $PPID > parent\nwhile [ ! -e go ]; do sleep 0.02; done\n");
    let mut terminal = Terminal::new(&place);
    terminal.type_in("stty tostop; \"$LEASEHOLD\" run -v k -- sh job.sh\n");
    signal(place.pid("parent"), "WINCH");
    terminal.see("got SIGWINCH");
    std::fs::write(place.path("go"), "").unwrap();
    expect_code(&mut terminal, 0);
}

fn ctrl_z_without_anybody_to_continue_us_stops_nothing(store: Store) {
    let place = Place::new(store);
    drop(with_screen(&place));
    // No shell above us, as with `ssh -t HOST leasehold run …`.
    let mut terminal = Terminal::running(&place, "exec \"$LEASEHOLD\" run k -- ./screen");
    terminal.see("[drawn]");
    terminal.type_in("\u{1a}");
    terminal.see("[again]");
    terminal.type_in("q");
    terminal.see("[key q]");
    eventually("it is over", || !place.is_held("k"));
}

fn a_run_inside_a_run_can_be_stopped_and_continued(store: Store) {
    let place = Place::new(store);
    let mut terminal = with_screen(&place);
    terminal.type_in("\"$LEASEHOLD\" run outer -- \"$LEASEHOLD\" run inner -- ./screen\n");
    terminal.see("[drawn]");
    terminal.type_in("\u{1a}");
    terminal.see("Stopped");
    terminal.type_in("fg\n");
    terminal.see("[again]");
    terminal.type_in("q");
    terminal.see("[key q]");
    expect_code(&mut terminal, 3);
    assert!(!place.is_held("inner") && !place.is_held("outer"));
}

fn a_terminal_that_goes_away_ends_who_does_not_expect_it_and_nobody_else(store: Store) {
    let place = Place::new(store);
    place.script("job.sh", "trap 'echo HUP >> heard' HUP\necho $PPID > parent\nwhile :; do sleep 0.02; done\n");
    let mut terminal = Terminal::new(&place);
    terminal.type_in("\"$LEASEHOLD\" run --grace 0s expected -- sh job.sh &\n");
    let parent = place.pid("parent");
    terminal.type_in("\"$LEASEHOLD\" run unexpected -- sh -c 'echo ru''nning; exec sleep 600'\n");
    terminal.see("running");
    drop(terminal);
    eventually("who does not expect it ends", || !place.is_held("unexpected"));
    assert_eq!(place.first_line("heard"), "HUP");
    assert!(place.is_held("expected"), "as under nohup");
    signal(parent, "TERM");
    eventually("it ends when it is asked to", || !place.is_held("expected"));
}
