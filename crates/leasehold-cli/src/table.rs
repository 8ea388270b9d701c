//! An aligned table that fits the terminal.

use crate::escape::escape;
use crate::text;

/// The space between two columns.
const GAP: usize = 2;
/// Columns are not cut below this.
const LEAST: usize = 12;

/// A column: its title, and what happens to it when the terminal is narrow.
pub(crate) struct Column {
    pub(crate) title: &'static str,
    /// Whether its cells may be cut.
    pub(crate) may_shrink: bool,
    /// The one with the highest number is left out first, the one with zero never.
    pub(crate) leave_out: u8,
}

/// The rows below their titles, aligned. Columns with nothing in them are left out, and others too
/// if they do not fit into `columns` of the terminal. Cells may contain anything.
pub(crate) fn render<const N: usize>(head: &[Column; N], rows: &[[String; N]], columns: Option<usize>) -> String {
    let rows: Vec<[String; N]> = rows.iter().map(|row| row.each_ref().map(|cell| escape(cell))).collect();
    let cells = |i: usize| rows.iter().map(move |row| text::width(&row[i])).max().unwrap_or(0);
    let mut widths: [Option<usize>; N] = std::array::from_fn(|i| {
        Some(cells(i))
            .filter(|width| *width > 0 || head[i].leave_out == 0)
            .map(|width| width.max(text::width(head[i].title)))
    });
    if let Some(columns) = columns {
        leave_out(head, &mut widths, columns);
        shrink(head, &mut widths, columns);
    }
    let titles = std::array::from_fn(|i| head[i].title.to_owned());
    let lines = std::iter::once(&titles).chain(&rows).map(|row| line(row, &widths));
    lines.map(|line| columns.map_or(line.clone(), |columns| text::cut(&line, columns)) + "\n").collect()
}

/// The columns of the terminal that the table takes.
fn total(widths: impl Iterator<Item = usize>) -> usize {
    widths.map(|width| width + GAP).sum::<usize>().saturating_sub(GAP)
}

/// What is left of each column if it is cut: the first one only if it cannot be shown whole beside
/// another, and then to half of the terminal.
fn least<const N: usize>(head: &[Column; N], widths: &[Option<usize>; N], columns: usize) -> [usize; N] {
    std::array::from_fn(|i| match widths[i].unwrap_or(0) {
        width if head[i].may_shrink => width.min(LEAST),
        width if head[i].leave_out == 0 && width + GAP + LEAST > columns => width.min(columns / 2),
        width => width,
    })
}

/// Leaves out columns until the others fit, if those that may be cut are.
fn leave_out<const N: usize>(head: &[Column; N], widths: &mut [Option<usize>; N], columns: usize) {
    let least = least(head, widths, columns);
    while total((0..N).filter(|i| widths[*i].is_some()).map(|i| least[i])) > columns {
        let shown = (0..N).filter(|i| widths[*i].is_some() && head[*i].leave_out > 0);
        let Some(last) = shown.max_by_key(|i| head[*i].leave_out) else { return };
        widths[last] = None;
    }
}

/// Takes columns away from the widest that may be cut, one by one, until all fit.
fn shrink<const N: usize>(head: &[Column; N], widths: &mut [Option<usize>; N], columns: usize) {
    let least = least(head, widths, columns);
    while total(widths.iter().copied().flatten()) > columns {
        let may_shrink = |i: &usize| widths[*i].is_some_and(|width| width > least[*i]);
        let Some(widest) = (0..N).filter(may_shrink).max_by_key(|i| widths[*i]) else { return };
        widths[widest] = widths[widest].map(|width| width - 1);
    }
}

