//! What the SQL shares with the rest of the library: each rule is a constant of Rust, and is filled
//! into the statements.

use super::error::state;
use crate::backend::Line;
use crate::remote::notification::{FORCE_RELEASED, FREED, GRANTED, STOLEN, TURN};
use crate::remote::placeholder::{HASH_LENGTH, MARK, Placeholder};
use crate::timestamp::TOLERANCE_MILLIS;
use crate::{Fence, Holder, Key, LockId, Metadata, Ttl};

/// The longest name of a lock. Shared with other programs, so it never changes.
pub(super) const LONGEST_NAME: usize = 1700;

/// The server's time in microseconds, at this very moment. The operator is the server's own: a
/// stranger's that fits the types better is not found.
const NOW_US: &str = "floor(extract(epoch FROM clock_timestamp()) OPERATOR(pg_catalog.*) 1000000)::bigint";

/// Whatever the server's default, what is answered is on disk.
const DURABLE: &str = "CASE WHEN current_setting('synchronous_commit') IN ('off', 'local', 'remote_write')
      THEN set_config('synchronous_commit', 'on', true) END";

/// And nothing waits for others without end: a client that gives up cannot always stop what it
/// asked for, least of all through a pooler.
///
/// Settings are made in expressions, which cost less than statements.
fn prepare() -> String {
    format!(
        "IF num_nulls(
    {DURABLE},
    CASE WHEN current_setting('lock_timeout') = '0' THEN set_config('lock_timeout', '4s', true) END
  ) > 2 THEN
    NULL;
  END IF;"
    )
}

/// What is asked for many does not wait at all. Whatever it would wait for nevertheless, such as a
/// table that somebody has locked, is left to those who ask alone. And its plans are made once, for
/// any number of them: the ones that are right for large tables, from the beginning.
fn prepare_many() -> String {
    format!(
        "IF num_nulls(
    {DURABLE},
    set_config('lock_timeout', '100ms', true),
    set_config('enable_seqscan', 'off', true),
    set_config('plan_cache_mode', 'force_generic_plan', true)
  ) > 4 THEN
    NULL;
  END IF;"
    )
}

/// The fence after the last one of a counter. One beyond the highest is no fence.
fn after_last() -> String {
    format!("least(f.fence, {}) + 1", Fence::MAX.get())
}

/// The lowest fence at this time, in units of 100 microseconds: a server that lost its last writes
/// repeats none.
const CLOCK_FENCE: &str = "now_us / 100";

/// The last number of a key that is waited for. Each takes room in a table of the server's that
/// everybody shares, so a process that waits for more keys than this has several under one number.
const SHARES: i32 = 1023;

/// The number of those who watch all locks. It is no key's.
const WATCHED: i32 = SHARES + 1;

/// What stands for each rule between double braces.
pub(super) fn placeholders() -> Vec<(&'static str, String)> {
    let text = |text: &str| super::tables::literal(text);
    let deepest = Metadata::MAX_DEPTH;
    vec![
        ("now_us", NOW_US.to_owned()),
        ("prepare", prepare()),
        ("prepare_many", prepare_many()),
        ("after_last", after_last()),
        ("clock_fence", CLOCK_FENCE.to_owned()),
        ("shares", SHARES.to_string()),
        ("watched", WATCHED.to_string()),
        ("granted", text(GRANTED)),
        ("tolerance_ms", TOLERANCE_MILLIS.to_string()),
        ("highest_fence", Fence::MAX.get().to_string()),
        ("fence_digits", Fence::DIGITS.to_string()),
        ("freed", text(FREED)),
        ("turn", text(TURN)),
        ("placeholder", text(MARK)),
        ("kept", text(Placeholder::Called.start())),
        ("hash_length", HASH_LENGTH.to_string()),
        ("call_lease_ms", Line::CALL_LEASE.as_millis().to_string()),
        ("stolen", text(STOLEN)),
        ("force_released", text(FORCE_RELEASED)),
        ("longest_name", LONGEST_NAME.to_string()),
        ("longest_key", Key::MAX_BYTES.to_string()),
        ("longest_holder", Holder::MAX_BYTES.to_string()),
        ("longest_metadata", Metadata::MAX_BYTES.to_string()),
        ("deepest_metadata", deepest.to_string()),
        // Something that holds other things at this level is one level too many.
        ("too_deep", text(&format!("strict $.**{{{deepest}}} ? (@.type() == \"object\" || @.type() == \"array\")"))),
        ("too_large", text("strict $.** ? (@.type() == \"number\" && (@ > 1.7e308 || @ < -1.7e308))")),
        ("longest_ttl_s", Ttl::MAX.as_duration().as_secs().to_string()),
        ("default_ttl_s", Ttl::default().as_duration().as_secs().to_string()),
        ("lock_id_length", LockId::LEN.to_string()),
        ("lock_id_in_use", text(state::LOCK_ID_IN_USE)),
        ("fence_too_high", text(state::FENCE_TOO_HIGH)),
        ("bad_key", text(state::BAD_KEY)),
        ("bad_ttl", text(state::BAD_TTL)),
        ("bad_lock_id", text(state::BAD_LOCK_ID)),
        ("bad_holder", text(state::BAD_HOLDER)),
        ("bad_metadata", text(state::BAD_METADATA)),
    ]
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU16;

    use super::*;
    use crate::backend::Mode;

    #[test]
    fn no_rule_is_written_twice() {
        for (file, text) in [
            ("acquire_many", include_str!("sql/acquire_many.sql")),
            ("find", include_str!("sql/find.sql")),
            ("functions", include_str!("sql/functions.sql")),
            ("held", include_str!("sql/held.sql")),
            ("helpers", include_str!("sql/helpers.sql")),
            ("inspect", include_str!("sql/inspect.sql")),
            ("kinds", include_str!("sql/kinds.sql")),
            ("line", include_str!("sql/line.sql")),
            ("list", include_str!("sql/list.sql")),
            ("owned", include_str!("sql/owned.sql")),
            ("public", include_str!("sql/public.sql")),
            ("sweep", include_str!("sql/sweep.sql")),
        ] {
            for literal in [
                "- 1000",
                "900000000000000",
                "clock_timestamp",
                "/ 100 ",
                "/ 100,",
                "/ 100)",
                "least(f.fence",
                "'F'",
                "'S'",
                "'R'",
                "'T'",
                "'~",
                "LH0",
                " 512",
                " 4096",
            ] {
                assert!(
                    !text.contains(literal),
                    "{file}.sql has {literal}, which is a constant of Rust: use a placeholder"
                );
            }
        }
    }

    #[test]
    fn placeholders_start_with_their_mark_and_the_class_of_their_locks() {
        let start = |class: &str| format!("{MARK}{class}");
        assert_eq!(Placeholder::Shared.start(), start(super::super::class::of(Mode::Shared).0));
        let of = NonZeroU16::MIN;
        assert_eq!(Placeholder::Permits.start(), start(super::super::class::of(Mode::Permit { of }).0));
    }

    #[test]
    fn whole_seconds_lose_nothing() {
        for ttl in [Ttl::MAX, Ttl::default()] {
            assert_eq!(ttl.as_duration().subsec_nanos(), 0);
        }
    }
}
