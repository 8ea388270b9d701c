//! An aligned table that fits the terminal.

use crate::escape::escape;
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
/// may contain anything.
pub(crate) fn render<const N: usize>(head: &[Column; N], rows: &[[String; N]], columns: Option<usize>) -> String {
    let rows: Vec<[String; N]> = rows.iter().map(|row| row.each_ref().map(|cell| escape(cell))).collect();
    let mut widths: [usize; N] = std::array::from_fn(|i| {
        rows.iter().map(|row| text::width(&row[i])).max().unwrap_or(0).max(text::width(head[i].title))
    });
    if let Some(columns) = columns {
        fit(head, &mut widths, columns);
    }
    let titles = std::array::from_fn(|i| head[i].title.to_owned());
    let lines = std::iter::once(&titles).chain(&rows).map(|row| line(row, &widths));
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
