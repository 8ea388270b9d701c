/// A URL of the form `scheme://user:password@host/path?options` without its user, its password and
/// the options that look like secrets. Of a URL that could be read in another way, such as one with
/// a password that is not encoded, only the scheme.
///
/// For [`StoreDriver::public_url`](crate::stores::StoreDriver::public_url); to hide the credentials
/// of any store's URL, use [`public_url`](crate::stores::public_url).
///
/// ```
/// use leasehold::stores::without_credentials;
///
/// let shown = without_credentials("my://me:secret@host/0?timeout=5&token=x");
/// assert_eq!(shown, "my://host/0?timeout=5");
/// assert_eq!(without_credentials("my://me:sec?ret@host/0"), "my:");
/// ```
pub fn without_credentials(url: &str) -> String {
    let scheme = url.split(':').next().unwrap_or_default();
    let (address, parameters) = url.split_once('?').unwrap_or((url, ""));
    let Some((_, rest)) = address.split_once("://") else { return format!("{scheme}:") };
    let place = match rest.rsplit_once('@') {
        Some((_, place)) => place,
        None if may_hide_a_password(rest, parameters) => return format!("{scheme}:"),
        None => rest,
    };
    let kept: Vec<_> =
        parameters.split('&').filter(|parameter| !parameter.is_empty() && is_harmless(parameter)).collect();
    let query = if kept.is_empty() { String::new() } else { format!("?{}", kept.join("&")) };
    format!("{scheme}://{place}{query}")
}

/// Whether what looks like hosts and parameters may be a user name and a password with a question
/// mark.
fn may_hide_a_password(place: &str, parameters: &str) -> bool {
    let hosts = place.split('/').next().unwrap_or_default();
    let odd_port = hosts.split(',').any(|host| match host.rsplit_once(':') {
        Some((_, port)) if !host.ends_with(']') => port.parse::<u16>().is_err(),
        _ => false,
    });
    odd_port || parameters.split('&').any(|parameter| parameter.contains('@') && !parameter.contains('='))
}

fn is_harmless(parameter: &str) -> bool {
    let name = parameter.split('=').next().unwrap_or_default().to_ascii_lowercase();
    // These two name a file.
    matches!(name.as_str(), "key" | "sslkey")
        || !["user", "pass", "pwd", "token", "secret", "key", "auth", "cred"].iter().any(|word| name.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_hidden() {
        let cases = [
            ("redis://user:p@ss@host:6379/0", "redis://host:6379/0"),
            ("postgres://u:p@h/db?sslmode=require&password=x&user=y", "postgres://h/db?sslmode=require"),
            ("postgres://h/db?sslpassword=x", "postgres://h/db"),
            ("redis://host", "redis://host"),
            ("redis://u:pa/ss@h/0", "redis://h/0"),
            ("redis://u:pa?ss@h/0", "redis:"),
            ("redis://u:pa?ss=1@h/0", "redis:"),
            ("redis://user?ss@h/0", "redis:"),
            ("redis://h?prefix=team@app", "redis://h?prefix=team@app"),
            ("redis://a:1,b:2/0?prefix={x}", "redis://a:1,b:2/0?prefix={x}"),
            ("redis://[::1]:6379", "redis://[::1]:6379"),
            ("rediss://h?ca=/a&cert=/b&key=/c", "rediss://h?ca=/a&cert=/b&key=/c"),
            ("unix:///run/r.sock?pass=sec@ret&db=1", "unix:///run/r.sock?db=1"),
            ("redis+sentinel://me:x@h/m?sentinel_password=sec@ret", "redis+sentinel://h/m"),
            ("postgres:host=h password=x", "postgres:"),
        ];
        for (url, public) in cases {
            assert_eq!(without_credentials(url), public);
        }
    }
}
