//! Finds a key pair on a token and reads its public key.

use cryptoki::object::{Attribute, AttributeType, KeyType, ObjectClass, ObjectHandle};
use cryptoki::session::Session;

use super::key::Pkcs11Config;
use super::recovery::Pkcs11Failure;
use crate::error::{Error, Result};
use crate::x509::algorithm::{Curve, KeyKind};
use crate::x509::oid;
use crate::x509::public_key::PublicKey;
use crate::x509::reader::DerReader;
use crate::x509::writer::{OCTET_STRING, OID, SEQUENCE, build};

const MIN_RSA_BITS: u32 = 2048;
const USUAL_EXPONENT: [u8; 3] = [1, 0, 1];

/// A key pair on a token. The handle of the private key is valid only in the session that found it.
pub(super) struct Pkcs11KeyPair {
    pub(super) private: ObjectHandle,
    pub(super) public: PublicKey,
}

pub(super) struct LocatedKey {
    pub(super) private: ObjectHandle,
    pub(super) public: Option<PublicKey>,
    attributes: Pkcs11Attributes,
}

impl LocatedKey {
    /// Returns the public key of an RSA key whose exponent the token does not return. Assumes the exponent 65537, which
    /// nearly all keys have.
    pub(super) fn assume_usual_exponent(&self) -> Option<PublicKey> {
        let usual = Pkcs11Attributes {
            key_type: self.attributes.key_type,
            modulus: self.attributes.modulus.clone(),
            ..Pkcs11Attributes::default()
        };
        Pkcs11Attributes { exponent: USUAL_EXPONENT.to_vec(), ..usual }.public_key().ok().flatten()
    }

    /// `true` if a public key may belong to this private key, according to its attributes.
    pub(super) fn may_have_public_key(&self, public: &PublicKey) -> bool {
        match (self.attributes.key_type, public.kind()) {
            (Some(KeyType::EC), KeyKind::Ec(of_public)) => {
                self.attributes.curve.is_empty() || parse_curve(&self.attributes.curve) == Some(of_public)
            }
            (Some(KeyType::RSA), KeyKind::Rsa { .. }) | (Some(KeyType::EC_EDWARDS), KeyKind::Ed25519) => true,
            (None, _) => true,
            _ => false,
        }
    }
}

/// Finds the key that the configuration names; `None` when there is none.
///
/// # Errors
/// `Invalid` when there are several, and for an unsupported key: RSA below 2048 bits, an unknown curve, or a key that
/// needs a login for each signature.
pub(super) fn find_key(session: &Session, config: &Pkcs11Config) -> Result<Option<LocatedKey>, Pkcs11Failure> {
    let Some(private) =
        find_unique(session, &search_template(ObjectClass::PRIVATE_KEY, config), "key label is ambiguous")?
    else {
        return Ok(None);
    };
    let attributes = Pkcs11Attributes::read(session, private)?;
    if attributes.always_authenticate {
        return Err(Error::invalid("keys with CKA_ALWAYS_AUTHENTICATE are not supported").into());
    }
    let other = match attributes.public_key_search_template() {
        Some(template) => {
            match find_unique(session, &template, "the token has several public keys for the private key")? {
                Some(public) => Some(Pkcs11Attributes::read(session, public)?),
                None => None,
            }
        }
        None => None,
    };
    let public = other.and_then(|other| other.public_key().transpose()).or_else(|| attributes.public_key().transpose());
    let public = public.transpose()?;
    public.as_ref().map_or(Ok(()), check_key_size)?;
    Ok(Some(LocatedKey { private, public, attributes }))
}

/// Rejects RSA keys that are too short.
///
/// # Errors
/// `Invalid` below 2048 bits.
pub(super) fn check_key_size(public: &PublicKey) -> Result<()> {
    match public.kind() {
        KeyKind::Rsa { bits } if bits < MIN_RSA_BITS => {
            Err(Error::invalid("RSA keys below 2048 bits are not supported"))
        }
        _ => Ok(()),
    }
}

/// Finds the public key object of a private key, with which the module can verify signatures.
pub(super) fn find_public_key_object(
    session: &Session,
    private: ObjectHandle,
) -> Result<Option<ObjectHandle>, Pkcs11Failure> {
    match Pkcs11Attributes::read(session, private)?.public_key_search_template() {
        Some(template) => find_unique(session, &template, "the token has several public keys for the private key"),
        None => Ok(None),
    }
}

