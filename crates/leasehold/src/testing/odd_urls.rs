//! URLs of servers with secrets in odd places and odd spellings.

use percent_encoding::percent_decode_str;
use proptest::prelude::*;
use proptest::sample::select;

/// What no public URL may contain.
const SECRET: &str = "s3cret";

/// The parts of a URL, as somebody wrote them.
#[derive(Clone, Debug)]
pub(crate) struct Written {
    user_info: String,
    hosts: &'static str,
    path: &'static str,
    options: Vec<String>,
}

impl Written {
    /// With this scheme; where it is that of a socket, with the path of one.
    pub(crate) fn url(&self, scheme: &str, socket: &str) -> String {
        let address = match scheme {
            "unix" => format!("unix://{socket}"),
            _ => format!("{scheme}://{}{}{}", self.user_info, self.hosts, self.path),
        };
        let options = self.options.join("&");
        if options.is_empty() { address } else { format!("{address}?{options}") }
    }
}

/// URLs with secrets as the values of these options, among others and in place of the user's name
/// and password.
pub(crate) fn written(
    secret_options: &[&'static str],
    plain_options: &[&'static str],
    hosts: &[&'static str],
    paths: &[&'static str],
) -> impl Strategy<Value = Written> {
    let user_info = prop_oneof![
        Just(String::new()),
        secret().prop_map(|secret| format!("{secret}@")),
        secret().prop_map(|secret| format!("me:{secret}@")),
        secret().prop_map(|secret| format!(":{secret}@")),
        // Which may be a password with a question mark, or a host with a port and an option.
        secret().prop_map(|secret| format!("me:1?a={secret}@")),
    ];
    let hidden = (select(secret_options.to_vec()), any::<prop::sample::Index>(), any::<bool>(), secret()).prop_map(
        |(name, at, plainly, value)| format!("{}={value}", if plainly { name.to_owned() } else { spell(name, at) }),
    );
    let options = prop_oneof![hidden, select(plain_options.to_vec()).prop_map(str::to_owned)];
    (user_info, select(hosts.to_vec()), select(paths.to_vec()), prop::collection::vec(options, 0..5))
        .prop_map(|(user_info, hosts, path, options)| Written { user_info, hosts, path, options })
}

/// A secret with something odd before or after it, and one of its letters perhaps encoded.
fn secret() -> impl Strategy<Value = String> {
    let odd = ["", "@", "%40", ":", "=", "?", "%26", "%2F", "+", "%25", " ", "é", "@h", "%"];
    (select(odd.to_vec()), select(odd.to_vec()), any::<prop::sample::Index>(), any::<bool>()).prop_map(
        |(before, after, at, plainly)| {
            let secret = if plainly { SECRET.to_owned() } else { spell(SECRET, at) };
            format!("x{before}{secret}{after}")
        },
    )
}

/// With one letter written as its code.
fn spell(text: &str, at: prop::sample::Index) -> String {
    let at = at.index(text.len());
    format!("{}%{:02x}{}", &text[..at], text.as_bytes()[at], &text[at + 1..])
}

/// Whether there is something of the secret in a text, in any spelling.
pub(crate) fn has_secret(text: &str) -> bool {
    let decoded = percent_decode_str(text).decode_utf8_lossy();
    text.contains(SECRET)
        || decoded.contains(SECRET)
        || percent_decode_str(&decoded).decode_utf8_lossy().contains(SECRET)
}
