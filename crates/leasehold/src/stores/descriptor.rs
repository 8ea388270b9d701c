use super::StoreDriver;
use crate::Error;

/// What there is to know of a kind of store: how its URLs look, and who works with them.
///
/// Everything that chooses a store by its URL or lists the stores reads these: [`stores`] are those
/// that this process knows, and [`register`] adds one.
///
/// [`stores`]: crate::stores
/// [`register`]: crate::stores::register
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct StoreDescriptor {
    /// What people call it.
    pub name: &'static str,
    /// What its URLs start with, without the colon.
    pub schemes: &'static [&'static str],
    /// A URL that could be one of its own, for messages and help.
    pub example: &'static str,
    /// The feature of this library that it needs, if any.
    pub feature: Option<&'static str>,
    /// None if that feature is off.
    pub(super) driver: Option<&'static dyn StoreDriver>,
}

impl StoreDescriptor {
    /// A kind of store whose URLs start with one of `schemes`, such as `example`. A driver that is
    /// a unit struct can be given as `&MyDriver`.
    pub const fn new(
        name: &'static str,
        schemes: &'static [&'static str],
        example: &'static str,
        driver: &'static dyn StoreDriver,
    ) -> Self {
        Self { name, schemes, example, feature: None, driver: Some(driver) }
    }

    /// Whether this build can use it: the feature that it needs is on.
    pub fn is_built_in(&self) -> bool {
        self.driver.is_some()
    }

    /// Who works with its URLs.
    ///
    /// # Errors
    ///
    /// It is not in this build.
    pub(crate) fn driver(&self) -> Result<&'static dyn StoreDriver, Error> {
        self.driver.ok_or_else(|| {
            let error = Error::invalid(format!("this build has no {} store", self.name));
            match self.feature {
                Some(feature) => error.with_hint(format!("build with `--features {feature}`")),
                None => error,
            }
        })
    }
}
