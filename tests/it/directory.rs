//! Whoever gives machines signed tokens, on the loopback: keys, tokens good and broken, and the pages where the
//! keys are published.

mod issuer;
mod key;

pub use self::issuer::Issuer;
pub use self::key::{TokenKey, encoded, now, unsigned};
