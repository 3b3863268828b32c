//! The cloud provider of the authentication method `cloudb` and of managed keys of type `cloudbkeyvault`: the addresses
//! of its clouds, and access tokens for its APIs.

mod clouds;
mod credential;
mod tenant;

pub(crate) use self::clouds::Cloud;
pub(crate) use self::credential::{CloudbTokenRequest, IMDS_URL};
pub(crate) use self::tenant::check_tenant;
