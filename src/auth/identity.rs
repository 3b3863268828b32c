//! Identities: entities, and their aliases at authentication mounts.
//!
//! An *entity* is a user or machine; an *alias* is the name of an entity at one authentication mount. The first login
//! under a name creates both; operators can create and change them too. An entity's policies apply to its tokens in
//! addition to the tokens' own policies, and its metadata fills [`templates`](crate::templates).
//!
//! Entities are cached for at most a second (`cache`), so disabling or deleting one takes effect within a second on all
//! nodes and immediately on this one. `sweep` removes an entity if a login created it, no operator has changed it, and
//! no token uses it any more.

mod alias;
mod cache;
mod change;
mod entity;
mod lookup;
mod sweep;

pub use alias::AliasChange;
pub(super) use cache::EntityCache;
pub use cache::EntityRef;
pub use change::EntityChange;
pub(super) use change::check_metadata;
pub(super) use entity::merge_policy_names;
pub use entity::{Alias, Entity};
pub use lookup::LoginAlias;
