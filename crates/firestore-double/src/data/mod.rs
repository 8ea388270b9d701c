//! Documents, their values and what can be asked of them.

pub(crate) mod documents;
pub(crate) mod field_path;
pub(crate) mod filter;
pub(crate) mod history;
pub(crate) mod index;
pub(crate) mod journal;
pub(crate) mod json;
pub(crate) mod query;
pub(crate) mod size;
pub(crate) mod value;
pub(crate) mod write;
