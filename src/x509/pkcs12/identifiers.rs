//! Identifiers in PKCS #12 files: algorithms, content types, attributes and bag types.

/// Object identifiers of PKCS #5, #7, #9 and #12, as DER content bytes.
pub(super) mod oid {
    /// id-data, 1.2.840.113549.1.7.1.
    pub(in crate::x509::pkcs12) const DATA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 7, 1];
    /// id-encryptedData, 1.2.840.113549.1.7.6.
    pub(in crate::x509::pkcs12) const ENCRYPTED_DATA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 7, 6];
    /// friendlyName, 1.2.840.113549.1.9.20.
    pub(in crate::x509::pkcs12) const FRIENDLY_NAME: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 20];
    /// localKeyId, 1.2.840.113549.1.9.21.
    pub(in crate::x509::pkcs12) const LOCAL_KEY_ID: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 21];
    /// x509Certificate, 1.2.840.113549.1.9.22.1.
    pub(in crate::x509::pkcs12) const X509_CERTIFICATE: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 22, 1];
    /// x509Crl, 1.2.840.113549.1.9.23.1.
    pub(in crate::x509::pkcs12) const X509_CRL: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 23, 1];
    /// bagtypes, 1.2.840.113549.1.12.10.1, followed by one byte for the type of a bag.
    pub(in crate::x509::pkcs12) const BAG_TYPES: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 12, 10, 1];
    /// pkcs-12PbeIds, 1.2.840.113549.1.12.1, followed by one byte for the algorithm.
    pub(in crate::x509::pkcs12) const PKCS12_PBE: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 12, 1];
    /// id-PBES2, 1.2.840.113549.1.5.13.
    pub(in crate::x509::pkcs12) const PBES2: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 5, 13];
    /// id-PBKDF2, 1.2.840.113549.1.5.12.
    pub(in crate::x509::pkcs12) const PBKDF2: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 5, 12];
    /// id-hmacWithSHA1, 1.2.840.113549.2.7.
    pub(in crate::x509::pkcs12) const HMAC_SHA1: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 2, 7];
    /// id-hmacWithSHA256, 1.2.840.113549.2.9.
    pub(in crate::x509::pkcs12) const HMAC_SHA256: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 2, 9];
    /// id-hmacWithSHA384, 1.2.840.113549.2.10.
    pub(in crate::x509::pkcs12) const HMAC_SHA384: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 2, 10];
    /// id-hmacWithSHA512, 1.2.840.113549.2.11.
    pub(in crate::x509::pkcs12) const HMAC_SHA512: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 2, 11];
    /// aes128-CBC, 2.16.840.1.101.3.4.1.2.
    pub(in crate::x509::pkcs12) const AES128_CBC: &[u8] = &[0x60, 0x86, 0x48, 1, 0x65, 3, 4, 1, 2];
    /// aes192-CBC, 2.16.840.1.101.3.4.1.22.
    pub(in crate::x509::pkcs12) const AES192_CBC: &[u8] = &[0x60, 0x86, 0x48, 1, 0x65, 3, 4, 1, 22];
    /// aes256-CBC, 2.16.840.1.101.3.4.1.42.
    pub(in crate::x509::pkcs12) const AES256_CBC: &[u8] = &[0x60, 0x86, 0x48, 1, 0x65, 3, 4, 1, 42];
}

/// The last byte of a bag type (RFC 7292 appendix D).
pub(super) mod bag {
    pub(in crate::x509::pkcs12) const KEY: u8 = 1;
    pub(in crate::x509::pkcs12) const ENCRYPTED_KEY: u8 = 2;
    pub(in crate::x509::pkcs12) const CERTIFICATE: u8 = 3;
    pub(in crate::x509::pkcs12) const CRL: u8 = 4;
}
