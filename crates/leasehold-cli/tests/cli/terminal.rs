use std::io::Write;
use std::process::{Child, Command, Stdio};

use test_servers::eventually;
use test_support::{Case, blocking_cases};

use crate::Store;
use crate::support::Place;

pub(crate) const CASES: &[Case] = blocking_cases![
    a_command_can_read_the_terminal_and_gives_it_back,
    ctrl_c_ends_the_command_with_and_without_the_terminal,
    ctrl_z_stops_the_command_and_a_lease_that_ran_out_ends_it,
    a_command_may_ask_on_the_terminal_although_its_input_comes_from_elsewhere,
];

/// A shell with job control on a terminal of its own, as a person has it.
pub(crate) struct Terminal<'a> {
    place: &'a Place,
    script: Child,
}

impl<'a> Terminal<'a> {
    pub(crate) fn new(place: &'a Place) -> Self {
        // The screen starts with this line.
        let terminal = Self::running(place, "PS1='rea''dy> ' exec bash --norc --noprofile -i");
        terminal.see("ready> ");
        terminal
    }

    /// A terminal on which `command_line` is all there is.
    pub(crate) fn running(place: &'a Place, command_line: &str) -> Self {
        let leasehold = place.leasehold([""; 0]).get_program().to_owned();
        let mut command = Command::new("script");
        command.args(["--quiet", "--flush", "--command", command_line, "typescript"]);
        command.env("LEASEHOLD", leasehold).env("LEASEHOLD_STORE", place.store());
        command.current_dir(place.path("")).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let script = command.spawn().expect("these tests need the program `script`");
        Self { place, script }
    }

    pub(crate) fn type_in(&mut self, keys: &str) {
        let stdin = self.script.stdin.as_mut().unwrap();
        stdin.write_all(keys.as_bytes()).and_then(|()| stdin.flush()).unwrap();
    }

    pub(crate) fn see(&self, text: &str) {
        self.see_times(text, 1);
    }

    pub(crate) fn see_times(&self, text: &str, times: usize) {
        let seen = || self.screen().matches(text).count() >= times;
        let look = std::panic::AssertUnwindSafe(|| eventually(text, seen));
        let found = std::panic::catch_unwind(look);
        assert!(found.is_ok(), "{text:?} is not on the screen:\n{}", self.screen());
    }

    /// All that was written to it so far.
    pub(crate) fn screen(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(self.place.path("typescript")).unwrap_or_default()).into_owned()
    }
}

impl Drop for Terminal<'_> {
    fn drop(&mut self) {
        // The shell ends with its terminal.
        let _ = self.script.kill();
        let _ = self.script.wait();
    }
}

fn a_command_can_read_the_terminal_and_gives_it_back(store: Store) {
    let place = Place::new(store);
    let mut terminal = Terminal::new(&place);
    terminal.type_in("sh -c '\"$LEASEHOLD\" run k -- head -n 1; read line; echo \"then $line\"; echo code=$?'\n");
    eventually("it is held", || place.is_held("k"));
    terminal.type_in("for the command\n");
    eventually("it is over", || !place.is_held("k"));
    terminal.type_in("for the shell\n");
    terminal.see("then for the shell");
    terminal.see("code=0");
}

fn ctrl_c_ends_the_command_with_and_without_the_terminal(store: Store) {
    let place = Place::new(store);
    let mut terminal = Terminal::new(&place);
    for (number, command) in ["cat", "sleep 600"].iter().enumerate() {
        terminal.type_in(&format!("\"$LEASEHOLD\" run k -- {command}; echo {number}=$?\n"));
        eventually("it is held", || place.is_held("k"));
        terminal.type_in("\u{3}");
        // The shell throws away what was typed before its prompt.
        terminal.see_times("ready> ", 2 * number + 2);
        terminal.type_in(&format!("echo {number}=$?\n"));
        terminal.see(&format!("{number}=130"));
        assert!(!place.is_held("k"));
    }
}

fn ctrl_z_stops_the_command_and_a_lease_that_ran_out_ends_it(store: Store) {
    let place = Place::new(store);
    let mut terminal = Terminal::new(&place);
    terminal.type_in("\"$LEASEHOLD\" run k -- cat -n\n");
    eventually("it is held", || place.is_held("k"));
    terminal.type_in("one\n");
    terminal.see("1\tone");
    terminal.type_in("\u{1a}");
    terminal.see("Stopped");
    terminal.type_in("fg\ntwo\n");
    terminal.see("2\ttwo");
    terminal.type_in("\u{4}");
    eventually("it is over", || !place.is_held("k"));
    terminal.type_in("echo first=$?\n");
    terminal.see("first=0");

    terminal.type_in("\"$LEASEHOLD\" run --ttl 500ms late -- sh -c 'echo und''erway; exec cat'\n");
    terminal.see("underway");
    terminal.type_in("\u{1a}");
    eventually("it ran out", || !place.is_held("late"));
    terminal.type_in("fg\n");
    terminal.see("lost the lock");
    terminal.type_in("echo second=$?\n");
    terminal.see("second=79");
}

fn a_command_may_ask_on_the_terminal_although_its_input_comes_from_elsewhere(store: Store) {
    let place = Place::new(store);
    let job = place
        .script("ask.sh", "printf 'your name? ' > /dev/tty\nread name < /dev/tty\necho \"hello, $name\" > answer\n");
    let mut terminal = Terminal::new(&place);
    terminal.type_in(&format!("\"$LEASEHOLD\" run -q k -- sh {} < /dev/null\n", job.display()));
    terminal.see("your name? ");
    terminal.type_in("Ada\n");
    assert_eq!(place.first_line("answer"), "hello, Ada");
}
