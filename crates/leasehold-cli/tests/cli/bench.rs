use std::collections::BTreeMap;
use std::process::Command;
use std::sync::Arc;

use serde_json::Value;
use test_servers::eventually;
use test_support::{Case, StoreServer, blocking_cases};

use crate::Store;
use crate::support::{Done, Place};
use crate::terminal::Terminal;

pub(crate) const CASES: &[Case] = blocking_cases![
    the_table_has_a_row_for_each_operation_and_nothing_else_is_said,
    the_numbers_of_the_json_agree_with_each_other,
    a_bench_leaves_the_store_as_it_was,
    a_signal_in_the_middle_leaves_nothing_behind,
];

pub(crate) const SERVERS: &[Case] = blocking_cases![
    a_server_that_goes_away_ends_the_bench_in_time,
    a_server_that_hangs_ends_the_bench_in_time,
    a_server_that_hangs_in_the_second_half_ends_the_bench_in_time,
];

pub(crate) const OF_NO_STORE: &[Case] = blocking_cases![
    silly_numbers_are_refused_with_what_to_write,
    the_figure_is_xml_with_a_panel_for_each_operation,
    a_figure_that_cannot_be_written_is_refused_before_anything_is_measured,
    the_terminal_sees_how_far_it_is_and_then_the_table,
    locks_in_memory_have_no_hand_over,
];

const OPERATIONS: [&str; 4] = ["acquire + release", "acquire", "release", "hand-over"];

/// A store, and a look at everything in it.
struct Looked {
    place: Place,
    server: Option<Arc<dyn StoreServer>>,
}

impl Looked {
    /// A store that somebody has used.
    fn new(store: Store) -> Self {
        let server = store.is_server().then(|| store.server());
        let place = match &server {
            Some(server) => Place::on(server.clone()),
            None => Place::new(store),
        };
        assert_eq!(place.run(["run", "k", "--", "true"]).code, 0);
        Self { place, server }
    }

    /// Everything that is stored, or how many rows each table has.
    fn everything(&self) -> BTreeMap<String, String> {
        let Some(server) = &self.server else {
            let file = self.place.store().trim_start_matches("sqlite:").to_owned();
            let database = rusqlite::Connection::open(file).unwrap();
            let mut tables = database.prepare("SELECT name FROM sqlite_master WHERE type = 'table'").unwrap();
            let tables = tables.query_map([], |row| row.get::<_, String>(0)).unwrap().map(Result::unwrap);
            let rows = |table: &str| {
                let count = format!("SELECT count(*) FROM \"{table}\"");
                database.query_row(&count, [], |row| row.get::<_, i64>(0)).unwrap().to_string()
            };
            return tables.map(|table| (table.clone(), rows(&table))).collect();
        };
        server.snapshot()
    }

    /// The keys of a bench that are held.
    fn held(&self) -> Vec<String> {
        let listed = self.place.run(["ls", "--json", "leasehold-bench:"]).stdout;
        let keys = listed.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["key"].clone());
        keys.map(|key| key.as_str().unwrap().to_owned()).collect()
    }
}

fn the_table_has_a_row_for_each_operation_and_nothing_else_is_said(store: Store) {
    let place = Place::new(store);
    let done = place.run(["bench", "--for", "1s"]);
    assert_eq!((done.code, done.stderr.as_str()), (0, ""), "{done:?}");
    let mut lines = done.stdout.lines();
    assert_eq!(lines.next(), Some(format!("{}: 1 task, 1 key, 0.5 s", place.public_store()).as_str()));
    let mut table = lines.skip(1);
    let titles: Vec<_> = table.next().unwrap().split("  ").filter(|title| !title.is_empty()).map(str::trim).collect();
    assert_eq!(titles, ["OPERATION", "COUNT", "PER SECOND", "P50", "P95", "P99", "MAX"]);
    let rows: Vec<Vec<_>> =
        table.map(|row| row.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect()).collect();
    assert_eq!(rows.iter().map(|row| row[0]).collect::<Vec<_>>(), OPERATIONS);
    assert_eq!(rows.iter().map(Vec::len).collect::<Vec<_>>(), [7, 6, 6, 6], "a pace for the pairs alone: {rows:?}");
    assert!(rows.iter().flat_map(|row| &row[row.len() - 4..]).all(|time| time.ends_with('s')), "{rows:?}");
}

