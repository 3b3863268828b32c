//! Rotation of the secret that the service itself has at the directory: begun by a request, finished in the
//! background.

mod begin;
mod finish;

pub(crate) use self::begin::rotate_root;
pub(crate) use self::finish::Rotations;
