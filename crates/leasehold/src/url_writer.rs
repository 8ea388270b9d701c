//! URLs of stores from what was read of them: nothing gets into one that nobody put there.

use std::fmt::Display;
use std::time::Duration;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// What is encoded in a part of a URL: all that could end the part.
const IN_PARTS: &AsciiSet = &NON_ALPHANUMERIC.remove(b'.').remove(b'-').remove(b'_');

/// What is encoded in the path of a file, and in the value of an option.
const IN_PATHS: &AsciiSet = &IN_PARTS.remove(b'/');
const IN_OPTIONS: &AsciiSet = &IN_PATHS.remove(b':').remove(b',').remove(b'{').remove(b'}');

/// A name in the address of a URL, such as that of a database.
pub(crate) fn part(text: &str) -> String {
    utf8_percent_encode(text, IN_PARTS).to_string()
}

/// A path in a URL.
pub(crate) fn path(text: &str) -> String {
    utf8_percent_encode(text, IN_PATHS).to_string()
}

/// A host and its port; in brackets if it is an address with colons.
pub(crate) fn host(name: &str, port: Option<u16>) -> String {
    let port = port.map(|port| format!(":{port}")).unwrap_or_default();
    if name.contains(':') { format!("[{name}]{port}") } else { format!("{name}{port}") }
}

/// A time as options of ours have it.
pub(crate) fn time(time: Duration) -> String {
    format!("{}s", seconds(time))
}

/// A number of seconds as options of others have it, with its fraction.
pub(crate) fn seconds(time: Duration) -> String {
    let text = format!("{}.{:09}", time.as_secs(), time.subsec_nanos());
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A URL that gets its options one by one.
#[derive(Debug)]
pub(crate) struct UrlWriter {
    url: String,
    has_options: bool,
}

impl UrlWriter {
    /// A URL without options.
    pub(crate) fn new(address: String) -> Self {
        Self { url: address, has_options: false }
    }

    /// Adds an option.
    pub(crate) fn option(&mut self, name: &str, value: impl Display) {
        let separator = if self.has_options { '&' } else { '?' };
        self.has_options = true;
        let value = value.to_string();
        self.url.push_str(&format!("{separator}{name}={}", utf8_percent_encode(&value, IN_OPTIONS)));
    }

    /// Adds an option unless it says what is `usual` anyway.
    pub(crate) fn option_unless<T: Display + PartialEq + ?Sized>(&mut self, usual: &T, name: &str, value: &T) {
        if value != usual {
            self.option(name, value);
        }
    }

    /// The whole URL.
    pub(crate) fn finish(self) -> String {
        self.url
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::url_option::UrlReader;

    #[test]
    fn what_is_written_reads_as_it_was_meant() {
        let mut url = UrlWriter::new(format!("x://{}/{}", host("::1", Some(7)), part("a/b?c@d#e")));
        url.option("o", "a&b=c@d%/é");
        url.option_unless("usual", "left_out", "usual");
        url.option_unless("usual", "p", "{x}");
        let url = url.finish();
        assert_eq!(url, "x://[::1]:7/a%2Fb%3Fc%40d%23e?o=a%26b%3Dc%40d%25/%C3%A9&p={x}");
        let (_, options) = UrlReader { scheme: "memory" }.split(&url).unwrap();
        assert_eq!((options[0].value.as_str(), options[1].value.as_str()), ("a&b=c@d%/é", "{x}"));
    }

    #[test]
    fn times_are_written_exactly() {
        for (nanos, text) in
            [(1_500_000_000, "1.5"), (5_000_000_000, "5"), (1, "0.000000001"), (86_400_000_000_000, "86400")]
        {
            assert_eq!(seconds(Duration::from_nanos(nanos)), text);
        }
    }
}
