//! The parts of the server that operator commands use.

use std::sync::Arc;

use crate::http::state::ServerState;
use crate::storage::Storage;

pub(super) struct OperatorContext {
    pub(super) storage: Storage,
    pub(super) shared: Arc<ServerState>,
}
