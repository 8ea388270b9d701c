use std::sync::LazyLock;

use redis::{Cmd, Script as Source};

use super::names::FREED_SUFFIX;
use crate::remote::notification::{FORCE_RELEASED, STOLEN};
use crate::timestamp::TOLERANCE_MILLIS;
use crate::{Fence, Key, LockId};

/// A script, sent by its hash: the server knows it from the first time on. The source follows when
/// it does not.
pub(super) struct Script {
    text: String,
    hash: String,
}

macro_rules! script {
    ($name:ident = $($file:literal),+) => {
        pub(super) static $name: LazyLock<Script> =
            LazyLock::new(|| Script::new(concat!($(include_str!(concat!("lua/", $file)), "\n"),+)));
    };
}

script!(ACQUIRE = "record.lua", "acquire.lua");
script!(RELEASE = "record.lua", "owned.lua", "freed.lua", "release.lua", "one.lua");
script!(RELEASE_MANY = "record.lua", "owned.lua", "freed.lua", "release.lua", "many.lua");
script!(EXTEND = "record.lua", "owned.lua", "extend.lua", "one.lua");
script!(EXTEND_MANY = "record.lua", "owned.lua", "extend.lua", "many.lua");
script!(BY_KEY = "record.lua", "by_key.lua");
script!(BY_ID = "record.lua", "by_id.lua");
script!(FORCE_RELEASE = "record.lua", "freed.lua", "force_release.lua");
script!(LIST = "record.lua", "list.lua");
script!(PERMISSIONS = "permissions.lua");

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
            .replace("{{stolen}}", STOLEN)
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
        assert!(ACQUIRE.text.contains("HIGHEST_FENCE = tonumber('900000000000000')"));
    }

    #[test]
    fn no_rule_is_written_twice() {
        for (file, text) in [
            ("acquire", include_str!("lua/acquire.lua")),
            ("extend", include_str!("lua/extend.lua")),
            ("force_release", include_str!("lua/force_release.lua")),
            ("freed", include_str!("lua/freed.lua")),
            ("many", include_str!("lua/many.lua")),
            ("one", include_str!("lua/one.lua")),
            ("owned", include_str!("lua/owned.lua")),
            ("record", include_str!("lua/record.lua")),
            ("release", include_str!("lua/release.lua")),
        ] {
            for literal in ["9000000", "TOLERANCE = 1", ":freed", "'S'", "'R'", "%015d", "~= 15", "~= 22", "> 512"] {
                assert!(!text.contains(literal), "{file}.lua has {literal}, which is a constant of Rust");
            }
        }
    }
}
