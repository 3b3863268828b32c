//! Reading of PKCS #12 files. The MAC is verified before the contents are parsed.

use aws_lc_rs::hmac;
use zeroize::Zeroizing;

use super::ber::{join_segments, to_definite_lengths};
use super::cipher::{bounded_salt, decrypt};
use super::identifiers::{bag, oid};
use super::kdf::{IterationBudget, Pkcs12KeyPurpose, Pkcs12Password, derive_pkcs12, hmac_algorithm};
use super::problem::Pkcs12Problem;
use crate::error::{Error, Result};
use crate::x509::algorithm::HashFunction;
use crate::x509::pem;
use crate::x509::reader::{DerError, DerReader, DerResult, Tlv};
use crate::x509::writer::{INTEGER, OCTET_STRING, context, context_constructed};

/// Maximum length of a PKCS #12 file, in bytes.
pub const MAX_FILE_BYTES: usize = 384 * 1024;

/// The contents of a PKCS #12 file, in order.
#[derive(Default)]
pub struct Pkcs12Contents {
    /// Private keys, each a PrivateKeyInfo (PKCS #8).
    pub private_keys: Vec<Zeroizing<Vec<u8>>>,
    /// Certificates, DER.
    pub certificates: Vec<Vec<u8>>,
    /// CRLs, DER.
    pub crls: Vec<Vec<u8>>,
}

impl Pkcs12Contents {
    /// Returns the contents as PEM: private keys, certificates, CRLs, in this order.
    pub fn to_pem(&self) -> Zeroizing<Vec<u8>> {
        let keys = self.private_keys.iter().map(|der| ("PRIVATE KEY", der.as_slice()));
        let certificates = self.certificates.iter().map(|der| ("CERTIFICATE", der.as_slice()));
        let crls = self.crls.iter().map(|der| (pem::CRL_LABEL, der.as_slice()));
        let blocks = keys.chain(certificates).chain(crls);
        let blocks: Vec<_> = blocks.map(|(label, der)| Zeroizing::new(pem::encode_file(label, der))).collect();
        let mut text = Zeroizing::new(Vec::with_capacity(blocks.iter().map(|block| block.len()).sum()));
        blocks.iter().for_each(|block| text.extend_from_slice(block.as_bytes()));
        text
    }

    fn len(&self) -> usize {
        self.private_keys.len() + self.certificates.len() + self.crls.len()
    }
}

/// Reads the PKCS #12 file in the request field `field` with its password. Takes up to about a second of CPU time.
///
/// # Errors
/// `Invalid`, naming the field and the rule, for a file that is too long, not PKCS #12, without a MAC, with a MAC of
/// another password, with an unsupported algorithm, or with contents other than keys, certificates and CRLs.
pub fn read(field: &str, file: &[u8], password: &[u8]) -> Result<Pkcs12Contents> {
    if file.len() > MAX_FILE_BYTES {
        return Err(Error::invalid(format!("{field}: longer than {} KiB", MAX_FILE_BYTES / 1024)));
    }
    let password = Pkcs12Password::new("password", password)?;
    let mut reader =
        Pkcs12Reader { password: &password, budget: IterationBudget::new(), contents: Pkcs12Contents::default() };
    reader.read_file(file).map_err(|problem| problem.into_error(field))?;
    Ok(reader.contents)
}

struct Pkcs12Reader<'a> {
    password: &'a Pkcs12Password,
    budget: IterationBudget,
    contents: Pkcs12Contents,
}

