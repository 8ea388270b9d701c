use crate::{Error, HashId};

/// The longest name of a table: functions and indexes are named after it, and 63 bytes is the server's limit.
const LONGEST_TABLE: usize = 48;

/// The server's time in microseconds, at this very moment.
const NOW_US: &str = "floor(extract(epoch FROM clock_timestamp()) * 1000000)::bigint";

/// Whatever the server's default, what is answered is on disk. And nothing waits for others without end: a client that gives up
/// cannot always stop what it asked for, least of all through a pooler.
const PREPARE: &str = "IF current_setting('synchronous_commit') IN ('off', 'local', 'remote_write') THEN
    PERFORM set_config('synchronous_commit', 'on', true);
  END IF;
  IF current_setting('lock_timeout') = '0' THEN
    PERFORM set_config('lock_timeout', '4s', true);
  END IF;";

/// The last number of a key that is waited for. Each takes room in a table of the server's that everybody shares, so a process
/// that waits for more keys than this has several under one number.
const SHARES: i32 = 1023;

/// What the functions are called, behind the name of the table of locks.
const FUNCTIONS: [&str; 5] = ["tell_freed", "acquire", "release", "extend", "force_release"];

/// The tables of the locks and of the fences, and everything that is named after them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tables {
    schema: String,
    locks: String,
    fences: String,
}

impl Tables {
    /// # Errors
    ///
    /// `InvalidArgument` if a name is not a plain identifier, is too long, or is given twice.
    pub(super) fn new(schema: &str, locks: &str, fences: &str) -> Result<Self, Error> {
        check(schema, 63)?;
        check(locks, LONGEST_TABLE)?;
        check(fences, LONGEST_TABLE)?;
        if locks == fences {
            return Err(Error::invalid("the tables of locks and of fences must have different names"));
        }
        Ok(Self { schema: schema.to_owned(), locks: locks.to_owned(), fences: fences.to_owned() })
    }

    /// Puts the names into a statement, where they stand between double braces.
    pub(super) fn fill(&self, statement: &str) -> String {
        let mut filled = statement.to_owned();
        for (placeholder, name) in [
            ("schema", quoted(&self.schema)),
            ("schema_text", literal(&self.schema)),
            ("locks", self.in_schema(&self.locks)),
            ("locks_text", literal(&self.in_schema(&self.locks))),
            ("fences", self.in_schema(&self.fences)),
            ("fences_text", literal(&self.in_schema(&self.fences))),
            ("lock_id_index", quoted(&format!("idx_{}_lock_id", self.locks))),
            ("expiry_index", quoted(&format!("idx_{}_expires_at", self.locks))),
            ("channel", literal(&self.channel())),
            ("interest", format!("hashtext({})", literal(&self.channel()))),
            ("shares", SHARES.to_string()),
            ("now_us", NOW_US.to_owned()),
            ("prepare", PREPARE.to_owned()),
            ("locks_name", literal(&self.locks)),
            ("fences_name", literal(&self.fences)),
            ("function_names", FUNCTIONS.map(|name| literal(&format!("{}_{name}", self.locks))).join(", ")),
        ] {
            filled = filled.replace(&format!("{{{{{placeholder}}}}}"), &name);
        }
        for name in FUNCTIONS {
            filled = filled.replace(&format!("{{{{{name}}}}}"), &self.function(name));
        }
        filled
    }

    /// The channel of wake-ups for these tables.
    pub(super) fn channel(&self) -> String {
        format!("leasehold:{}", HashId::of(&self.in_schema(&self.locks)))
    }

    /// The statements that make the tables and functions.
    pub(super) fn migration(&self) -> String {
        self.fill(&include_str!("sql/migrate.sql").replace("{{functions}}", include_str!("sql/functions.sql")))
    }

    fn in_schema(&self, name: &str) -> String {
        format!("{}.{}", quoted(&self.schema), quoted(name))
    }

    fn function(&self, name: &str) -> String {
        self.in_schema(&format!("{}_{name}", self.locks))
    }
}

fn check(name: &str, longest: usize) -> Result<(), Error> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    if name.is_empty() || !name.bytes().all(plain) || name.as_bytes()[0].is_ascii_digit() {
        return Err(Error::invalid("a schema or table has a name that is not a plain identifier")
            .with_hint("use letters, digits and underscores, and no digit at the start"));
    }
    if name.len() > longest {
        return Err(Error::invalid(format!("a schema or table has a name longer than {longest} bytes")));
    }
    Ok(())
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_quoted_and_odd_ones_refused() {
        let tables = Tables::new("App", "my_locks", "my_fences").unwrap();
        assert_eq!(tables.fill("{{locks}} {{acquire}}"), "\"App\".\"my_locks\" \"App\".\"my_locks_acquire\"");
        assert!(!tables.migration().contains("{{"), "every placeholder is filled");
        for odd in ["", "1a", "a b", "a\"b", "a;b", "a'b", "a.b", "\u{e4}", &"a".repeat(49)] {
            assert!(Tables::new("public", odd, "fences").is_err(), "{odd}");
            assert!(Tables::new("public", "locks", odd).is_err(), "{odd}");
        }
        assert!(Tables::new("public", "same", "same").is_err());
    }
}
