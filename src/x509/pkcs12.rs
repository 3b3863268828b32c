//! PKCS #12 files (RFC 7292): a private key and certificates, encrypted and authenticated by a password.
//!
//! Files that this module writes use PBES2 with AES-256-CBC, PBKDF2 and a MAC, all with SHA-256 (background: RFC 9879
//! section 3). OpenSSL 1.1.1, Java 8u301 and Windows Server 2019 read them by default. Files that this module reads may
//! also use other AES sizes and digests, Triple DES (the default of Windows), and BER with indefinite lengths (Bouncy
//! Castle, NSS).

mod ber;
mod cipher;
mod identifiers;
mod kdf;
mod problem;
mod read;
mod write;

pub use self::kdf::WrittenPassword;
pub use self::read::{MAX_FILE_BYTES, Pkcs12Contents, read};
pub use self::write::{Pkcs12Entry, Pkcs12Keys};

#[cfg(test)]
mod tests;
