//! X.509: the only place that knows ASN.1.
//!
//! Certificates, certification requests and CRLs are written from pre-encoded [`pieces`] with a small DER
//! [`writer`] and read with a strict zero-copy [`reader`]; names, keys and copied extensions stay the
//! bytes they were. Nothing here decides a policy and nothing here signs: callers encode a
//! to-be-signed structure ([`tbs`], [`crl`], [`csr`]), have it signed wherever the key lives, and join
//! both with [`tbs::signed`].
//!
//! What others made and this server signs is read to its end ([`profile`]) before.
//!
//! Refused wherever something is read: bytes after the structure, lengths that are indefinite or not
//! minimal, duplicate extensions, unknown key types, signatures over SHA-1 or MD5.

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
pub mod tbs;
pub mod time;
pub mod usage;
pub mod weak_key;
pub mod writer;

#[cfg(test)]
pub(crate) mod testing;