pub(super) fn search_template(class: ObjectClass, config: &Pkcs11Config) -> Vec<Attribute> {
    let mut template = vec![Attribute::Class(class), Attribute::Token(true)];
    template.extend(config.key_label.as_ref().map(|label| Attribute::Label(label.clone().into_bytes())));
    template.extend(config.key_id.clone().map(Attribute::Id));
    template
}

pub(super) fn find_unique(
    session: &Session,
    template: &[Attribute],
    ambiguity_error: &'static str,
) -> Result<Option<ObjectHandle>, Pkcs11Failure> {
    let mut objects = session.iter_objects(template)?;
    match (objects.next().transpose()?, objects.next().transpose()?) {
        (_, Some(_)) => Err(Error::invalid(ambiguity_error).into()),
        (found, None) => Ok(found),
    }
}

#[derive(Default)]
struct Pkcs11Attributes {
    key_type: Option<KeyType>,
    id: Vec<u8>,
    label: Vec<u8>,
    always_authenticate: bool,
    modulus: Vec<u8>,
    exponent: Vec<u8>,
    curve: Vec<u8>,
    point: Vec<u8>,
    public_key_info: Vec<u8>,
}

impl Pkcs11Attributes {
    fn read(session: &Session, object: ObjectHandle) -> Result<Self, Pkcs11Failure> {
        use AttributeType as T;
        let all = [T::KeyType, T::Id, T::Label, T::AlwaysAuthenticate, T::Modulus, T::PublicExponent, T::EcParams];
        let mut attributes = Self::default();
        // Reads one attribute at a time: some modules return nothing if they do not know one of several.
        for wanted in all.into_iter().chain([T::EcPoint, T::PublicKeyInfo]) {
            let given = match session.get_attributes(object, &[wanted]) {
                Ok(given) => given,
                Err(error) if is_unreadable_attribute(&error) => continue,
                Err(error) => return Err(error.into()),
            };
            for attribute in given {
                match attribute {
                    Attribute::KeyType(key_type) => attributes.key_type = Some(key_type),
                    Attribute::Id(id) => attributes.id = id,
                    Attribute::Label(label) => attributes.label = label,
                    Attribute::AlwaysAuthenticate(always) => attributes.always_authenticate = always,
                    Attribute::Modulus(bytes) => attributes.modulus = bytes,
                    Attribute::PublicExponent(bytes) => attributes.exponent = bytes,
                    Attribute::EcParams(der) => attributes.curve = der,
                    Attribute::EcPoint(bytes) => attributes.point = bytes,
                    Attribute::PublicKeyInfo(der) => attributes.public_key_info = der,
                    _ => {}
                }
            }
        }
        Ok(attributes)
    }

    /// The template that finds the public key of this private key: by identifier, or else by label.
    fn public_key_search_template(&self) -> Option<Vec<Attribute>> {
        let same = match (&self.id[..], &self.label[..]) {
            ([], []) => return None,
            ([], label) => Attribute::Label(label.to_vec()),
            (id, _) => Attribute::Id(id.to_vec()),
        };
        Some(vec![Attribute::Class(ObjectClass::PUBLIC_KEY), Attribute::Token(true), same])
    }

    fn public_key(&self) -> Result<Option<PublicKey>> {
        let key = match self.key_type {
            Some(KeyType::RSA) if !self.modulus.is_empty() && !self.exponent.is_empty() => {
                let bits = build(SEQUENCE, self.modulus.len() + 24, |w| {
                    w.unsigned(&self.modulus);
                    w.unsigned(&self.exponent);
                });
                PublicKey::from_trusted_bits(KeyKind::Rsa { bits: 0 }, &bits)
            }
            Some(KeyType::EC) if !self.point.is_empty() => {
                let curve =
                    parse_curve(&self.curve).ok_or_else(|| Error::invalid("the key is on an unsupported curve"))?;
                PublicKey::from_trusted_bits(
                    KeyKind::Ec(curve),
                    unwrap_point(&self.point, 1 + 2 * curve.coordinate_len()),
                )
            }
            Some(KeyType::EC_EDWARDS) if !self.point.is_empty() && is_ed25519(&self.curve) => {
                PublicKey::from_trusted_bits(KeyKind::Ed25519, unwrap_point(&self.point, 32))
            }
            _ if !self.public_key_info.is_empty() => return PublicKey::parse(&self.public_key_info).map(Some),
            _ => return Ok(None),
        };
        // The key is assembled from attributes that the token returned, so it is validated like untrusted input.
        PublicKey::parse(key.spki()).map(Some)
    }
}

