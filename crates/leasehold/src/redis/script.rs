use std::sync::LazyLock;

use redis::{Cmd, Script as Source};

use super::names::{BUSY, ENDS, FREED_SUFFIX, GRANTS, HELD, LEASES, LINE, SLOTS, TAKEN, TURN};
use crate::backend::Line;
use crate::remote::notification::{FORCE_RELEASED, GRANTED, STOLEN};
use crate::remote::placeholder::Placeholder;
use crate::timestamp::TOLERANCE_MILLIS;
use crate::{Fence, Key, LockId};

/// What a script for many requests answers to one that has to be sent by itself.
pub(super) const APART: i64 = 2;

/// A script, sent by its hash: the server knows it from the first time on. The source follows when
/// it does not.
pub(super) struct Script {
    text: String,
    hash: String,
}

macro_rules! script {
    ($name:ident = $($part:expr),+) => {
        pub(super) static $name: LazyLock<Script> = LazyLock::new(|| Script::new(concat!($($part),+)));
    };
}

macro_rules! lua {
    ($($file:literal),+) => { concat!($(include_str!(concat!("lua/", $file)), "\n"),+) };
}

/// What is only needed where several hold a key or somebody waits for it stands in a function that
/// uses nothing outside of it: all the others do not even pay for its parts being put together.
/// First comes where it finds what the indexes of lock ids start with.
macro_rules! busy {
    ($indexes:literal; $($file:literal),+) => {
        concat!(
            "local function busy(...)\nlocal INDEXES = ",
            $indexes,
            "\n",
            lua!("clock.lua", "record.lua", "entry.lua", "grant.lua", "place.lua", "holders.lua", "line.lua", $($file),+),
            "end\n"
        )
    };
}

script!(
    ACQUIRE = lua!("clock.lua", "record.lua", "fence.lua", "granted.lua"),
    busy!(
        "string.sub(KEYS[3], 1, -1 - {{lock_id_length}})";
        "obstacle.lua", "fence.lua", "granted.lua", "steal.lua", "admit.lua", "decide.lua"
    ),
    lua!("acquire.lua", "acquire_one.lua")
);
script!(
    ACQUIRE_MANY = lua!(
        "clock.lua",
        "record.lua",
        "fence.lua",
        "granted.lua",
        "apart.lua",
        "acquire.lua",
        "as_text.lua",
        "acquire_many.lua"
    )
);
script!(
    ACQUIRE_ALL = busy!(
        "string.sub(KEYS[3], 1, -1 - {{lock_id_length}})";
        "obstacle.lua", "fence.lua", "granted.lua", "admit.lua", "acquire_all.lua"
    ),
    "return busy()"
);
script!(
    RELEASE = lua!("clock.lua", "freed.lua"),
    busy!("string.sub(KEYS[1], 1, -1 - {{lock_id_length}})"; "owned.lua", "freed.lua", "leave.lua"),
    lua!("release.lua", "one.lua")
);
script!(
    RELEASE_MANY = lua!("clock.lua", "freed.lua"),
    busy!("string.sub(KEYS[1], 1, -1 - {{lock_id_length}})"; "owned.lua", "freed.lua", "leave.lua"),
    lua!("release.lua", "as_text.lua", "many.lua")
);
script!(
    EXTEND = lua!("clock.lua", "record.lua", "entry.lua", "owned.lua"),
    busy!("string.sub(KEYS[1], 1, -1 - {{lock_id_length}})"; "prolong.lua"),
    lua!("extend.lua", "one.lua")
);
script!(
    EXTEND_MANY = lua!("clock.lua", "record.lua", "entry.lua", "owned.lua"),
    busy!("string.sub(KEYS[1], 1, -1 - {{lock_id_length}})"; "prolong.lua"),
    lua!("extend.lua", "as_text.lua", "many.lua")
);
script!(FORCE_RELEASE = busy!("ARGV[1]"; "freed.lua", "force_release.lua"), "return busy()");
script!(BY_KEY = lua!("clock.lua", "record.lua", "grant.lua", "by_key.lua"));
script!(BY_ID = lua!("clock.lua", "record.lua", "entry.lua", "grant.lua", "by_id.lua"));
script!(INSPECT = lua!("clock.lua", "record.lua", "grant.lua", "place.lua", "inspect.lua"));
script!(LIST = lua!("clock.lua", "record.lua", "entry.lua", "grant.lua", "place.lua", "list.lua"));
script!(PERMISSIONS = lua!("permissions.lua"));

