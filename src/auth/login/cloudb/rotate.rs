//! Rotation of this service's own secret at the directory. A request starts it, and a background task completes it.

mod begin;
mod finish;

pub(crate) use self::begin::rotate_root;
pub(crate) use self::finish::SecretRotationTask;
