//! The few elements that a figure is made of.

use std::fmt::{Display, Write};

pub(crate) const INK: &str = "#222222";
pub(crate) const FAINT: &str = "#666666";
pub(crate) const GRID: &str = "#e4e4e4";
pub(crate) const ACCENT: &str = "#b3402a";
pub(crate) const FILL: &str = "#5b84b1";

/// Where a text ends up beside its point.
#[derive(Clone, Copy)]
pub(crate) enum Anchor {
    Start,
    Middle,
    End,
}

/// A figure on a white ground.
pub(crate) struct Svg {
    body: String,
    width: f64,
    height: f64,
}

impl Svg {
    /// An empty figure with a title for those who cannot see it.
    pub(crate) fn new(width: f64, height: f64, title: &str) -> Self {
        let mut svg = Self { body: String::new(), width, height };
        svg.push(format_args!("<title>{}</title>", escape(title)));
        svg.push(format_args!(r##"<rect width="{width}" height="{height}" fill="#ffffff"/>"##));
        svg
    }

    pub(crate) fn rect(&mut self, class: &str, [x, y, width, height]: [f64; 4], fill: &str) {
        self.push(format_args!(
            r#"<rect class="{class}" x="{x:.1}" y="{y:.1}" width="{width:.1}" height="{height:.1}" fill="{fill}"/>"#
        ));
    }

    pub(crate) fn line(&mut self, class: &str, [x1, y1]: [f64; 2], [x2, y2]: [f64; 2], stroke: &str) {
        self.push(format_args!(
            r#"<line class="{class}" x1="{x1:.1}" y1="{y1:.1}" x2="{x2:.1}" y2="{y2:.1}" stroke="{stroke}"/>"#
        ));
    }

    pub(crate) fn text(&mut self, class: &str, [x, y]: [f64; 2], anchor: Anchor, style: Style, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let Style { size, fill, bold, upright } = style;
        let weight = if bold { r#" font-weight="600""# } else { "" };
        let turn = if upright { format!(r#" transform="rotate(-90 {x:.1} {y:.1})""#) } else { String::new() };
        self.push(format_args!(
            r#"<text class="{class}" x="{x:.1}" y="{y:.1}" text-anchor="{anchor}" font-size="{size}" fill="{fill}"{weight}{turn}>{}</text>"#,
            escape(text)
        ));
    }

    fn push(&mut self, element: impl Display) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.body, "{element}");
    }

    pub(crate) fn finish(self) -> String {
        let Self { body, width, height } = self;
        format!(
            r#"<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="0 0 {width} {height}" width="{width}" height="{height}" font-family="system-ui, 'DejaVu Sans', sans-serif">
{body}</svg>
"#
        )
    }
}

/// How a text looks.
#[derive(Clone, Copy)]
pub(crate) struct Style {
    pub(crate) size: u8,
    pub(crate) fill: &'static str,
    pub(crate) bold: bool,
    /// Whether it runs from the bottom to the top.
    pub(crate) upright: bool,
}

pub(crate) const PLAIN: Style = Style { size: 12, fill: INK, bold: false, upright: false };
pub(crate) const SMALL: Style = Style { size: 11, fill: FAINT, ..PLAIN };
pub(crate) const HEADING: Style = Style { size: 16, bold: true, ..PLAIN };

/// `text` as XML may have it: what is no character of XML is left out.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '&' => escaped.push_str("&amp;"),
            '"' => escaped.push_str("&quot;"),
            '\t' | '\n' | '\r' => escaped.push(' '),
            '\0'..='\u{1f}' | '\u{fffe}' | '\u{ffff}' => {}
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_cannot_become_an_element() {
        assert_eq!(escape("<a href=\"x\">&\u{1b}\n"), "&lt;a href=&quot;x&quot;&gt;&amp; ");
    }
}
