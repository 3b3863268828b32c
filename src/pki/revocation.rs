//! What becomes of certificates after they were issued: they are revoked ([`revoke`]), by their lease too
//! ([`leases`]), and whoever asks is told ([`ocsp`]). What was revoked before an authority came here is taken over by
//! [`imported`]. Lists that a caller words are in [`on_request`]; those that a mount publishes are built a floor below, by [`crl`](crate::pki::crl).

pub mod imported;
pub mod leases;
pub mod ocsp;
pub mod on_request;
pub mod revoke;
