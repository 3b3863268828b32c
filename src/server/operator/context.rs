//! What commands work on.

use std::sync::Arc;

use crate::http::state::Shared;
use crate::storage::Storage;

/// The running server, as far as a command needs it.
pub(super) struct Context {
    pub(super) storage: Storage,
    pub(super) shared: Arc<Shared>,
}
