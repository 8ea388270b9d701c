//! The results as a page of Markdown, with figures beside it.

use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

use leasehold_plot::{Bar, Group, bars, short};

use crate::results::{ContestantResults, Cost, Results, StoreResults, TASKS};
use crate::spread::{Spread, digits};

/// The directory of the figures, beside the page.
const FIGURES: &str = "benchmarks";

/// Writes `benchmarks.md` and its figures into a directory.
pub fn write(results: &Results, directory: &Path) {
    let figures = directory.join(FIGURES);
    std::fs::create_dir_all(&figures).unwrap();
    for store in &results.stores {
        for (name, svg) in figures_of(store, results) {
            std::fs::write(figures.join(name), svg).unwrap();
        }
    }
    std::fs::write(directory.join("benchmarks.md"), render(results)).unwrap();
}

/// The page.
pub fn render(results: &Results) -> String {
    let mut page = String::from(HEAD);
    let _ = writeln!(page, "\nMeasured on {} with `{}`, {}:\n", results.date, results.command, results.rounds);
    for line in &results.machine {
        let _ = writeln!(page, "- {line}");
    }
    for store in &results.stores {
        section(&mut page, store);
    }
    page.push_str(FOOT);
    page
}

const HEAD: &str = include_str!("head.md");
const FOOT: &str = include_str!("foot.md");

fn title(store: &str) -> &'static str {
    match store {
        "redis" => "Redis",
        "postgres" => "PostgreSQL",
        "sqlite" => "SQLite",
        _ => "Memory",
    }
}

fn section(page: &mut String, store: &StoreResults) {
    let (name, of) = (title(store.name), |which: &str| format!("{FIGURES}/{}-{which}.svg", store.name));
    let _ = writeln!(page, "\n## {name}\n\n{}.\n\n![Pairs a second]({})\n", store.server, of("pace"));
    let mut columns: Vec<Column> = vec![("one pair", |result| result.pair.map(time))];
    columns.push(("pairs a second, 64 tasks", |result| result.pace[1].map(number)));
    columns.push(("256 tasks", |result| result.pace[2].map(number)));
    columns.push(("hand-over between processes", |result| result.hand_over.map(time)));
    table(page, store, &columns);
    if store.contestants.iter().any(|result| result.hand_over.is_some()) {
        let _ = writeln!(page, "\n![Hand-over between processes]({})", of("hand-over"));
    }
    let counted: Vec<Column> = vec![
        ("requests in a pair", |result| cost(result, 0, |cost| cost.requests).map(digits)),
        ("with 64 tasks", |result| cost(result, 1, |cost| cost.requests).map(digits)),
        ("commands in a pair", |result| cost(result, 0, |cost| cost.commands).map(digits)),
        ("server's processor, pair", |result| cost(result, 0, |cost| cost.server_cpu).map(micros)),
        ("with 64 tasks", |result| cost(result, 1, |cost| cost.server_cpu).map(micros)),
        ("client's processor, pair", |result| cost(result, 0, |cost| cost.client_cpu).map(micros)),
        ("with 64 tasks", |result| cost(result, 1, |cost| cost.client_cpu).map(micros)),
        ("bytes of a held lock", |result| result.bytes.map(|bytes| format!("{bytes:.0}"))),
        ("requests in a hand-over", |result| result.requests_of_a_hand_over.map(digits)),
        ("requests of a minute's wait", |result| result.requests_of_a_minute.map(digits)),
    ];
    page.push('\n');
    turned(page, store, &counted);
    for note in &store.notes {
        let _ = writeln!(page, "\n{note}");
    }
    let versions = store.contestants.iter().filter(|result| !result.version.is_empty());
    let versions: Vec<_> = versions.map(|result| result.version.as_str()).collect();
    if !versions.is_empty() {
        let _ = writeln!(page, "\nWith {}.", versions.join("; "));
    }
}

