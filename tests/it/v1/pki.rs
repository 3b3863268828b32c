//! The certificate authority engine, judged by what it issues. Functions are named after the rows of
//! the conformance vectors: section 16.1 to 16.7, row letter and number.
//!
//! [`mount`] has the mount under test and what came out of it; [`foreign`] has the tools that did not
//! grow up with this server and say whether it is right: openssl and GnuTLS.

mod acme;
mod advisories;
mod backdating;
mod bad_input;
mod bad_revocation;
mod brought;
mod ca;
mod chains;
mod compromised;
mod constraints;
mod corpus;
mod cpu_queue;
mod crl;
mod crl_config;
mod csr;
mod encodings;
pub mod external_policy;
pub mod foreign;
mod granted;
mod identities;
mod import;
mod imported_crl;
mod intermediate;
mod issuer_revocation;
mod kept;
mod key_lanes;
mod key_stock;
mod keys;
mod leases;
mod lists;
mod long_lists;
mod managed;
mod manual_chains;
mod matrix;
mod metadata;
pub mod mount;
mod named_fields;
mod names;
mod nobody;
pub mod ocsp;
mod paths;
mod pkcs12;
mod readers;
pub mod repeats;
mod revocation;
mod roles;
mod sans;
mod self_issued;
mod sign_intermediate;
mod signed;
mod sizes;
mod subjects;
mod templates;
mod tidy;
mod usages;
mod validity;
mod verbatim;
mod weak_keys;
mod with_key;
