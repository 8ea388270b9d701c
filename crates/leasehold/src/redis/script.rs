use redis::{Cmd, Script as Source};
use std::sync::LazyLock;

/// A script, sent by its hash: the server knows it from the first time on. The source follows when it does not.
pub(super) struct Script {
    text: &'static str,
    hash: String,
}

macro_rules! script {
    ($name:ident = $($file:literal),+) => {
        pub(super) static $name: LazyLock<Script> =
            LazyLock::new(|| Script::new(concat!($(include_str!(concat!("lua/", $file)), "\n"),+)));
    };
}

script!(ACQUIRE = "record.lua", "acquire.lua");
script!(RELEASE = "record.lua", "owned.lua", "release.lua");
script!(EXTEND = "record.lua", "owned.lua", "extend.lua");
script!(BY_KEY = "record.lua", "by_key.lua");
script!(BY_ID = "record.lua", "by_id.lua");
script!(FORCE_RELEASE = "record.lua", "force_release.lua");
script!(LIST = "record.lua", "list.lua");
script!(PERMISSIONS = "permissions.lua");

impl Script {
    fn new(text: &'static str) -> Self {
        Self { text, hash: Source::new(text).get_hash().to_owned() }
    }

    /// The command that runs the script if the server knows it.
    pub(super) fn by_hash(&self, keys: &[&str], arguments: &[&str]) -> Cmd {
        command("EVALSHA", &self.hash, keys, arguments)
    }

    /// The command that runs the script, and makes it known.
    pub(super) fn by_source(&self, keys: &[&str], arguments: &[&str]) -> Cmd {
        command("EVAL", self.text, keys, arguments)
    }
}

fn command(name: &str, script: &str, keys: &[&str], arguments: &[&str]) -> Cmd {
    let mut command = redis::cmd(name);
    command.arg(script).arg(keys.len()).arg(keys).arg(arguments);
    command
}
