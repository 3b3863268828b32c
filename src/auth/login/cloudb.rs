//! The authentication method `cloudb`: clients log in with an identity at one cloud provider.
//!
//! A client presents a token that the provider's directory signed for this service. The claims of the token identify
//! the client. A role may also require that the client runs on a certain resource of the provider, such as a virtual
//! machine. The claims and the provider's API must prove this (`proof`). Only version 1 tokens of the directory are
//! accepted, because a token must have the issuer that the directory's discovery document names. `login` has the steps
//! of a login in order.

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
mod request;
mod resources;
mod role;
mod rotate;
mod rotation;
mod settings;

pub(crate) use self::bounds::CloudbRoleBounds;
pub(crate) use self::config::{CloudbConfig, MAX_CONFIG_TEXT_BYTES};
pub(crate) use self::login::log_in;
pub(crate) use self::method::CloudbMethod;
pub(crate) use self::request::CloudbLoginRequest;
pub(crate) use self::role::CloudbRole;
pub(crate) use self::rotate::{SecretRotationTask, rotate_root};
pub(crate) use self::settings::CloudbServices;
pub use self::settings::{CloudbFallback, CloudbSettings, CloudbUrls};
