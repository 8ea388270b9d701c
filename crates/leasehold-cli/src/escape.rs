//! Characters that must not reach a terminal.

use serde_json::Value;
use unicode_properties::{GeneralCategory, UnicodeGeneralCategory};

/// `text` on one line, with every character written out that could do more than be seen: line
/// breaks, escape sequences, direction marks. Whoever writes a key, a name or an error cannot forge
/// our output with it.
///
/// A backslash stays as it is, so escaping twice is escaping once.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if is_plain(c) {
            escaped.push(c);
        } else {
            escaped.extend(c.escape_default());
        }
    }
    escaped
}

/// `value` as a line of JSON, with the same characters written out, as JSON does that.
pub(crate) fn json_line(value: &Value) -> String {
    // JSON itself consists of plain characters, so all others are in strings.
    let mut line = String::new();
    for c in value.to_string().chars() {
        if is_plain(c) {
            line.push(c);
        } else {
            c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| line.push_str(&format!("\\u{unit:04x}")));
        }
    }
    line.push('\n');
    line
}

/// Whether a terminal only shows it. Of characters that are not in our tables nobody knows.
fn is_plain(c: char) -> bool {
    use GeneralCategory::{Control, Format, LineSeparator, ParagraphSeparator, Surrogate, Unassigned};
    match c {
        ' '..='~' => true,
        _ => !matches!(
            c.general_category(),
            Control | Format | LineSeparator | ParagraphSeparator | Surrogate | Unassigned
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    /// One of each kind that terminals act on: an escape sequence, one of the second set of control
    /// characters, a string that sets the title, directions, invisible marks, line breaks.
    const HOSTILE: &str = "\u{1b}[31m\u{9b}2J\u{1b}]0;x\u{7}\u{7f}\u{202e}\u{2066}\u{200f}\u{61c}\u{200b}\u{feff}\u{ad}\u{e0041}\u{2028}\r\n";

    #[test]
    fn what_a_terminal_would_act_on_is_written_out_and_the_rest_stays() {
        assert_eq!(escape("a\nb\u{1b}[31m\u{202e}é\u{9b}"), "a\\nb\\u{1b}[31m\\u{202e}é\\u{9b}");
        let plain = "日本語 ❤\u{fe0f} e\u{301} \\ \"quoted\" 'k'";
        assert_eq!(escape(plain), plain);
        assert!(escape(HOSTILE).is_ascii(), "{}", escape(HOSTILE));
    }

    #[test]
    fn a_line_of_json_has_no_hostile_character_and_means_the_same() {
        let value = json!({ HOSTILE: [HOSTILE, "é❤"] });
        let line = json_line(&value);
        assert!(line.trim_end_matches('\n').chars().all(is_plain) && line.contains("é❤"), "{line}");
        assert!(line.contains("\\u202e") && line.contains("\\udb40\\udc41"), "{line}");
        assert_eq!(serde_json::from_str::<Value>(&line).unwrap(), value);
    }

    proptest! {
        #[test]
        fn nothing_gets_through(text in any::<String>()) {
            let escaped = escape(&text);
            prop_assert!(escaped.chars().all(is_plain));
            prop_assert_eq!(escape(&escaped), escaped);
            let line = json_line(&Value::from(text.as_str()));
            prop_assert!(line.trim_end_matches('\n').chars().all(is_plain));
            prop_assert_eq!(serde_json::from_str::<String>(&line).unwrap(), text);
        }
    }
}