fn json(done: &Done) -> Value {
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(done.stdout.lines().count(), 1, "{done:?}");
    serde_json::from_str(&done.stdout).unwrap()
}

fn the_numbers_of_the_json_agree_with_each_other(store: Store) {
    let place = Place::new(store);
    let measured = json(&place.run(["bench", "--json", "--tasks", "3", "--keys", "2", "--for", "1s"]));
    assert_eq!((&measured["tasks"], &measured["keys"]), (&3.into(), &2.into()));
    assert_eq!((&measured["store"], &measured["fences_left"]), (&place.public_store().into(), &0.into()));
    let pairs = measured["pairs"].as_u64().unwrap();
    assert!(pairs > 0);
    for operation in ["pair", "acquire", "release"] {
        assert_eq!(measured[operation]["count"], pairs, "{operation}: {measured}");
    }
    for operation in ["pair", "acquire", "release", "hand_over"] {
        let at = |name: &str| measured[operation][name].as_f64().unwrap();
        let percentiles = ["p50_us", "p95_us", "p99_us", "max_us"].map(at);
        assert!(percentiles[0] > 0.0 && percentiles.is_sorted(), "{operation}: {measured}");
    }
    let pace = pairs as f64 / measured["seconds"].as_f64().unwrap();
    assert!((measured["pairs_per_second"].as_f64().unwrap() - pace).abs() <= 0.1, "{measured}");
}

fn a_bench_leaves_the_store_as_it_was(store: Store) {
    let looked = Looked::new(store);
    let before = looked.everything();
    let done = looked.place.run(["bench", "--tasks", "4", "--keys", "20", "--for", "1s"]);
    assert_eq!((done.code, looked.everything()), (0, before), "{done:?}");
}

fn a_signal_in_the_middle_leaves_nothing_behind(store: Store) {
    let looked = Looked::new(store);
    let before = looked.everything();
    // While locks are taken and given back, and, with the key after that of the one task, while one
    // is handed over.
    for (time, key, name, code) in [("10m", ":0", "INT", 130), ("8s", ":1", "TERM", 143)] {
        let bench = looked.place.start(["bench", "--for", time]);
        eventually("it is on its way", || looked.held().iter().any(|held| held.ends_with(key)));
        bench.signal(name);
        let done = bench.done();
        assert_eq!((done.code, done.signal), (code, Some(code - 128)), "{done:?}");
        assert_eq!((done.stdout.as_str(), done.stderr.as_str()), ("", ""));
        assert_eq!(looked.held(), [""; 0]);
        assert_eq!(looked.everything(), before);
    }
}

/// Breaks the store once the key with this number is held: that of the one task, or the next one,
/// which is handed over.
fn check_ended(looked: &Looked, time: &str, key: &str, break_it: impl Fn()) {
    let bench = looked.place.start(["bench", "--for", time]);
    eventually("it is on its way", || looked.held().iter().any(|held| held.ends_with(key)));
    break_it();
    let done = bench.done();
    assert_eq!((done.code, done.stdout.as_str()), (69, ""), "{done:?}");
    assert!(done.stderr.contains(&looked.place.public_store()), "which store: {done:?}");
    assert!(done.stderr.contains("2 fence counters of keys that start with 'leasehold-bench:"), "{done:?}");
}

fn a_server_that_goes_away_ends_the_bench_in_time(store: Store) {
    let looked = Looked::new(store);
    let server = looked.server.clone().unwrap();
    check_ended(&looked, "4s", ":0", || server.server().kill());
}

fn a_server_that_hangs_ends_the_bench_in_time(store: Store) {
    let looked = Looked::new(store);
    let server = looked.server.clone().unwrap();
    check_ended(&looked, "4s", ":0", || server.server().pause());
}

fn a_server_that_hangs_in_the_second_half_ends_the_bench_in_time(store: Store) {
    let looked = Looked::new(store);
    let server = looked.server.clone().unwrap();
    check_ended(&looked, "8s", ":1", || server.server().pause());
}

