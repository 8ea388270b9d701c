use sha2::{Digest, Sha256};

use super::tables::Tables;

/// The version of all functions together. Every name ends in it, so that programs of two versions
/// use one database side by side. A change to any function needs the next number.
pub(super) const VERSION: u32 = 2;

/// The functions of the library, behind the name of the table of locks.
pub(super) const INTERNAL: [&str; 22] = [
    "tell_freed",
    "acquire",
    "release",
    "release_many",
    "extend",
    "extend_many",
    "class_of",
    "hash",
    "look",
    "call_next",
    "join_line",
    "claim",
    "next_fence",
    "let_in",
    "acquire_kind",
    "acquire_all",
    "guard",
    "settle",
    "release_kind",
    "extend_kind",
    "extend_mixed",
    "force_release",
];

/// Those that were added to this version after it had been used, in a database that may have been
/// migrated before. What they do is done without them there, only slower.
pub(super) const ADDED: [&str; 1] = ["acquire_many"];

/// What the public functions need beside those.
pub(super) const HELPERS: [&str; 9] = [
    "check_key",
    "storage_key",
    "base64url",
    "new_lock_id",
    "check_lock_id",
    "check_ttl",
    "check_holder",
    "check_details",
    "to_time",
];

/// The functions for everybody who speaks SQL. Their names have no version, because clients write
/// them down.
pub(super) const PUBLIC: [&str; 4] = ["acquire", "release", "extend", "holder"];

/// How the body of a public function tells its version.
pub(super) const VERSION_PATTERN: &str = "Leasehold functions, version ([0-9]{1,9})";

/// Who calls a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Library,
    Added,
    PublicFunctions,
    Everybody,
}

/// A function as this build makes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Definition {
    pub(super) name: String,
    /// Its name and the types of what it takes, as the server reads them.
    pub(super) signature: String,
    pub(super) kind: Kind,
    /// A digest of all that makes it what it is; the server computes the same of the function that
    /// is there.
    pub(super) fingerprint: String,
}

/// Every function for these tables, in the order in which they are made.
pub(super) fn definitions(tables: &Tables) -> Vec<Definition> {
    let mut definitions = Vec::new();
    for (kind, text) in tables.functions() {
        let text = tables.fill(text);
        definitions.extend(text.split("CREATE OR REPLACE FUNCTION ").skip(1).filter_map(|text| read(text, kind)));
    }
    definitions
}

/// Reads what follows `CREATE OR REPLACE FUNCTION`, which our files write in the way the server
/// shows it.
fn read(text: &str, kind: Kind) -> Option<Definition> {
    let (header, rest) = text.split_once(" AS $$")?;
    let (body, _) = rest.split_once("$$;")?;
    let (name, header) = header.split_once('(')?;
    let (arguments, options) = header.split_once(')')?;
    let (returns, options) = options.split_once("LANGUAGE ")?;
    let returns = returns.trim().strip_prefix("RETURNS ").unwrap_or("record");
    let (options, settings) = options.split_once(" SET ").unwrap_or((options, ""));
    let volatility = match options {
        options if options.contains("IMMUTABLE") => "i",
        options if options.contains("STABLE") => "s",
        _ => "v",
    };
    let arguments = one_line(arguments);
    let fingerprint = [
        arguments.as_str(),
        &one_line(returns),
        options.split(' ').next()?,
        volatility,
        if options.contains("SECURITY DEFINER") { "t" } else { "f" },
        if options.contains("STRICT") { "t" } else { "f" },
        &settings.replace(" = ", "="),
        body,
    ]
    .join("\n");
    let types: Vec<_> = arguments.split(", ").filter_map(type_of).collect();
    Some(Definition {
        name: name.rsplit('.').next()?.trim_matches('"').to_owned(),
        signature: format!("{name}({})", types.join(", ")),
        kind,
        fingerprint: hex(&Sha256::digest(fingerprint.as_bytes())),
    })
}

/// The type of an argument, unless it is only given back.
fn type_of(argument: &str) -> Option<&str> {
    let argument = argument.strip_prefix("INOUT ").unwrap_or(argument);
    let (name, rest) = argument.split_once(' ')?;
    (name != "OUT").then(|| rest.split(" DEFAULT ").next().unwrap_or(rest))
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace("( ", "(").replace(" )", ")")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A digest of all functions for each version that there was, filled with the usual names.
    const DIGESTS: [(u32, &str); 2] = [
        (1, "d11edccef73cf0f41159e1420eb0d9c924d2a0758e79f503f0f318cda240ba9c"),
        (2, "1b2b2ffdc38a10a9e0a3aa44d7953509df60fc4df8082dd7c2530951dc19e54f"),
    ];

    /// The same of those that were added to the last one.
    const ADDED_DIGEST: &str = "66f63b7c0e1754cd23452167afb6c912f4c6be8516b3d2300f731a50f16e0f1a";

    fn tables() -> Tables {
        Tables::new("public", "syncguard_locks", "syncguard_fence_counters").unwrap()
    }

    #[test]
    fn a_changed_function_has_a_new_version() {
        let digest = digest_of(|kind| kind != Kind::Added);
        let known = DIGESTS.iter().find(|(version, _)| *version == VERSION);
        assert!(
            known == Some(&(VERSION, digest.as_str())),
            "the SQL functions, or a rule that is filled into them, are not those of version {VERSION}. If that version was \
             ever used, raise VERSION and add its digest, and leave the old line: programs of the old version go on with \
             theirs. Digest: {digest}"
        );
        assert_eq!(DIGESTS.last().map(|(version, _)| *version), Some(VERSION));
        let digest = digest_of(|kind| kind == Kind::Added);
        assert_eq!(digest, ADDED_DIGEST, "if it was ever used, raise VERSION, and let INTERNAL have it from then on");
    }

    fn digest_of(wanted: fn(Kind) -> bool) -> String {
        let definitions = definitions(&tables());
        let wanted = definitions.iter().filter(|it| wanted(it.kind));
        let all: String = wanted.map(|it| format!("{} {}\n", it.signature, it.fingerprint)).collect();
        hex(&Sha256::digest(all.as_bytes()))
    }

    #[test]
    fn every_function_is_read() {
        let definitions = definitions(&tables());
        let names: Vec<_> =
            definitions.iter().filter(|it| it.kind != Kind::Everybody).map(|it| it.name.clone()).collect();
        let expected =
            INTERNAL.iter().chain(&ADDED).chain(&HELPERS).map(|name| format!("syncguard_locks_{name}_v{VERSION}"));
        assert_eq!(names, expected.collect::<Vec<_>>());
        let names: Vec<_> =
            definitions.iter().filter(|it| it.kind == Kind::Everybody).map(|it| it.name.clone()).collect();
        assert_eq!(names, PUBLIC.map(|name| format!("leasehold_{name}")));
        let acquire = definitions.iter().find(|it| it.name == "leasehold_acquire").unwrap();
        let signature = "\"public\".\"leasehold_acquire\"(text, double precision, text, jsonb, text)";
        assert_eq!(acquire.signature, signature);
        assert!(definitions.iter().all(|it| it.fingerprint.len() == 64));
    }

    #[test]
    fn bodies_are_the_same_in_every_encoding() {
        assert!(tables().migration().is_ascii());
    }
}
