use crate::svg::{Anchor, FAINT, FILL, GRID, HEADING, INK, PLAIN, SMALL, Style, Svg};

const WIDTH: f64 = 760.0;
const LEFT: f64 = 210.0;
/// Right of it there is room for the number of the longest bar.
const RIGHT: f64 = WIDTH - 120.0;
const TOP: f64 = 66.0;
const BAR: f64 = 16.0;
const STEP: f64 = 23.0;
/// For the name of a group.
const NAME: f64 = 28.0;
const BOTTOM: f64 = 56.0;
/// Who is compared with the others.
const OURS: &str = "#2f6d4f";

/// One number of a figure, with its range.
#[derive(Clone, Debug)]
pub struct Bar {
    /// Whose it is.
    pub label: String,
    /// How long the bar is.
    pub median: f64,
    /// Where its range begins and ends.
    pub range: [f64; 2],
    /// Whether it stands out from the others.
    pub ours: bool,
}

/// Bars that are compared with each other.
#[derive(Clone, Debug)]
pub struct Group {
    /// What they have in common.
    pub name: String,
    /// From the top to the bottom.
    pub bars: Vec<Bar>,
}

/// A figure of bars from zero, in groups below each other, each with its number and its range.
pub fn bars(title: &str, subtitle: &str, axis: &str, groups: &[Group], show: &dyn Fn(f64) -> String) -> String {
    #[allow(clippy::cast_precision_loss)]
    let height: f64 = groups.iter().map(|group| NAME + group.bars.len() as f64 * STEP).sum();
    let base = TOP + height + 6.0;
    let mut svg = Svg::new(WIDTH, base + BOTTOM, title);
    svg.text("title", [20.0, 28.0], Anchor::Start, HEADING, title);
    svg.text("subtitle", [20.0, 47.0], Anchor::Start, SMALL, subtitle);
    let greatest = groups.iter().flat_map(|group| &group.bars).map(|bar| bar.range[1].max(bar.median));
    let step = round_step(greatest.fold(0.0, f64::max));
    let place = |number: f64| LEFT + number / (4.0 * step) * (RIGHT - LEFT);
    for tick in [0.0, 1.0, 2.0, 3.0, 4.0].map(|tick| tick * step) {
        svg.line("grid", [place(tick), TOP], [place(tick), base], GRID);
        svg.text("tick", [place(tick), base + 18.0], Anchor::Middle, SMALL, &show(tick));
    }
    svg.text("x-axis", [(LEFT + RIGHT) / 2.0, base + 40.0], Anchor::Middle, PLAIN, axis);
    let mut top = TOP;
    for group in groups {
        svg.text("group", [20.0, top + 18.0], Anchor::Start, Style { bold: true, ..PLAIN }, &group.name);
        top += NAME;
        for bar in &group.bars {
            let (middle, colour) = (top + BAR / 2.0, if bar.ours { OURS } else { FILL });
            svg.text("label", [LEFT - 8.0, middle + 4.0], Anchor::End, PLAIN, &bar.label);
            svg.rect("bar", [LEFT, top, (place(bar.median) - LEFT).max(1.0), BAR], colour);
            let [from, to] = bar.range.map(place);
            svg.rect("range", [from, middle - 1.0, to - from, 2.0], INK);
            let number = Style { fill: INK, ..SMALL };
            let right = to.max(place(bar.median)) + 6.0;
            svg.text("number", [right, middle + 4.0], Anchor::Start, number, &show(bar.median));
            top += STEP;
        }
    }
    svg.line("axis", [LEFT, TOP], [LEFT, base], FAINT);
    svg.finish()
}

/// A quarter of an axis that has room for `greatest`, as a round number.
fn round_step(greatest: f64) -> f64 {
    let rough = (greatest / 4.0).max(f64::MIN_POSITIVE);
    let power = 10f64.powf(rough.log10().floor());
    let steps = [1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0];
    steps.map(|step| step * power).into_iter().find(|step| *step >= rough).unwrap_or(10.0 * power)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bar_has_its_label_number_and_range() {
        let bar = |label: &str, median: f64, ours| Bar {
            label: label.into(),
            median,
            range: [median - 1.0, median + 2.0],
            ours,
        };
        let groups = [
            Group { name: "1 task".into(), bars: vec![bar("ours", 10.0, true), bar("theirs & others", 5.0, false)] },
            Group { name: "64 tasks".into(), bars: vec![bar("ours", 40.0, true)] },
        ];
        let svg = bars("Pace", "3 rounds", "pairs a second", &groups, &|number| format!("{number:.0}"));
        for text in [">Pace<", ">3 rounds<", ">pairs a second<", ">1 task<", ">64 tasks<", ">theirs &amp; others<"] {
            assert!(svg.contains(text), "no {text} in {svg}");
        }
        for (kind, count) in [("bar", 3), ("range", 3), ("number", 3), ("label", 3), ("tick", 5)] {
            assert_eq!(svg.matches(&format!("class=\"{kind}\"")).count(), count, "{kind} in {svg}");
        }
        assert!(svg.contains(OURS) && svg.contains(FILL));
    }

    #[test]
    fn an_axis_ends_at_a_round_number_that_is_enough() {
        for (greatest, step) in [(42.0, 15.0), (40.0, 10.0), (7_000.0, 2_000.0), (0.3, 0.08), (97.0, 25.0)] {
            assert!((round_step(greatest) - step).abs() < 1e-9, "{greatest}: {}", round_step(greatest));
        }
        assert!(round_step(0.0) > 0.0);
    }
}
