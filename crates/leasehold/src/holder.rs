use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Serialize};

use crate::Error;

/// A stable name for whoever holds a lock, shown to everybody who asks why they wait.
///
/// By default `hostname/program`. The name should survive a restart (so never put a process id into
/// it): that is what lets a restarted worker recognise and [steal](crate::Steal) the lock it left
/// behind. Workers that run side by side under one program name need names of their own for that.
///
/// ```
/// use leasehold::Holder;
///
/// let holder = Holder::new("web-1/worker-3")?;
/// assert_eq!(holder.to_string(), "web-1/worker-3");
/// assert!(Holder::new("two\nlines").is_err());
/// # Ok::<(), leasehold::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Holder(Arc<str>);

impl Holder {
    /// The longest name, in bytes.
    pub const MAX_BYTES: usize = 255;

    /// # Errors
    ///
    /// [`InvalidArgument`](crate::ErrorCode::InvalidArgument) if the name is empty, longer than
    /// [`MAX_BYTES`](Holder::MAX_BYTES) or contains control characters.
    pub fn new(name: &str) -> Result<Self, Error> {
        if name.is_empty() {
            return Err(Error::invalid("the holder's name is empty"));
        }
        if name.len() > Self::MAX_BYTES {
            return Err(Error::invalid(format!(
                "the holder's name has {} bytes, the limit is {}",
                name.len(),
                Self::MAX_BYTES
            )));
        }
        if name.contains(char::is_control) {
            return Err(Error::invalid("the holder's name contains control characters"));
        }
        Ok(Self(name.into()))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for Holder {
    /// `hostname/program` of this process.
    fn default() -> Self {
        static THIS_PROCESS: OnceLock<Holder> = OnceLock::new();
        THIS_PROCESS
            .get_or_init(|| {
                let host = gethostname::gethostname();
                let program = std::env::current_exe().ok();
                let program = program.as_deref().and_then(|path| path.file_stem());
                let program = program.unwrap_or("unknown".as_ref());
                let mut name = format!("{}/{}", host.to_string_lossy(), program.to_string_lossy());
                name.retain(|c| !c.is_control());
                while name.len() > Self::MAX_BYTES {
                    name.pop();
                }
                Holder(name.into())
            })
            .clone()
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Holder({:?})", self.as_str())
    }
}

impl FromStr for Holder {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        Self::new(name)
    }
}

impl TryFrom<&str> for Holder {
    type Error = Error;

    fn try_from(name: &str) -> Result<Self, Error> {
        Self::new(name)
    }
}

impl TryFrom<String> for Holder {
    type Error = Error;

    fn try_from(name: String) -> Result<Self, Error> {
        Self::new(&name)
    }
}

impl TryFrom<&String> for Holder {
    type Error = Error;

    fn try_from(name: &String) -> Result<Self, Error> {
        Self::new(name)
    }
}

impl TryFrom<Cow<'_, str>> for Holder {
    type Error = Error;

    fn try_from(name: Cow<'_, str>) -> Result<Self, Error> {
        Self::new(&name)
    }
}

impl TryFrom<Box<str>> for Holder {
    type Error = Error;

    fn try_from(name: Box<str>) -> Result<Self, Error> {
        Self::new(&name)
    }
}

impl From<&Holder> for Holder {
    fn from(holder: &Holder) -> Self {
        holder.clone()
    }
}

impl From<Holder> for String {
    fn from(holder: Holder) -> Self {
        holder.as_str().to_owned()
    }
}
