//! What commands work on.

use crate::storage::Storage;

/// The running server, as far as a command needs it.
pub(super) struct Context {
    pub(super) storage: Storage,
}
