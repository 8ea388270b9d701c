use std::time::Duration;

use crate::histogram::Histogram;
use crate::scale::LogScale;
use crate::svg::{ACCENT, Anchor, FAINT, FILL, GRID, HEADING, INK, PLAIN, SMALL, Style, Svg};
use crate::time::short;

const WIDTH: f64 = 760.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = WIDTH - 24.0;
const TOP: f64 = 66.0;
const PANEL: f64 = 104.0;
/// Between two panels, with the name of the lower one.
const GAP: f64 = 40.0;
const BOTTOM: f64 = 56.0;

/// The most bars in a panel; fewer if they would be narrower than what is known of a latency.
const MOST_BARS: f64 = 72.0;
const BARS_PER_OCTAVE: f64 = 16.0;

/// One distribution of a figure.
#[derive(Clone, Copy, Debug)]
pub struct Panel<'a> {
    /// What took so long.
    pub name: &'a str,
    /// How long it took.
    pub latencies: &'a Histogram,
}

/// A figure with a panel for each distribution, below each other on one axis of times, with their
/// medians and 99th percentiles. One that has counted nothing is left out.
pub fn distribution(title: &str, subtitle: &str, panels: &[Panel<'_>]) -> String {
    let panels: Vec<_> = panels.iter().filter(|panel| panel.latencies.count() > 0).collect();
    #[allow(clippy::cast_precision_loss)]
    let count = panels.len().max(1) as f64;
    let axis = TOP + count * (PANEL + GAP);
    let mut svg = Svg::new(WIDTH, axis + BOTTOM, title);
    svg.text("title", [LEFT, 28.0], Anchor::Start, HEADING, title);
    svg.text("subtitle", [LEFT, 47.0], Anchor::Start, SMALL, subtitle);
    let least = panels.iter().filter_map(|panel| panel.latencies.min()).min();
    let greatest = panels.iter().filter_map(|panel| panel.latencies.max()).max();
    let (Some(least), Some(greatest)) = (least, greatest) else {
        svg.text("empty", [LEFT, TOP + GAP], Anchor::Start, PLAIN, "nothing was measured");
        return svg.finish();
    };
    let scale = LogScale::new([least, greatest], [LEFT, RIGHT]);
    for (place, label) in scale.ticks() {
        svg.line("grid", [place, TOP + GAP / 2.0], [place, axis], GRID);
        svg.text("tick", [place, axis + 18.0], Anchor::Middle, SMALL, &label);
    }
    svg.text("x-axis", [(LEFT + RIGHT) / 2.0, axis + 40.0], Anchor::Middle, PLAIN, "latency (logarithmic)");
    let upright = Style { upright: true, ..PLAIN };
    svg.text("y-axis", [18.0, (TOP + axis) / 2.0], Anchor::Middle, upright, "share of operations");
    let mut top = TOP + GAP;
    for panel in panels {
        draw(&mut svg, panel, &scale, top);
        top += PANEL + GAP;
    }
    svg.finish()
}

fn draw(svg: &mut Svg, panel: &Panel<'_>, scale: &LogScale, top: f64) {
    let base = top + PANEL;
    let shares = shares(panel.latencies, scale);
    let highest = shares.iter().copied().fold(0.0, f64::max);
    #[allow(clippy::cast_precision_loss)]
    let width = (RIGHT - LEFT) / shares.len() as f64;
    let mut left = LEFT;
    for share in &shares {
        // What is there is to be seen, however little it is.
        let height = if *share > 0.0 { (share / highest * PANEL).max(1.0) } else { 0.0 };
        if height > 0.0 {
            svg.rect("bar", [left, base - height, width - 0.5, height], FILL);
        }
        left += width;
    }
    svg.line("axis", [LEFT, base], [RIGHT, base], FAINT);
    svg.line("axis", [LEFT, top], [LEFT, base], FAINT);
    svg.text("tick", [LEFT - 6.0, top + 4.0], Anchor::End, SMALL, &percent(highest));
    svg.text("tick", [LEFT - 6.0, base + 4.0], Anchor::End, SMALL, "0");
    let name = Style { bold: true, ..PLAIN };
    svg.text("panel", [LEFT + 2.0, top - 12.0], Anchor::Start, name, panel.name);
    let (p50, p99) = (panel.latencies.percentile(50.0), panel.latencies.percentile(99.0));
    let at = |time: Option<Duration>| time.map(|time| (scale.place(time.as_secs_f64() * 1e9), time));
    let labels = [("p50", at(p50), INK), ("p99", at(p99), ACCENT)];
    for (name, place, colour) in labels {
        let Some((place, time)) = place else { continue };
        svg.line("percentile", [place, top - 6.0], [place, base], colour);
        // One to the left of its line and one to the right, so that they are apart.
        let (anchor, from) = match name {
            "p50" if place > LEFT + 190.0 => (Anchor::End, place - 4.0),
            "p99" if place > RIGHT - 90.0 => (Anchor::End, place + 20.0),
            "p50" => (Anchor::Start, (LEFT + 90.0).max(place - 60.0)),
            _ => (Anchor::Start, place + 4.0),
        };
        let style = Style { fill: colour, ..SMALL };
        svg.text("percentile", [from, top - 10.0], anchor, style, &format!("{name} {}", short(time)));
    }
}

/// How large a part of all is in each bar, from left to right.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
fn shares(latencies: &Histogram, scale: &LogScale) -> Vec<f64> {
    let bars = (scale.octaves() * BARS_PER_OCTAVE).clamp(4.0, MOST_BARS) as usize;
    let mut shares = vec![0.0; bars];
    for (nanos, count) in latencies.seen() {
        let part = (scale.place(nanos as f64) - LEFT) / (RIGHT - LEFT);
        shares[((part * bars as f64) as usize).min(bars - 1)] += count as f64 / latencies.count() as f64;
    }
    shares
}

fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if percent < 9.95 { format!("{percent:.1} %") } else { format!("{percent:.0} %") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn latencies(micros: impl Iterator<Item = u64>) -> Histogram {
        let mut histogram = Histogram::default();
        micros.for_each(|micros| histogram.record(Duration::from_micros(micros)));
        histogram
    }

    #[test]
    fn a_figure_has_axes_and_for_each_panel_its_name_bars_and_percentiles() {
        let (quick, slow) = (latencies(100..300), latencies((1..50).map(|n| n * n * 100)));
        let nothing = Histogram::default();
        let panels = [("acquire", &quick), ("release", &slow), ("hand-over", &nothing)];
        let panels = panels.map(|(name, latencies)| Panel { name, latencies });
        let svg = distribution("A <store>", "1 task", &panels);
        for text in
            ["A &lt;store&gt;", "1 task", ">acquire<", ">release<", "latency (logarithmic)", "share of operations"]
        {
            assert!(svg.contains(text), "no {text} in {svg}");
        }
        assert!(!svg.contains("hand-over"), "nothing was counted");
        assert_eq!(svg.matches(">p50 ").count(), 2);
        let median = short(quick.percentile(50.0).unwrap());
        assert!(svg.contains(&format!(">p50 {median}<")), "{svg}");
        assert!(svg.matches(r#"class="bar""#).count() > 20);
    }

    #[test]
    fn the_bars_of_a_panel_are_all_of_its_operations() {
        let latencies = latencies((0..1000).map(|n| n * 37 + 1));
        let ends = [latencies.min().unwrap(), latencies.max().unwrap()];
        let shares = shares(&latencies, &LogScale::new(ends, [LEFT, RIGHT]));
        assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-9);
    }

    #[test]
    fn a_figure_of_nothing_says_so() {
        let svg = distribution("t", "s", &[Panel { name: "acquire", latencies: &Histogram::default() }]);
        assert!(svg.contains("nothing was measured") && svg.ends_with("</svg>\n"));
    }
}
