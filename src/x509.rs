//! X.509 encoding and decoding. No other module knows ASN.1.
//!
//! Certificates, requests and CRLs are written from pre-encoded [`pieces`] with a DER [`writer`], and read with a
//! strict zero-copy [`reader`]. Names, keys and copied extensions keep their original bytes. This module neither
//! decides policy nor signs: callers encode a to-be-signed structure ([`tbs`], [`crl`], [`csr`]), have it signed, and
//! join both with [`tbs::encode_signed`]. [`profile`] validates foreign content before it is signed.

pub mod algorithm;
pub mod certificate;
pub mod crl;
pub mod csr;
pub mod extension;
pub mod foreign_crl;
pub mod general_name;
pub mod name;
pub mod ocsp;
pub mod oid;
pub mod pem;
pub mod pieces;
pub mod pkcs12;
pub mod profile;
pub mod public_key;
pub mod raw_extension;
pub mod reader;
pub mod serial;
mod signed;
pub mod tbs;
pub mod time;
pub mod usage;
pub mod weak_key;
pub mod writer;

#[cfg(test)]
pub(crate) mod testing;