fn silly_numbers_are_refused_with_what_to_write(store: Store) {
    let place = Place::new(store);
    for (option, value, hint) in [
        ("--tasks", "0", "1 is the least"),
        ("--tasks", "1025", "1024 are the most"),
        ("--tasks", "many", "see leasehold --help"),
        ("--keys", "0", "1 is the least"),
        ("--keys", "99999999999", "10000 are the most"),
        ("--for", "0s", "100ms is the least"),
        ("--for", "2h", "1h is the most"),
        ("--for", "5", "5s? 5m?"),
    ] {
        let done = place.run(["bench", option, value]);
        assert_eq!((done.code, done.stdout.as_str()), (64, ""), "{done:?}");
        assert_eq!(done.stderr.lines().nth(1), Some(format!("hint: {hint}").as_str()), "{done:?}");
    }
}

/// What a parser of XML finds, of which Python has one: the class and the text of each element.
fn elements(place: &Place, file: &str) -> Vec<(String, String)> {
    let script = "import sys, xml.etree.ElementTree as tree
for element in tree.parse(sys.argv[1]).getroot().iter():
    print(element.tag.split('}')[-1] + '.' + element.get('class', ''), (element.text or '').strip(), sep='\\t')";
    let output = Command::new("python3").args(["-c", script]).arg(place.path(file)).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines = String::from_utf8(output.stdout).unwrap();
    lines.lines().filter_map(|line| line.split_once('\t')).map(|(a, b)| (a.to_owned(), b.to_owned())).collect()
}

fn the_figure_is_xml_with_a_panel_for_each_operation(store: Store) {
    let place = Place::new(store);
    // What XML has to write in another way.
    let url = format!("sqlite:{}", place.path("a&b<c>.db").display());
    let done = place.run(["bench", "--for", "1s", "--store", &url, "--plot", "figure.svg"]);
    assert_eq!((done.code, done.stderr.as_str()), (0, ""), "{done:?}");
    let elements = elements(&place, "figure.svg");
    let of = |kind: &str| -> Vec<_> {
        elements.iter().filter(|(name, _)| name == kind).map(|(_, text)| text.as_str()).collect()
    };
    assert_eq!(elements[0].0, "svg.");
    assert_eq!(of("text.title"), [format!("Latencies of {url}")]);
    assert_eq!(of("text.panel"), ["acquire", "release", "hand-over to one that waits in line"]);
    assert_eq!((of("text.x-axis"), of("text.y-axis")), (vec!["latency (logarithmic)"], vec!["share of operations"]));
    assert_eq!(of("text.percentile").len(), 6);
    assert!(of("rect.bar").len() > 6 && of("text.tick").len() > 6, "{elements:?}");
}

fn a_figure_that_cannot_be_written_is_refused_before_anything_is_measured(store: Store) {
    let place = Place::new(store);
    for file in ["nowhere/figure.svg", "."] {
        let done = place.run(["bench", "--for", "1h", "--plot", file]);
        assert_eq!((done.code, done.stdout.as_str()), (64, ""), "{done:?}");
        assert!(done.stderr.contains(&format!("cannot write the figure to {file}: ")), "{done:?}");
    }
}

fn the_terminal_sees_how_far_it_is_and_then_the_table(store: Store) {
    let place = Place::new(store);
    let mut terminal = Terminal::new(&place);
    terminal.type_in("\"$LEASEHOLD\" bench --for 2s; echo code=$?\n");
    terminal.see("acquire and release: ");
    terminal.see("hand over: ");
    terminal.see("code=0");
    let screen = terminal.screen();
    let (progress, table) = screen.rsplit_once("\u{1b}[K").unwrap();
    assert!(progress.contains("of 1.0 s") && table.starts_with("sqlite:") && table.contains("hand-over"), "{screen}");
    terminal.type_in("\"$LEASEHOLD\" bench -q --for 1s; echo quiet=$?\n");
    terminal.see("quiet=0");
    assert!(!terminal.screen().rsplit_once("code=0").unwrap().1.contains("of 0.5 s"), "{}", terminal.screen());
}

fn locks_in_memory_have_no_hand_over(store: Store) {
    let place = Place::new(store);
    let measured = json(&place.run(["bench", "--json", "--for", "200ms", "--store", "memory:"]));
    assert_eq!((&measured["hand_over"], &measured["fences_left"]), (&Value::Null, &0.into()));
    let done = place.run(["bench", "--for", "200ms", "--store", "memory:"]);
    assert!(done.code == 0 && done.stdout.contains("no hand-over: another handle does not see"), "{done:?}");
}
