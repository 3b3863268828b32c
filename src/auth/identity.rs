//! Who logs in: entities, and what they are called at each mount.
//!
//! An *entity* is somebody, an *alias* his name at one mount of an authentication method. A login makes both when it
//! meets a name for the first time; operators make and change them too. An entity has policies of its own, which its
//! tokens have beside theirs, and metadata, and its aliases have the metadata of the last login there: templates of
//! policies and of the certificate authority's roles are filled from these ([`templates`](crate::templates)).
//!
//! Nothing of it is kept in memory for longer than a second: what is asked on every request is read again with the
//! token's row, or taken from what was read for another token of the entity at most half a second ago (`cache`). A
//! change on this node counts at once. So a disabled or deleted entity's tokens, and rights that were taken away, end
//! within a second wherever it was done.
//!
//! An entity that only a login made goes when no token is its any more (`sweep`): machines come and go.
//!
//! | part | holds |
//! |---|---|
//! | `entity` | an entity and its aliases, read, and what is stored of them |
//! | `cache` | entities that were read a moment ago |
//! | `found` | finding one: by a login, behind a token, in a list |
//! | `change` | changing entities by hand |
//! | `alias` | changing aliases by hand |
//! | `sweep` | the end of those that nobody needs |

mod alias;
mod cache;
mod change;
mod entity;
mod found;
mod sweep;

pub use alias::AliasChange;
pub(super) use cache::Entities;
pub use cache::EntityRef;
pub use change::EntityChange;
pub(super) use entity::together;
pub use entity::{Alias, Entity};
pub use found::LoginAlias;