type Column = (&'static str, fn(&ContestantResults) -> Option<String>);

/// What is counted in a pair of the first or second of [`TASKS`], unless nothing is.
fn cost(result: &ContestantResults, level: usize, of: fn(Cost) -> f64) -> Option<f64> {
    result.of_a_pair[level].map(of).filter(|number| *number > 0.0)
}

fn micros(seconds: f64) -> String {
    format!("{} µs", digits(seconds * 1e6))
}

/// A row for each contestant; columns in which nobody has anything are left out.
fn table(page: &mut String, store: &StoreResults, columns: &[Column]) {
    let columns: Vec<_> =
        columns.iter().filter(|(_, cell)| store.contestants.iter().any(|result| cell(result).is_some())).collect();
    let titles: Vec<_> = columns.iter().map(|(title, _)| *title).collect();
    let _ = writeln!(page, "| | {} |\n| --- |{}", titles.join(" | "), " --- |".repeat(titles.len()));
    for result in &store.contestants {
        let cells: Vec<_> = columns.iter().map(|(_, cell)| cell(result).unwrap_or_else(|| "-".to_owned())).collect();
        let _ = writeln!(page, "| {} | {} |", result.name, cells.join(" | "));
    }
}

/// A column for each contestant.
fn turned(page: &mut String, store: &StoreResults, rows: &[Column]) {
    let names: Vec<_> = store.contestants.iter().map(|result| result.name).collect();
    let _ = writeln!(page, "| counted | {} |\n| --- |{}", names.join(" | "), " --- |".repeat(names.len()));
    for (title, cell) in rows {
        let cells: Vec<_> = store.contestants.iter().map(cell).collect();
        if cells.iter().any(Option::is_some) {
            let cells: Vec<_> = cells.into_iter().map(|cell| cell.unwrap_or_else(|| "-".to_owned())).collect();
            let _ = writeln!(page, "| {title} | {} |", cells.join(" | "));
        }
    }
}

/// A time with its range, all in the unit of the median.
fn time(seconds: Spread) -> String {
    let units = [("s", 1.0), ("ms", 1e-3), ("µs", 1e-6), ("ns", 1e-9)];
    let unit = units.into_iter().find(|(_, size)| seconds.median >= *size).unwrap_or(("ns", 1e-9));
    let [median, least, greatest] = [seconds.median, seconds.least, seconds.greatest].map(|time| digits(time / unit.1));
    if least == greatest {
        format!("{median} {}", unit.0)
    } else {
        format!("{median} {} ({least} to {greatest})", unit.0)
    }
}

fn number(spread: Spread) -> String {
    spread.text(1.0)
}

/// The figures of a store, with the names of their files.
fn figures_of(store: &StoreResults, results: &Results) -> Vec<(String, String)> {
    let bar = |result: &ContestantResults, spread: Option<Spread>| {
        let spread = spread?;
        let range = [spread.least, spread.greatest];
        Some(Bar { label: result.name.to_owned(), median: spread.median, range, ours: result.ours })
    };
    let group = |name: String, of: &dyn Fn(&ContestantResults) -> Option<Spread>| Group {
        name,
        bars: store.contestants.iter().filter_map(|result| bar(result, of(result))).collect(),
    };
    let groups = TASKS.iter().enumerate().map(|(level, tasks)| {
        let plural = if *tasks == 1 { "" } else { "s" };
        group(format!("{tasks} task{plural}"), &move |result| result.pace[level])
    });
    let groups: Vec<_> = groups.collect();
    let name = title(store.name);
    let subtitle = format!("{}, {}: median and range", store.server, results.rounds);
    let pace = bars(&format!("{name}: pairs of acquire and release"), &subtitle, "pairs a second", &groups, &digits);
    let mut figures = vec![(format!("{}-pace.svg", store.name), pace)];
    let hand_over = group("one waits".to_owned(), &|result| result.hand_over);
    if !hand_over.bars.is_empty() {
        let show = |seconds: f64| match seconds {
            0.0 => "0".to_owned(),
            seconds => short(Duration::from_secs_f64(seconds.max(0.0))),
        };
        let svg = bars(
            &format!("{name}: hand-over between two processes"),
            &subtitle,
            "from the start of the release to the grant",
            &[hand_over],
            &show,
        );
        figures.push((format!("{}-hand-over.svg", store.name), svg));
    }
    figures
}

#[cfg(test)]
mod tests {
    use super::*;

    fn results() -> Results {
        let spread = |median: f64| Some(Spread { median, least: median * 0.5, greatest: median * 2.0 });
        let cost = Cost { requests: 2.0, commands: 11.0, server_cpu: 22e-6, client_cpu: 0.0 };
        let ours = ContestantResults {
            name: "leasehold",
            ours: true,
            pair: spread(0.000_2),
            pace: [spread(5000.0), spread(40_000.0), spread(2.5e6)],
            hand_over: spread(0.000_4),
            of_a_pair: [Some(cost), Some(Cost { requests: 0.3, ..cost }), None],
            bytes: Some(412.4),
            requests_of_a_hand_over: Some(4.0),
            requests_of_a_minute: Some(20.0),
            ..Default::default()
        };
        let other = ContestantResults {
            name: "other",
            version: "other 1.2".to_owned(),
            pair: spread(0.000_1),
            pace: [spread(9000.0), None, None],
            ..Default::default()
        };
        let store = StoreResults {
            name: "redis",
            server: "Redis 7".to_owned(),
            contestants: vec![ours, other],
            notes: vec!["A note.".to_owned()],
        };
        Results {
            machine: vec!["2 processors".to_owned()],
            date: "2026-01-02".to_owned(),
            command: "crates/bench/compare".to_owned(),
            rounds: "3 rounds of 1 s".to_owned(),
            stores: vec![store],
        }
    }

    #[test]
    fn the_page_shows_each_number_with_its_range_and_a_dash_for_what_there_is_not() {
        let page = render(&results());
        for line in [
            "Measured on 2026-01-02 with `crates/bench/compare`, 3 rounds of 1 s:",
            "- 2 processors",
            "## Redis",
            "| | one pair | pairs a second, 64 tasks | 256 tasks | hand-over between processes |",
            "| leasehold | 200 µs (100 to 400) | 40.0k (20.0k to 80.0k) | 2.50M (1.25M to 5.00M) | 400 µs (200 to 800) |",
            "| other | 100 µs (50 to 200) | - | - | - |",
            "| counted | leasehold | other |",
            "| requests in a pair | 2.0 | - |",
            "| with 64 tasks | 0.30 | - |",
            "| server's processor, pair | 22 µs | - |",
            "| bytes of a held lock | 412 | - |",
            "| requests of a minute's wait | 20 | - |",
            "A note.",
            "With other 1.2.",
        ] {
            assert!(page.lines().any(|found| found == line), "no line {line:?} in\n{page}");
        }
        assert!(!page.contains("client's processor"), "nobody has used any: {page}");
    }

    #[test]
    fn every_figure_that_the_page_names_is_made() {
        let results = results();
        let page = render(&results);
        let made = figures_of(&results.stores[0], &results);
        let names: Vec<_> = made.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["redis-pace.svg", "redis-hand-over.svg"]);
        assert!(names.iter().all(|name| page.contains(&format!("({FIGURES}/{name})"))), "{page}");
        assert_eq!(page.matches(".svg)").count(), names.len(), "{page}");
        let (pace, hand_over) = (&made[0].1, &made[1].1);
        assert_eq!((pace.matches("class=\"bar\"").count(), hand_over.matches("class=\"bar\"").count()), (4, 1));
        assert!(pace.contains(">256 tasks<") && hand_over.contains(">400 µs<"));
    }
}