impl Pkcs12Reader<'_> {
    /// Reads a PFX (RFC 7292 section 4).
    fn read_file(&mut self, file: &[u8]) -> Result<(), Pkcs12Problem> {
        let (der, rest) = to_definite_lengths(file)?;
        DerReader::new(rest).done()?;
        let mut file = DerReader::new(&der).sequence()?;
        if file.read_u32()? != 3 {
            return Err("the version of the file is not 3".into());
        }
        let mut safe = file.sequence()?;
        if safe.oid()? != oid::DATA {
            return Err("the file is signed with a key, which is not supported; export it with a password".into());
        }
        let safe = read_explicit(&mut safe)?.octet_string()?;
        if file.is_empty() {
            return Err("the file has no MAC; export it with a password".into());
        }
        self.check_mac(file.sequence()?, safe)?;
        file.done()?;
        let (safe, _) = to_definite_lengths(safe)?;
        let mut parts = DerReader::new(&safe).sequence()?;
        while !parts.is_empty() {
            self.read_content_info(parts.sequence()?)?;
        }
        Ok(())
    }

    /// Verifies the MAC in MacData (RFC 7292 section 4).
    fn check_mac(&mut self, mut mac: DerReader<'_>, content: &[u8]) -> Result<(), Pkcs12Problem> {
        let mut info = mac.sequence()?;
        let algorithm = info.sequence()?.oid()?;
        let hash = HashFunction::ALL.into_iter().find(|hash| hash.oid() == algorithm);
        let hash = hash.ok_or("the MAC of the file has a digest other than SHA-1 and SHA-2")?;
        let value = info.octet_string()?;
        let salt = bounded_salt(mac.octet_string()?)?;
        // The field `iterations` has the default 1.
        let iterations = if mac.is_empty() { 1 } else { mac.read_u32()? };
        mac.done()?;
        let iterations = self.budget.spend(iterations)?;
        let key = derive_pkcs12(self.password, hash, Pkcs12KeyPurpose::Mac, salt, iterations, hash.digest_len());
        let key = hmac::Key::new(hmac_algorithm(hash), &key);
        hmac::verify(&key, content, value).map_err(|_| Pkcs12Problem::Password)
    }

    /// Reads a ContentInfo of the AuthenticatedSafe.
    fn read_content_info(&mut self, mut part: DerReader<'_>) -> Result<(), Pkcs12Problem> {
        let kind = part.oid()?;
        let mut content = read_explicit(&mut part)?;
        match kind {
            oid::DATA => self.read_bags(content.octet_string()?),
            oid::ENCRYPTED_DATA => {
                let mut data = content.sequence()?;
                data.expect(INTEGER)?;
                let mut encrypted = data.sequence()?;
                if encrypted.oid()? != oid::DATA {
                    return Err("an encrypted part of the file does not have the type data".into());
                }
                let algorithm = encrypted.sequence()?;
                let bytes = read_implicit_octets(encrypted.any()?)?;
                let plain = decrypt(algorithm, self.password, &mut self.budget, &bytes)?;
                self.read_bags(&plain)
            }
            _ => {
                Err("a part of the file is encrypted for a key, which is not supported; export it with a password"
                    .into())
            }
        }
    }

    /// Reads SafeContents, a list of bags with keys, certificates and CRLs.
    fn read_bags(&mut self, contents: &[u8]) -> Result<(), Pkcs12Problem> {
        let der = Zeroizing::new(to_definite_lengths(contents)?.0);
        let mut bags = DerReader::new(&der).sequence()?;
        while !bags.is_empty() {
            if self.contents.len() >= pem::MAX_BLOCKS {
                return Err(format!("the file has more than {} keys, certificates and CRLs", pem::MAX_BLOCKS).into());
            }
            let mut bag = bags.sequence()?;
            let kind = bag.oid()?.strip_prefix(oid::BAG_TYPES);
            let value = read_explicit(&mut bag)?;
            match kind {
                Some([bag::KEY]) => self.contents.private_keys.push(value.rest().to_vec().into()),
                Some([bag::ENCRYPTED_KEY]) => self.read_encrypted_key(value)?,
                Some([bag::CERTIFICATE]) => {
                    let rule = "the file contains a certificate that is not X.509";
                    self.contents.certificates.push(read_typed_bag(value, oid::X509_CERTIFICATE, rule)?);
                }
                Some([bag::CRL]) => {
                    self.contents.crls.push(read_typed_bag(
                        value,
                        oid::X509_CRL,
                        "the file contains a CRL that is not X.509",
                    )?);
                }
                _ => return Err("the file contains something other than keys, certificates and CRLs".into()),
            }
        }
        Ok(())
    }

    /// Reads an EncryptedPrivateKeyInfo (RFC 5208 section 6).
    fn read_encrypted_key(&mut self, mut value: DerReader<'_>) -> Result<(), Pkcs12Problem> {
        let mut encrypted = value.sequence()?;
        let algorithm = encrypted.sequence()?;
        let bytes = encrypted.octet_string()?;
        encrypted.done()?;
        let key = decrypt(algorithm, self.password, &mut self.budget, bytes)?;
        self.contents.private_keys.push(key);
        Ok(())
    }
}

/// Reads the next `[0] EXPLICIT` and returns a reader of its content.
fn read_explicit<'a>(reader: &mut DerReader<'a>) -> DerResult<DerReader<'a>> {
    Ok(reader.expect(context_constructed(0))?.reader())
}

/// Returns the content of a `[0] IMPLICIT OCTET STRING`, primitive or in segments.
fn read_implicit_octets(value: Tlv<'_>) -> DerResult<Vec<u8>> {
    match value.tag {
        tag if tag == context(0) => Ok(value.content.to_vec()),
        tag if tag == context_constructed(0) => join_segments(value.content),
        OCTET_STRING => Err(DerError("encrypted content lacks its context tag")),
        _ => Err(DerError("unexpected tag")),
    }
}

/// Returns the value of a CertBag or CRLBag of type `wanted`.
fn read_typed_bag(mut bag: DerReader<'_>, wanted: &[u8], rule: &str) -> Result<Vec<u8>, Pkcs12Problem> {
    let mut value = bag.sequence()?;
    if value.oid()? != wanted {
        return Err(rule.into());
    }
    Ok(read_explicit(&mut value)?.octet_string()?.to_vec())
}
