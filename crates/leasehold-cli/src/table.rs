//! An aligned table that fits the terminal.

use crate::text;

/// The space between two columns.
const GAP: usize = 2;
/// Columns are not cut below this.
const LEAST: usize = 6;

/// A column: its title, and whether it may be cut when the terminal is narrow.
pub(crate) struct Column {
    pub(crate) title: &'static str,
    pub(crate) may_shrink: bool,
}

/// The rows below their titles, aligned; cut to `columns` of the terminal if that is known. Cells
/// must be [safe](text::safe).
pub(crate) fn render<const N: usize>(head: &[Column; N], rows: &[[String; N]], columns: Option<usize>) -> String {
    let mut widths: [usize; N] = std::array::from_fn(|i| {
        rows.iter().map(|row| text::width(&row[i])).max().unwrap_or(0).max(text::width(head[i].title))
    });
    if let Some(columns) = columns {
        fit(head, &mut widths, columns);
    }
    let titles = std::array::from_fn(|i| head[i].title.to_owned());
    let lines = std::iter::once(&titles).chain(rows).map(|row| line(row, &widths));
    lines.map(|line| columns.map_or(line.clone(), |columns| text::cut(&line, columns)) + "\n").collect()
}

/// Takes columns away from the widest that may shrink, one by one, until all fit.
fn fit<const N: usize>(head: &[Column; N], widths: &mut [usize; N], columns: usize) {
    let gaps = GAP * N.saturating_sub(1);
    while widths.iter().sum::<usize>() + gaps > columns {
        let widest = (0..N).filter(|i| head[*i].may_shrink && widths[*i] > LEAST).max_by_key(|i| widths[*i]);
        let Some(widest) = widest else { return };
        widths[widest] -= 1;
    }
}

fn line<const N: usize>(row: &[String; N], widths: &[usize; N]) -> String {
    let mut line = String::new();
    for (cell, width) in row.iter().zip(widths) {
        let cell = text::cut(cell, *width);
        line.push_str(&cell);
        line.push_str(&" ".repeat(width - text::width(&cell) + GAP));
    }
    line.truncate(line.trim_end().len());
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: [Column; 3] = [
        Column { title: "KEY", may_shrink: true },
        Column { title: "FENCE", may_shrink: false },
        Column { title: "NOTES", may_shrink: true },
    ];

    fn rows() -> Vec<[String; 3]> {
        vec![
            ["a".into(), "000000000000001".into(), "job=nightly with a very long remark".into()],
            ["日本語 and more of it".into(), "000000000000002".into(), String::new()],
        ]
    }

    #[test]
    fn columns_are_aligned_without_trailing_space() {
        let table = render(&HEAD, &rows(), None);
        let starts: Vec<_> = table.lines().map(|l| l.find("0000").or(l.find("FENCE"))).collect();
        assert_eq!(table.lines().count(), 3);
        assert!(table.lines().all(|line| line.trim_end() == line));
        // Each of the three wide characters has three bytes and two columns.
        assert_eq!(starts, [Some(23), Some(23), Some(26)]);
    }

    #[test]
    fn a_narrow_terminal_cuts_what_may_be_cut_and_nothing_else() {
        let table = render(&HEAD, &rows(), Some(50));
        assert!(table.lines().all(|line| text::width(line) <= 50), "{table}");
        assert!(table.contains("000000000000002") && table.contains('…'), "{table}");
    }

    #[test]
    fn a_very_narrow_terminal_shows_what_it_can() {
        let table = render(&HEAD, &rows(), Some(5));
        assert!(table.lines().all(|line| text::width(line) <= 5), "{table}");
        assert_eq!(table.lines().count(), 3);
    }
}
