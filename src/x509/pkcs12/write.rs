//! Writing of PKCS #12 files. Key derivation takes milliseconds and is done first; encoding takes microseconds.

use std::num::NonZeroU32;

use aws_lc_rs::cipher::{AES_256, DecryptionContext, PaddedBlockEncryptingKey, UnboundCipherKey};
use aws_lc_rs::hmac;

use super::identifiers::{bag, oid};
use super::kdf::{Pkcs12KeyPurpose, WrittenPassword, derive_pbkdf2, derive_pkcs12};
use crate::error::{Error, Result};
use crate::random;
use crate::x509::algorithm::{Hash, HashFunction};
use crate::x509::writer::{BMP_STRING, DerWriter, INTEGER, NULL, OCTET_STRING, SEQUENCE, SET, build, context};

/// Number of iterations of each key derivation: the default of Java key stores.
const KDF_ITERATIONS: NonZeroU32 = NonZeroU32::MIN.saturating_add(9_999);
const SALT_BYTES: usize = 16;
const KEY_BYTES: usize = 32;
const SHA256: HashFunction = HashFunction::Sha2(Hash::Sha256);
/// The localKeyId attribute that links the key to its certificate; constant, because a file has one key.
const LOCAL_KEY_ID_VALUE: &[u8] = &[1];

/// The keys derived from the password for one file to be written.
pub struct Pkcs12Keys {
    encryption: PaddedBlockEncryptingKey,
    mac: hmac::Key,
    encryption_salt: [u8; SALT_BYTES],
    mac_salt: [u8; SALT_BYTES],
}

/// The contents of a file to be written.
pub struct Pkcs12Entry<'a> {
    /// The friendlyName of the key (the alias in Java, the label in Windows); empty for none.
    pub name: &'a str,
    /// The private key as PrivateKeyInfo (PKCS #8).
    pub private_key: &'a [u8],
    /// The certificate of the key and its chain, in DER.
    pub certificates: &'a [&'a [u8]],
}

impl Pkcs12Keys {
    /// Derives the keys of one file from its password. Takes about 10 ms.
    ///
    /// # Errors
    /// `Internal` when the crypto library rejects the key.
    pub fn derive(password: &WrittenPassword) -> Result<Self> {
        let password = password.password();
        let encryption_salt = random::bytes();
        let mac_salt = random::bytes();
        let key = derive_pbkdf2(password, SHA256, &encryption_salt, KDF_ITERATIONS, KEY_BYTES);
        let key = UnboundCipherKey::new(&AES_256, &key).and_then(PaddedBlockEncryptingKey::cbc_pkcs7);
        let mac = derive_pkcs12(password, SHA256, Pkcs12KeyPurpose::Mac, &mac_salt, KDF_ITERATIONS, KEY_BYTES);
        Ok(Self {
            encryption: key.map_err(Error::internal)?,
            mac: hmac::Key::new(hmac::HMAC_SHA256, &mac),
            encryption_salt,
            mac_salt,
        })
    }

    /// Encodes the file in DER.
    ///
    /// # Errors
    /// `Internal` when encryption fails.
    pub fn encode(&self, entry: &Pkcs12Entry<'_>) -> Result<Vec<u8>> {
        let key = self.encrypt(entry.private_key)?;
        let certificates = self.encrypt(&encode_certificate_bags(entry))?;
        let content = build(SEQUENCE, 512 + key.data.len() + certificates.data.len(), |safe| {
            safe.nest(SEQUENCE, |info| {
                info.oid(oid::ENCRYPTED_DATA);
                info.explicit(0, SEQUENCE, |data| {
                    data.integer(0);
                    data.nest(SEQUENCE, |content| {
                        content.oid(oid::DATA);
                        self.write_algorithm(content, &certificates.iv);
                        content.tlv(context(0), &certificates.data);
                    });
                });
            });
            write_data(safe, |bags| {
                bags.nest(SEQUENCE, |bags| {
                    bags.nest(SEQUENCE, |bag| {
                        write_bag_type(bag, bag::ENCRYPTED_KEY);
                        bag.explicit(0, SEQUENCE, |encrypted| {
                            self.write_algorithm(encrypted, &key.iv);
                            encrypted.tlv(OCTET_STRING, &key.data);
                        });
                        write_attributes(bag, entry.name);
                    });
                });
            });
        });
        Ok(build(SEQUENCE, content.len() + 256, |file| {
            file.integer(3);
            write_data(file, |data| data.raw(&content));
            file.nest(SEQUENCE, |mac| {
                mac.nest(SEQUENCE, |info| {
                    info.nest(SEQUENCE, |algorithm| {
                        algorithm.oid(SHA256.oid());
                        algorithm.tlv(NULL, &[]);
                    });
                    info.tlv(OCTET_STRING, hmac::sign(&self.mac, &content).as_ref());
                });
                mac.tlv(OCTET_STRING, &self.mac_salt);
                mac.integer(KDF_ITERATIONS.get().into());
            });
        }))
    }

