use super::functions::{self, Kind};
use super::rules;
use crate::{Error, HashId};

/// The longest name of a table: functions and indexes are named after it, and 63 bytes is the
/// server's limit. The longest name is that of a function: `_force_release_v` and room for three
/// digits.
const LONGEST_TABLE: usize = 44;

/// The tables that the public functions are made for. There is one set of those in a schema, so
/// that other tables cannot have any.
const PUBLIC_TABLES: [&str; 2] = ["syncguard_locks", "syncguard_fence_counters"];

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
        if [locks.to_owned(), grants_of(locks), line_of(locks)].contains(&fences.to_owned()) {
            return Err(Error::invalid("the tables of locks and of fences must have different names"));
        }
        Ok(Self { schema: schema.to_owned(), locks: locks.to_owned(), fences: fences.to_owned() })
    }

    /// Puts the names and the rules into a statement, where they stand between double braces.
    pub(super) fn fill(&self, statement: &str) -> String {
        let called = functions::INTERNAL.iter().chain(&functions::ADDED);
        let function_names: Vec<_> = called.map(|name| literal(&self.function(name))).collect();
        let names = [
            ("schema", quoted(&self.schema)),
            ("schema_text", literal(&self.schema)),
            ("locks", self.in_schema(&self.locks)),
            ("locks_text", literal(&self.in_schema(&self.locks))),
            ("fences", self.in_schema(&self.fences)),
            ("grants", self.in_schema(&grants_of(&self.locks))),
            ("grants_text", literal(&self.in_schema(&grants_of(&self.locks)))),
            ("line", self.in_schema(&line_of(&self.locks))),
            ("line_text", literal(&self.in_schema(&line_of(&self.locks)))),
            ("lock_id_index", quoted(&format!("idx_{}_lock_id", self.locks))),
            ("expiry_index", quoted(&format!("idx_{}_expires", self.locks))),
            ("channel", literal(&self.channel())),
            ("interest", format!("hashtext({})", literal(&self.channel()))),
            ("locks_name", literal(&self.locks)),
            ("fences_name", literal(&self.fences)),
            ("grants_name", literal(&grants_of(&self.locks))),
            ("line_name", literal(&line_of(&self.locks))),
            ("function_names", function_names.join(", ")),
            ("version", functions::VERSION.to_string()),
            ("version_pattern", literal(functions::VERSION_PATTERN)),
        ];
        let mut filled = statement.replace("{{held}}", include_str!("sql/held.sql").trim_end());
        let mut put = |placeholder: &str, text: &str| {
            filled = filled.replace(&format!("{{{{{placeholder}}}}}"), text);
        };
        for (placeholder, text) in names.into_iter().chain(rules::placeholders()) {
            put(placeholder, &text);
        }
        for name in functions::INTERNAL.iter().chain(&functions::HELPERS).chain(&functions::ADDED) {
            put(name, &self.in_schema(&self.function(name)));
        }
        for name in functions::PUBLIC {
            put(&format!("public_{name}"), &self.in_schema(&format!("leasehold_{name}")));
        }
        filled
    }

    /// The channel of wake-ups for these tables.
    pub(super) fn channel(&self) -> String {
        format!("leasehold:{}", HashId::of(&self.in_schema(&self.locks)))
    }

    /// The statements that make the tables and functions.
    pub(super) fn migration(&self) -> String {
        let definitions = functions::definitions(self);
        let signatures = |wanted: &[Kind]| -> String {
            let wanted = definitions.iter().filter(|function| wanted.contains(&function.kind));
            wanted.map(|function| literal(&function.signature)).collect::<Vec<_>>().join(", ")
        };
        let texts = |wanted: &[Kind]| -> String {
            let wanted = self.functions().into_iter().filter(|(kind, _)| wanted.contains(kind));
            wanted.map(|(_, text)| text).collect::<Vec<_>>().join("\n")
        };
        let (versioned, public) = ([Kind::Library, Kind::Added, Kind::PublicFunctions], [Kind::Everybody]);
        let migration = include_str!("sql/migrate.sql")
            .replace("{{functions}}", &texts(&versioned))
            .replace("{{own_functions}}", include_str!("sql/own_functions.sql"))
            .replace("{{public_functions}}", &texts(&public))
            .replace("{{public_signatures}}", &signatures(&public))
            .replace("{{versioned_signatures}}", &signatures(&versioned));
        self.fill(&migration)
    }

    /// The functions for these tables, as templates, in the order in which they are made.
    pub(super) fn functions(&self) -> Vec<(Kind, &'static str)> {
        let library = [
            include_str!("sql/functions.sql"),
            include_str!("sql/line.sql"),
            include_str!("sql/kinds.sql"),
            include_str!("sql/owned.sql"),
        ];
        let mut functions: Vec<_> = library.map(|text| (Kind::Library, text)).into();
        functions.push((Kind::Added, include_str!("sql/acquire_many.sql")));
        if self.are_public() {
            functions.push((Kind::PublicFunctions, include_str!("sql/helpers.sql")));
            functions.push((Kind::Everybody, include_str!("sql/public.sql")));
        }
        functions
    }

    /// Whether SQL clients get functions for these tables.
    pub(super) fn are_public(&self) -> bool {
        [self.locks.as_str(), self.fences.as_str()] == PUBLIC_TABLES
    }

    pub(super) fn schema(&self) -> &str {
        &self.schema
    }

    pub(super) fn locks_name(&self) -> &str {
        &self.locks
    }

    fn in_schema(&self, name: &str) -> String {
        format!("{}.{}", quoted(&self.schema), quoted(name))
    }

    fn function(&self, name: &str) -> String {
        format!("{}_{name}_v{}", self.locks, functions::VERSION)
    }
}

