//! The registry of managed keys: their configurations, and one signer actor for each.
//!
//! | part | has |
//! |---|---|
//! | `record` | a key as it is stored |
//! | `terms`, `usage` | what all types are configured with |
//! | `backend` | the types of backends, and what each is configured with |
//! | `view` | all keys at one moment, with their actors |
//! | `registry` | [`ManagedKeys`]: loading, following, reading, testing, stopping |
//! | `change` | writing and deleting a key |
//! | `grants` | which mounts may use which key: asked of whoever has the mounts |
//! | `signers` | what mounts sign with |
//! | `turn` | one node at a time makes a key that is not there |
//! | `pending` | keys that were generated and have not appeared: no other one is generated |
//!
//! A record is a sealed document under the name of its key, so a name is there once over all types, and its
//! version settles who was first. A change is durable, then published, then answered. Readers load the published
//! view and never wait; other nodes read it again when the change log says so.
//!
//! A key keeps its UUID and its actor for as long as it is there. A record that has been written again is a new
//! configuration, even with the same content: sessions are built up anew, and a PIN that was refused may be tried
//! once more. Nothing here asks a device but a test signature and a mount that takes a key into use.

mod backend;
mod change;
mod grants;
#[cfg(test)]
mod memory;
mod pending;
mod record;
mod registry;
mod signers;
mod terms;
mod turn;
mod usage;
mod view;

pub use self::backend::{BackendConfig, BackendType, Devices};
pub use self::grants::{Grants, Users};
pub use self::record::{Record, libraries};
pub use self::registry::ManagedKeys;
pub use self::terms::Terms;
pub use self::usage::{Usage, Usages};

#[cfg(test)]
mod tests;
