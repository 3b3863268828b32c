//! Rotation of the client secret with which this service authenticates to the directory. A request starts the rotation,
//! and a background task completes it.

mod begin;
mod finish;

pub(crate) use self::begin::rotate_root;
pub(crate) use self::finish::SecretRotationTask;
