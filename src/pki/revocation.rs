//! Revocation after issuance: requests ([`revoke`]), leases ([`leases`]), OCSP ([`ocsp`]), imported CRLs
//! ([`imported`]), and CRLs that callers compose ([`on_request`]).

pub mod imported;
pub mod leases;
pub mod ocsp;
pub mod on_request;
pub mod revoke;