fn line<const N: usize>(row: &[String; N], widths: &[Option<usize>; N]) -> String {
    let mut line = String::new();
    for (cell, width) in row.iter().zip(widths).filter_map(|(cell, width)| Some((cell, (*width)?))) {
        let cell = text::cut(cell, width);
        line.push_str(&cell);
        line.push_str(&" ".repeat(width.saturating_sub(text::width(&cell)) + GAP));
    }
    line.truncate(line.trim_end().len());
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use unicode_width::UnicodeWidthStr;

    const HEAD: [Column; 3] = [
        Column { title: "KEY", may_shrink: false, leave_out: 0 },
        Column { title: "FENCE", may_shrink: false, leave_out: 1 },
        Column { title: "NOTES", may_shrink: true, leave_out: 2 },
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
    fn a_narrow_terminal_cuts_what_may_be_cut_and_then_leaves_it_out() {
        let table = render(&HEAD, &rows(), Some(54));
        assert!(table.lines().all(|line| text::width(line) <= 54), "{table}");
        assert!(table.contains("000000000000002") && table.contains('…'), "{table}");
        let table = render(&HEAD, &rows(), Some(50));
        assert!(table.contains("000000000000002") && !table.contains("NOTES") && !table.contains('…'), "{table}");
        let table = render(&HEAD, &rows(), Some(30));
        assert!(table.contains("日本語 and more of it\n") && !table.contains("FENCE"), "{table}");
    }

    #[test]
    fn a_column_with_nothing_in_it_is_left_out() {
        let table = render(&HEAD, &rows()[1..], None);
        assert!(table.contains("FENCE") && !table.contains("NOTES"), "{table}");
    }

    #[test]
    fn a_very_narrow_terminal_shows_what_it_can() {
        let table = render(&HEAD, &rows(), Some(5));
        assert!(table.lines().all(|line| text::width(line) <= 5), "{table}");
        assert_eq!(table.lines().count(), 3);
    }

    /// Characters whose widths depend on their neighbours, or that are no characters of their own:
    /// signs that are joined, coloured, paired or drawn as pictures, letters that melt into one or
    /// are made of several, marks before and after others, and what terminals act on.
    fn odd_text() -> impl Strategy<Value = String> {
        let odd = [
            "❤",
            "\u{fe0f}",
            "\u{200d}",
            "👩",
            "🏽",
            "🇩",
            "🇪",
            "1",
            "\u{20e3}",
            "ل",
            "ا",
            "ᄀ",
            "ᅡ",
            "ᆨ",
            "가",
            "क",
            "\u{94d}",
            "ष",
            "e",
            "\u{301}",
            "\u{338}",
            "=",
            "日",
            "\u{a4f8}",
            "\u{a4fc}",
            "\u{d4e}",
            "\u{111c2}",
            "\u{600}",
            "\u{1b}",
            "\u{9b}",
            "\n",
            "\t",
            "\u{202e}",
            "\u{e0041}",
            "\u{e01ef}",
            "\u{3000}",
            "\u{115f}",
            "\u{ad}",
            " ",
            "…",
        ];
        let piece = prop_oneof![
            prop::sample::select(odd.to_vec()).prop_map(str::to_owned),
            any::<char>().prop_map(String::from)
        ];
        prop::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #[test]
        fn whatever_is_in_the_cells_the_columns_add_up(
            cells in prop::collection::vec((odd_text(), odd_text()), 1..4),
            columns in 1_usize..100,
        ) {
            let fence = "000000000000001";
            let rows: Vec<_> = cells.into_iter().map(|(key, notes)| [key, fence.to_owned(), notes]).collect();
            let table = render(&HEAD, &rows, Some(columns));
            prop_assert_eq!(table.lines().count(), rows.len() + 1, "{}", table);
            // Neither by characters as people see them, nor as a whole.
            prop_assert!(table.lines().all(|line| text::width(line).max(line.width()) <= columns), "{}", table);
            let starts = |table: &str| -> Vec<_> {
                let start = |line: &str| line.find("FENCE").or(line.find(fence)).map(|at| text::width(&line[..at]));
                table.lines().filter_map(start).collect()
            };
            let (narrow, wide) = (starts(&table), starts(&render(&HEAD, &rows, None)));
            prop_assert_eq!(wide.len(), rows.len() + 1);
            for starts in [narrow, wide] {
                prop_assert!(starts.iter().all(|start| *start == starts[0]), "{:?}", starts);
            }
        }
    }
}
