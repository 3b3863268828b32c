//! The authentication method `cloudb`: identities of one cloud provider.
//!
//! Who logs in shows a token that the provider's directory signed for this service. Its claims say who they are; a
//! role may ask on top that they are on a resource of the provider, which claims and provider have to prove. Only
//! tokens of the directory's version 1 pass: their issuer is the one of its discovery document.
//!
//! | part | owns |
//! |---|---|
//! | `login` | the steps of a login, in their order |
//! | `shapes` | what a login sends |
//! | `directory` | the tenant's tokens: where their keys are, what is asked of them |
//! | `claims` | what a token says, principals and groups |
//! | `proof` | the proof of a resource, from parsed ids |
//! | `arm_id` | ids of resources |
//! | `resources` | what the provider says of a resource |
//! | `provider` | the calls of the resource API, and the service's own access token |
//! | `graph` | the calls about the service's own secret |
//! | `rotation`, `rotate` | how far its rotation has come, and the steps |
//! | `role`, `bounds` | roles |
//! | `config` | the configuration of a mount |
//! | `method` | what of it is kept from one login to the next |
//! | `settings` | the server's configuration |

mod arm_id;
mod bounds;
mod claims;
mod config;
mod directory;
mod graph;
mod login;
mod method;
mod proof;
mod provider;
mod refusal;
mod resources;
mod role;
mod rotate;
mod rotation;
mod settings;
mod shapes;

pub(crate) use self::bounds::BoundsChange;
pub(crate) use self::config::{Config, ConfigChange};
pub(crate) use self::login::log_in;
pub(crate) use self::method::Cloudb;
pub(crate) use self::role::CloudbRole;
pub(crate) use self::rotate::{Rotations, rotate_root};
pub(crate) use self::settings::Services;
pub use self::settings::{CloudbSettings, CloudbUrls, Fallback};
pub(crate) use self::shapes::LoginRequest;
