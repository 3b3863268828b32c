//! Revocation after issuance: requests ([`revoke`]), leases ([`leases`]), OCSP ([`ocsp`]), imported CRLs
//! ([`crl_import`]), and CRLs that callers compose ([`caller_supplied_crl`]).

pub mod caller_supplied_crl;
pub mod crl_import;
pub mod leases;
pub mod ocsp;
pub mod revoke;
