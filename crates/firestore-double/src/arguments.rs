use std::path::PathBuf;

use crate::Options;

impl Options {
    /// Reads the arguments of the program, without its name. It works in the current directory.
    ///
    /// # Errors
    ///
    /// A message for a person, if they make no sense.
    pub fn parse(arguments: impl IntoIterator<Item = String>) -> Result<Self, String> {
        let mut options = Self { directory: PathBuf::from("."), ..Self::default() };
        let mut arguments = arguments.into_iter();
        let mut has_port = false;
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().ok_or_else(|| format!("{argument} lacks a value"));
            let port = |text: String| text.parse().map_err(|_| format!("{text:?} is no port"));
            match argument.as_str() {
                "--port" => {
                    options.port = port(value()?)?;
                    has_port = true;
                }
                "--token-port" => options.token_port = Some(port(value()?)?),
                "--tls" => options.tls = Some((value()?.into(), value()?.into())),
                "--journal" => options.journal = true,
                "--optimistic" => options.optimistic = true,
                other => return Err(format!("{other} is not known: {USAGE}")),
            }
        }
        if has_port { Ok(options) } else { Err(USAGE.to_owned()) }
    }
}

const USAGE: &str =
    "usage: firestore-double --port N [--tls CERTIFICATE KEY] [--token-port N] [--journal] [--optimistic]";

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Options, String> {
        Options::parse(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn arguments_are_understood() {
        let options = parse("--port 1 --tls a b --token-port 2 --journal --optimistic").unwrap();
        assert_eq!((options.port, options.token_port), (1, Some(2)));
        assert_eq!(options.tls, Some(("a".into(), "b".into())));
        assert!(options.journal && options.optimistic);
        for wrong in ["", "--port", "--port x", "--port 1 --tls a", "--nonsense"] {
            parse(wrong).unwrap_err();
        }
    }
}
