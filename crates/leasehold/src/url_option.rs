//! What the URLs of stores have in common: options after a question mark, and errors that explain.

use std::ops::RangeInclusive;
use std::path::Path;
use std::time::Duration;

use percent_encoding::percent_decode_str;

use crate::stores::example_of;
use crate::{Error, parse_duration, url_writer};

/// The shortest and the longest time that an option may say.
const TIMES: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(86400);

/// Reads the URLs of one store. Its errors say what is wrong and show an example, and never repeat
/// the URL, which may contain a password.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UrlReader {
    /// One of the store's schemes: it leads to the example.
    pub(crate) scheme: &'static str,
}

/// One option of a URL.
#[derive(Debug)]
pub(crate) struct UrlOption<'a> {
    pub(crate) name: &'a str,
    /// Decoded; empty if there is none.
    pub(crate) value: String,
    /// The whole of it, as it stands in the URL.
    pub(crate) text: &'a str,
}

impl UrlReader {
    /// The address before the question mark, and the options after it.
    pub(crate) fn split(self, url: &str) -> Result<(&str, Vec<UrlOption<'_>>), Error> {
        let (address, query) = url.split_once('?').unwrap_or((url, ""));
        let options = query.split('&').filter(|option| !option.is_empty()).map(|text| {
            let (name, value) = text.split_once('=').unwrap_or((text, ""));
            self.decode(value).map(|value| UrlOption { name, value, text })
        });
        Ok((address, options.collect::<Result<_, _>>()?))
    }

    /// The text that a percent-encoded one stands for.
    pub(crate) fn decode(self, text: &str) -> Result<String, Error> {
        let decoded = percent_decode_str(text).decode_utf8();
        decoded.map(Into::into).map_err(|_| self.unusable("is not UTF-8"))
    }

    pub(crate) fn unusable(self, why: &str) -> Error {
        Error::invalid(format!("the store's URL {why}")).with_hint(format!("for example {}", example_of(self.scheme)))
    }

    /// The error of an option that is none of `known`.
    pub(crate) fn unknown_option(self, known: &str) -> Error {
        self.unusable("has an option this build does not know").with_hint(format!("the known ones are: {known}"))
    }
}

impl UrlReader {
    /// The time that an option says.
    pub(crate) fn time(self, option: &str, text: &str) -> Result<Duration, Error> {
        let time = parse_duration(text).map_err(|error| {
            let hint = error.hint().unwrap_or_default().to_owned();
            Error::invalid(format!("the option {option} of the store's URL: {error}")).with_hint(hint)
        })?;
        self.check_time(time)
    }

    /// What an option says that is on or off.
    pub(crate) fn switch(self, option: &str, text: &str) -> Result<bool, Error> {
        match text {
            "on" => Ok(true),
            "off" => Ok(false),
            _ => Err(self.unusable(&format!("has a {option} option that is neither on nor off"))),
        }
    }

    /// A number of seconds, with or without a fraction: an option of somebody else.
    pub(crate) fn seconds(self, text: &str) -> Result<Duration, Error> {
        let seconds = text.trim_end_matches('s').parse().ok();
        let time = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        let time = time.ok_or_else(|| self.unusable("has a time that is not a number of seconds"))?;
        self.check_time(time)
    }

    /// `url` with the files that the options `names` name from `directory` named from the root.
    /// What cannot be read stays as it is: connecting will say why.
    pub(crate) fn with_absolute_files(self, url: &str, names: &[&str], directory: &Path) -> String {
        let Ok((address, options)) = self.split(url) else { return url.to_owned() };
        let absolute = |option: &UrlOption<'_>| {
            let is_relative = !option.value.is_empty() && Path::new(&option.value).is_relative();
            if !is_relative || !names.contains(&option.name) {
                return option.text.to_owned();
            }
            let path = directory.join(&option.value).display().to_string();
            format!("{}={}", option.name, url_writer::path(&path))
        };
        let options: Vec<_> = options.iter().map(absolute).collect();
        if options.is_empty() { url.to_owned() } else { format!("{address}?{}", options.join("&")) }
    }

    /// `time` if it is one that a store can keep to.
    pub(crate) fn check_time(self, time: Duration) -> Result<Duration, Error> {
        if TIMES.contains(&time) {
            return Ok(time);
        }
        Err(self.unusable("or its options have a time that is not between 1ms and 1d"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const READER: UrlReader = UrlReader { scheme: "memory" };

    #[test]
    fn options_are_split_and_decoded() {
        let (address, options) = READER.split("x://host/0?a=1%262&&b&c=d=e").unwrap();
        let found: Vec<_> = options.iter().map(|option| (option.name, option.value.as_str(), option.text)).collect();
        assert_eq!(address, "x://host/0");
        assert_eq!(found, [("a", "1&2", "a=1%262"), ("b", "", "b"), ("c", "d=e", "c=d=e")]);
        assert!(READER.split("x://host").unwrap().1.is_empty());
        assert!(READER.split("x://host?a=%ff").is_err());
    }

    #[test]
    fn errors_show_an_example_or_what_is_known() {
        let error = READER.unusable("names no host");
        assert_eq!(
            (error.to_string().as_str(), error.hint()),
            ("the store's URL names no host", Some("for example memory:"))
        );
        assert_eq!(READER.unknown_option("a, b").hint(), Some("the known ones are: a, b"));
    }

    #[test]
    fn files_in_relative_places_are_named_from_the_root_and_nothing_else_changes() {
        let files = |url| READER.with_absolute_files(url, &["ca", "key"], Path::new("/srv/a b"));
        assert_eq!(
            files("x://me:p%40@h/0?ca=my%26ca.pem&t=ca.pem&key=/k"),
            "x://me:p%40@h/0?ca=/srv/a%20b/my%26ca.pem&t=ca.pem&key=/k"
        );
        for same in ["x://h", "x://h?", "x://h?ca", "x://h?ca=", "x://h?ca=/a%20b", "x://h?ca=%ff", "x:"] {
            assert_eq!(files(same), same);
        }
    }

    #[test]
    fn times_have_a_unit_and_are_between_a_millisecond_and_a_day() {
        assert_eq!(READER.time("timeout", "1.5s").unwrap(), Duration::from_millis(1500));
        let error = READER.time("timeout", "5").unwrap_err();
        assert_eq!(error.to_string(), "the option timeout of the store's URL: the time has no unit");
        assert_eq!(error.hint(), Some("5s? 5m?"));
        for wrong in ["5M", "0s", "25h", "soon", ""] {
            assert!(READER.time("timeout", wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn times_of_others_are_seconds_from_a_millisecond_to_a_day() {
        for (text, millis) in [("1.5", 1500), ("2s", 2000), ("0.001", 1), ("86400", 86_400_000)] {
            assert_eq!(READER.seconds(text).unwrap(), Duration::from_millis(millis), "{text}");
        }
        for wrong in ["", "0", "0.0009", "86401", "-1", "NaN", "inf", "soon"] {
            assert!(READER.seconds(wrong).is_err(), "{wrong}");
        }
    }
}
