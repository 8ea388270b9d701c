use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use tonic::Status;
use tonic::metadata::MetadataMap;

use crate::failure::no_permission;

/// What the owner of a token may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Writer,
    Reader,
    Nobody,
}

/// What a call needs permission for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    Read,
    Write,
}

/// Who may come in.
#[derive(Debug)]
pub(crate) struct Access {
    /// The tokens that are good; without any map everybody may do everything, as in an emulator.
    tokens: Option<Mutex<HashMap<String, Role>>>,
}

impl Access {
    pub(crate) fn new(demands_tokens: bool) -> Self {
        Self { tokens: demands_tokens.then(Mutex::default) }
    }

    /// A new token for the service account with this address. Its local part is its role.
    pub(crate) fn issue(&self, account: &str) -> Option<String> {
        let role = match account.split_once('@')?.0 {
            "writer" => Role::Writer,
            "reader" => Role::Reader,
            "nobody" => Role::Nobody,
            _ => return None,
        };
        let token = format!("token-{:032x}", fastrand::u128(..));
        let mut tokens = self.tokens.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner);
        tokens.insert(token.clone(), role);
        Some(token)
    }

    /// Makes all tokens that were issued so far worthless.
    pub(crate) fn expire_all(&self) {
        if let Some(tokens) = &self.tokens {
            tokens.lock().unwrap_or_else(PoisonError::into_inner).clear();
        }
    }

    pub(crate) fn check(&self, metadata: &MetadataMap, need: Need) -> Result<(), Status> {
        let Some(tokens) = &self.tokens else { return Ok(()) };
        let token = metadata.get("authorization").and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
        let tokens = tokens.lock().unwrap_or_else(PoisonError::into_inner);
        match (token.and_then(|token| tokens.get(token)), need) {
            (None, _) => Err(Status::unauthenticated(
                "Request had invalid authentication credentials. Expected OAuth 2 access token, login cookie or other \
                 valid authentication credential.",
            )),
            (Some(Role::Writer), _) | (Some(Role::Reader), Need::Read) => Ok(()),
            (Some(Role::Reader | Role::Nobody), _) => Err(no_permission()),
        }
    }
}