fn is_unreadable_attribute(error: &cryptoki::error::Error) -> bool {
    use cryptoki::error::{Error, RvError};
    matches!(error, Error::Pkcs11(RvError::AttributeTypeInvalid | RvError::AttributeSensitive, _) | Error::InvalidValue)
        || matches!(error, Error::TryFromSlice(_) | Error::TryFromInt(_))
}

/// Parses `CKA_EC_PARAMS`: an object identifier, or the curve name as a PrintableString.
fn parse_curve(parameters: &[u8]) -> Option<Curve> {
    let value = DerReader::new(parameters).any().ok()?;
    if value.tag == OID {
        return Curve::from_oid(value.content);
    }
    let names = [("secp256r1", Curve::P256), ("prime256v1", Curve::P256), ("secp384r1", Curve::P384)];
    let names = names.into_iter().chain([("secp521r1", Curve::P521), ("secp224r1", Curve::P224)]);
    names.into_iter().find(|(name, _)| name.as_bytes() == value.content).map(|(_, curve)| curve)
}

fn is_ed25519(parameters: &[u8]) -> bool {
    DerReader::new(parameters)
        .any()
        .is_ok_and(|value| value.content == oid::ED25519 || value.content == b"edwards25519")
}

/// Unwraps `CKA_EC_POINT`: usually an OCTET STRING around the point, but the bare point in some modules.
fn unwrap_point(point: &[u8], bytes: usize) -> &[u8] {
    if point.len() == bytes {
        return point;
    }
    DerReader::read_single(point, OCTET_STRING).map_or(point, |value| value.content)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::local::{KeySpec, PrivateKey};

    fn ec(curve: &[u8], point: Vec<u8>) -> Pkcs11Attributes {
        Pkcs11Attributes { key_type: Some(KeyType::EC), curve: curve.to_vec(), point, ..Pkcs11Attributes::default() }
    }

    #[test]
    fn ec_point_and_curve_are_read_in_both_encodings() {
        let key = PrivateKey::generate(KeySpec::new("ec", 384).unwrap()).unwrap();
        let raw = key.public().bits().to_vec();
        let wrapped = build(OCTET_STRING, 0, |w| w.raw(&raw));
        let identifier = build(OID, 0, |w| w.raw(oid::P384));
        let name = build(0x13, 0, |w| w.raw(b"secp384r1"));
        for curve in [&identifier, &name] {
            for point in [&raw, &wrapped] {
                let read = ec(curve, point.clone()).public_key().ok().flatten();
                assert!(read.as_ref() == Some(key.public()));
            }
        }
        let other = build(OID, 0, |w| w.raw(&[0x2b, 0x81, 4, 0, 10]));
        assert!(ec(&other, raw.clone()).public_key().unwrap_err().text().contains("unsupported curve"));
        let mut off = raw;
        off[40] ^= 1;
        assert!(ec(&identifier, off).public_key().unwrap_err().text().contains("not on the curve"));
    }

    #[test]
    fn public_key_is_read_from_its_info_or_its_attributes() {
        let key = PrivateKey::generate(KeySpec::new("ed25519", 0).unwrap()).unwrap();
        let info = Pkcs11Attributes { public_key_info: key.public().spki().to_vec(), ..Pkcs11Attributes::default() };
        assert!(info.public_key().unwrap().as_ref() == Some(key.public()));
        assert!(Pkcs11Attributes::default().public_key().unwrap().is_none());
        let rsa = Pkcs11Attributes {
            key_type: Some(KeyType::RSA),
            modulus: [vec![0, 0xc5], vec![7; 255]].concat(),
            exponent: vec![0, 1, 0, 1],
            ..Pkcs11Attributes::default()
        };
        assert_eq!(rsa.public_key().unwrap().unwrap().kind(), KeyKind::Rsa { bits: 2048 });
        for exponent in [vec![1], vec![4]] {
            let wrong = Pkcs11Attributes {
                exponent,
                modulus: rsa.modulus.clone(),
                key_type: rsa.key_type,
                ..Default::default()
            };
            assert!(wrong.public_key().unwrap_err().text().contains("exponent"));
        }
    }
}
