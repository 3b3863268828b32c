//! The context of operator commands.

use std::sync::Arc;

use crate::http::state::Shared;
use crate::storage::Storage;

pub(super) struct Context {
    pub(super) storage: Storage,
    pub(super) shared: Arc<Shared>,
}