/// The table of the locks that are not exclusive.
fn grants_of(locks: &str) -> String {
    format!("{locks}_grants")
}

/// The table of those who stand in line.
fn line_of(locks: &str) -> String {
    format!("{locks}_line")
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

pub(super) fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_quoted_and_odd_ones_refused() {
        let tables = Tables::new("App", "my_locks", "my_fences").unwrap();
        assert_eq!(tables.fill("{{locks}} {{acquire}}"), "\"App\".\"my_locks\" \"App\".\"my_locks_acquire_v2\"");
        assert!(!tables.migration().contains("{{"), "every placeholder is filled");
        for odd in ["", "1a", "a b", "a\"b", "a;b", "a'b", "a.b", "\u{e4}", &"a".repeat(45)] {
            assert!(Tables::new("public", odd, "fences").is_err(), "{odd}");
            assert!(Tables::new("public", "locks", odd).is_err(), "{odd}");
        }
        for fences in ["same", "same_grants", "same_line"] {
            assert!(Tables::new("public", "same", fences).is_err(), "{fences}");
        }
    }

    #[test]
    fn every_name_of_the_longest_table_fits_with_versions_to_come() {
        let tables = Tables::new("public", &"a".repeat(LONGEST_TABLE), "fences").unwrap();
        let version = functions::VERSION.to_string().len();
        for name in functions::INTERNAL.iter().chain(&functions::HELPERS).chain(&functions::ADDED) {
            assert!(tables.function(name).len() - version + 3 <= 63, "{name}");
        }
        assert!(tables.fill("{{expiry_index}}").len() - 2 <= 63);
    }

    #[test]
    fn only_the_tables_of_the_usual_names_have_public_functions() {
        let public = |locks: &str, fences: &str| {
            Tables::new("any", locks, fences).unwrap().migration().contains("FUNCTION \"any\".\"leasehold_acquire\"(")
        };
        assert!(public("syncguard_locks", "syncguard_fence_counters"));
        assert!(!public("mine", "syncguard_fence_counters"));
        assert!(!public("syncguard_locks", "numbers"));
    }
}