impl Script {
    /// The rules that all stores share stand between double braces.
    fn new(text: &str) -> Self {
        let text = text
            .replace("{{tolerance}}", &TOLERANCE_MILLIS.to_string())
            .replace("{{highest_fence}}", &Fence::MAX.to_string())
            .replace("{{fence_digits}}", &Fence::DIGITS.to_string())
            .replace("{{lock_id_length}}", &LockId::LEN.to_string())
            .replace("{{longest_key}}", &Key::MAX_BYTES.to_string())
            .replace("{{freed_suffix}}", FREED_SUFFIX)
            .replace("{{held}}", HELD)
            .replace("{{busy}}", BUSY)
            .replace("{{grants}}", GRANTS)
            .replace("{{ends}}", ENDS)
            .replace("{{slots}}", SLOTS)
            .replace("{{line}}", LINE)
            .replace("{{leases}}", LEASES)
            .replace("{{turn}}", TURN)
            .replace("{{taken}}", TAKEN)
            .replace("{{apart}}", &APART.to_string())
            .replace("{{called}}", Placeholder::Called.start().trim_start_matches('~'))
            .replace("{{call_lease}}", &Line::CALL_LEASE.as_millis().to_string())
            .replace("{{stolen}}", STOLEN)
            .replace("{{granted}}", GRANTED)
            .replace("{{force_released}}", FORCE_RELEASED);
        Self { hash: Source::new(&text).get_hash().to_owned(), text }
    }

    /// The command that runs the script if the server knows it.
    pub(super) fn by_hash(&self, keys: &[&str], arguments: &[&str]) -> Cmd {
        command("EVALSHA", &self.hash, keys, arguments)
    }

    /// The command that runs the script, and makes it known.
    pub(super) fn by_source(&self, keys: &[&str], arguments: &[&str]) -> Cmd {
        command("EVAL", &self.text, keys, arguments)
    }
}

fn command(name: &str, script: &str, keys: &[&str], arguments: &[&str]) -> Cmd {
    let mut command = redis::cmd(name);
    command.arg(script).arg(keys.len()).arg(keys).arg(arguments);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_placeholder_is_filled() {
        for script in [
            &*ACQUIRE,
            &*ACQUIRE_MANY,
            &*ACQUIRE_ALL,
            &*INSPECT,
            &*RELEASE,
            &*EXTEND,
            &*RELEASE_MANY,
            &*EXTEND_MANY,
            &*BY_KEY,
            &*BY_ID,
            &*FORCE_RELEASE,
            &*LIST,
            &*PERMISSIONS,
        ] {
            assert!(!script.text.contains("{{"), "{}", script.text);
        }
        assert!(ACQUIRE.text.contains("fence > 900000000000000 then"));
    }

    #[test]
    fn no_rule_is_written_twice() {
        for (file, text) in [
            ("acquire", include_str!("lua/acquire.lua")),
            ("acquire_all", include_str!("lua/acquire_all.lua")),
            ("acquire_many", include_str!("lua/acquire_many.lua")),
            ("acquire_one", include_str!("lua/acquire_one.lua")),
            ("apart", include_str!("lua/apart.lua")),
            ("admit", include_str!("lua/admit.lua")),
            ("as_text", include_str!("lua/as_text.lua")),
            ("clock", include_str!("lua/clock.lua")),
            ("by_id", include_str!("lua/by_id.lua")),
            ("by_key", include_str!("lua/by_key.lua")),
            ("decide", include_str!("lua/decide.lua")),
            ("entry", include_str!("lua/entry.lua")),
            ("extend", include_str!("lua/extend.lua")),
            ("fence", include_str!("lua/fence.lua")),
            ("force_release", include_str!("lua/force_release.lua")),
            ("freed", include_str!("lua/freed.lua")),
            ("grant", include_str!("lua/grant.lua")),
            ("granted", include_str!("lua/granted.lua")),
            ("holders", include_str!("lua/holders.lua")),
            ("inspect", include_str!("lua/inspect.lua")),
            ("leave", include_str!("lua/leave.lua")),
            ("line", include_str!("lua/line.lua")),
            ("list", include_str!("lua/list.lua")),
            ("many", include_str!("lua/many.lua")),
            ("obstacle", include_str!("lua/obstacle.lua")),
            ("one", include_str!("lua/one.lua")),
            ("owned", include_str!("lua/owned.lua")),
            ("place", include_str!("lua/place.lua")),
            ("prolong", include_str!("lua/prolong.lua")),
            ("record", include_str!("lua/record.lua")),
            ("release", include_str!("lua/release.lua")),
            ("steal", include_str!("lua/steal.lua")),
        ] {
            for literal in
                ["9000000", "TOLERANCE = 1", ":freed", "'S'", "'R'", "%015d", "~= 15", "~= 22", "> 512", "'q'", "2000"]
            {
                assert!(!text.contains(literal), "{file}.lua has {literal}, which is a constant of Rust");
            }
        }
    }
}
