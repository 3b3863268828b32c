//! The certificate authority engine. (PLACEHOLDER: the engine itself.)

pub mod store;

use std::sync::Arc;

use crate::auth::mounts::Mount;
use crate::clock::Clock;
use crate::documents::MountId;
use crate::error::Result;

/// PLACEHOLDER.
pub struct Engine;

impl Engine {
    /// PLACEHOLDER.
    pub fn new(_store: Arc<dyn store::PkiStore>, _clock: Clock) -> Arc<Self> {
        Arc::new(Self)
    }

    /// PLACEHOLDER.
    pub async fn open(&self, _mount: &Mount) -> Result<()> {
        Ok(())
    }

    /// PLACEHOLDER.
    pub fn close(&self, _mount: MountId) {}
}
