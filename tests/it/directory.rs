//! A JWT issuer on the loopback: keys, valid and invalid tokens, and the pages that publish the keys.

mod issuer;
mod key;

pub use self::issuer::Issuer;
pub use self::key::{TokenKey, encoded, now, unsigned};
