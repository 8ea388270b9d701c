/// What a URL says of who we are, which [`public_url`](crate::stores::public_url) leaves out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Credentials {
    /// Nothing.
    #[default]
    None,
    /// A name, or where a password is, but no password.
    Name,
    /// A password.
    Password,
}