    fn encrypt(&self, plain: &[u8]) -> Result<Pkcs12Ciphertext> {
        // The capacity includes the padding: a reallocation would leave a copy of the private key in memory.
        let mut data = Vec::with_capacity(plain.len() + AES_256.block_len());
        data.extend_from_slice(plain);
        match self.encryption.encrypt(&mut data) {
            Ok(DecryptionContext::Iv128(iv)) => Ok(Pkcs12Ciphertext { data, iv: *iv.as_ref() }),
            _ => Err(Error::internal("PKCS #12: encryption failed")),
        }
    }

    /// Writes the AlgorithmIdentifier of PBES2 (RFC 8018 appendix A.4).
    fn write_algorithm(&self, out: &mut DerWriter, iv: &[u8]) {
        out.nest(SEQUENCE, |algorithm| {
            algorithm.oid(oid::PBES2);
            algorithm.nest(SEQUENCE, |parameters| {
                parameters.nest(SEQUENCE, |derivation| {
                    derivation.oid(oid::PBKDF2);
                    derivation.nest(SEQUENCE, |pbkdf2| {
                        pbkdf2.tlv(OCTET_STRING, &self.encryption_salt);
                        pbkdf2.integer(KDF_ITERATIONS.get().into());
                        pbkdf2.tlv(INTEGER, &[KEY_BYTES as u8]);
                        pbkdf2.nest(SEQUENCE, |function| {
                            function.oid(oid::HMAC_SHA256);
                            function.tlv(NULL, &[]);
                        });
                    });
                });
                parameters.nest(SEQUENCE, |encryption| {
                    encryption.oid(oid::AES256_CBC);
                    encryption.tlv(OCTET_STRING, iv);
                });
            });
        });
    }
}

struct Pkcs12Ciphertext {
    data: Vec<u8>,
    iv: [u8; 16],
}

/// Encodes SafeContents with a bag for each certificate. The first one is the certificate of the key.
fn encode_certificate_bags(entry: &Pkcs12Entry<'_>) -> Vec<u8> {
    let size = entry.certificates.iter().map(|der| der.len() + 256).sum();
    build(SEQUENCE, size, |bags| {
        for (index, der) in entry.certificates.iter().enumerate() {
            bags.nest(SEQUENCE, |bag| {
                write_bag_type(bag, bag::CERTIFICATE);
                bag.explicit(0, SEQUENCE, |certificate| {
                    certificate.oid(oid::X509_CERTIFICATE);
                    certificate.explicit(0, OCTET_STRING, |value| value.raw(der));
                });
                if index == 0 {
                    write_attributes(bag, entry.name);
                }
            });
        }
    })
}

fn write_bag_type(out: &mut DerWriter, kind: u8) {
    out.oid(&[oid::BAG_TYPES, &[kind]].concat());
}

/// Writes a ContentInfo of type data.
fn write_data(out: &mut DerWriter, content: impl FnOnce(&mut DerWriter)) {
    out.nest(SEQUENCE, |info| {
        info.oid(oid::DATA);
        info.explicit(0, OCTET_STRING, content);
    });
}

/// Writes the attributes friendlyName and localKeyId, sorted by encoding as DER requires (X.690 11.6).
fn write_attributes(out: &mut DerWriter, name: &str) {
    let name: Vec<u8> = name.encode_utf16().flat_map(u16::to_be_bytes).collect();
    let attribute = |oid: &[u8], tag, value: &[u8]| {
        build(SEQUENCE, value.len() + 32, |attribute| {
            attribute.oid(oid);
            attribute.nest(SET, |values| values.tlv(tag, value));
        })
    };
    let mut attributes = vec![attribute(oid::LOCAL_KEY_ID, OCTET_STRING, LOCAL_KEY_ID_VALUE)];
    if !name.is_empty() {
        attributes.push(attribute(oid::FRIENDLY_NAME, BMP_STRING, &name));
    }
    attributes.sort();
    out.nest(SET, |set| attributes.iter().for_each(|attribute| set.raw(attribute)));
}
