//! The encoded pieces of certificates, CRLs and requests. Each kind has its own type, so that extensions cannot be
//! used in place of a name.
//!
//! Pieces come from the encoders in [`name`](super::name) and [`extension`](super::extension), or from parsed input.
//! A type guarantees complete SEQUENCE or SET values; their content is validated before signing.

use super::reader::{DerReader, DerResult};
use super::writer::{SEQUENCE, SET};

/// An encoded Name, possibly empty (RFC 5280 4.1.2.4, 4.1.2.6). [`name`](super::name) has methods to read it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Name(Vec<u8>);

impl Name {
    pub(super) fn encoded(der: Vec<u8>) -> Self {
        Self(der)
    }

    /// Creates a name from DER. Its RDNs are not validated.
    ///
    /// # Errors
    /// The violated DER rule when it is not one SEQUENCE.
    pub fn from_der(der: &[u8]) -> DerResult<Self> {
        DerReader::only(der, SEQUENCE)?;
        Ok(Self(der.to_vec()))
    }

    /// The encoded Name.
    pub fn as_der(&self) -> &[u8] {
        &self.0
    }
}

/// Encoded RelativeDistinguishedNames (RFC 5280 4.1.2.4), any number of SETs: a part of a [`Name`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rdns(Vec<u8>);

impl Rdns {
    pub(super) fn encoded(der: Vec<u8>) -> Self {
        Self(der)
    }

    /// Creates RDNs from DER. Their attributes are not validated.
    ///
    /// # Errors
    /// The violated DER rule when these are not complete SETs.
    pub fn from_der(der: &[u8]) -> DerResult<Self> {
        read_whole(der, SET).map(Self)
    }

    /// `true` if there are no RDNs.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The concatenated SETs.
    pub fn as_der(&self) -> &[u8] {
        &self.0
    }
}

/// Joins the RDNs of all pieces, in order.
impl FromIterator<Self> for Rdns {
    fn from_iter<I: IntoIterator<Item = Self>>(pieces: I) -> Self {
        let mut all = Vec::new();
        pieces.into_iter().for_each(|piece| all.extend_from_slice(&piece.0));
        Self(all)
    }
}

/// Encoded `Extension` SEQUENCEs of certificates (RFC 5280 4.1, 4.2), CRLs (5.2) or their entries (5.3): any number
/// of elements of an `Extensions`, without the enclosing SEQUENCE.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Extensions(Vec<u8>);

impl Extensions {
    pub(super) fn encoded(der: Vec<u8>) -> Self {
        Self(der)
    }

    /// Creates extensions from DER. Their fields are not validated.
    ///
    /// # Errors
    /// The violated DER rule when these are not complete SEQUENCEs.
    pub fn from_der(der: &[u8]) -> DerResult<Self> {
        read_whole(der, SEQUENCE).map(Self)
    }

    /// Joins the extensions of all pieces, in order.
    pub fn joined(pieces: &[&Self]) -> Self {
        let mut all = Vec::with_capacity(pieces.iter().map(|piece| piece.0.len()).sum());
        pieces.iter().for_each(|piece| all.extend_from_slice(&piece.0));
        Self(all)
    }

    /// Appends extensions.
    pub fn extend(&mut self, more: &Self) {
        self.0.extend_from_slice(&more.0);
    }

    /// `true` if there are no extensions.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The concatenated SEQUENCEs.
    pub fn as_der(&self) -> &[u8] {
        &self.0
    }
}

/// Copies the bytes if they are complete values with this tag.
fn read_whole(der: &[u8], tag: u8) -> DerResult<Vec<u8>> {
    let mut values = DerReader::new(der);
    while !values.is_empty() {
        values.expect(tag)?;
    }
    Ok(der.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_is_whole() {
        for name in [&[SEQUENCE, 0][..], &[SEQUENCE, 2, 5, 0]] {
            assert_eq!(Name::from_der(name).unwrap().as_der(), name);
        }
        for other in [&[][..], &[SET, 0], &[SEQUENCE, 1], &[SEQUENCE, 0, 0], &[SEQUENCE, 0, SEQUENCE, 0]] {
            assert!(Name::from_der(other).is_err(), "{other:?}");
        }
        for extensions in [&[][..], &[SEQUENCE, 0], &[SEQUENCE, 0, SEQUENCE, 2, 5, 0]] {
            assert_eq!(Extensions::from_der(extensions).unwrap().as_der(), extensions);
        }
        for other in [&[SET, 0][..], &[SEQUENCE], &[SEQUENCE, 0, SEQUENCE, 1]] {
            assert!(Extensions::from_der(other).is_err(), "{other:?}");
        }
        assert_eq!(Rdns::from_der(&[SET, 0, SET, 0]).unwrap().as_der(), [SET, 0, SET, 0]);
        assert!(Rdns::from_der(&[SET, 0, SEQUENCE, 0]).is_err() && Rdns::from_der(&[SET, 1]).is_err());
    }

    #[test]
    fn pieces_are_joined_in_their_order_and_empty_ones_disappear() {
        let one = Extensions(vec![SEQUENCE, 0]);
        let two = Extensions(vec![SEQUENCE, 2, 5, 0]);
        let joined = Extensions::joined(&[&one, &Extensions::default(), &two]);
        assert_eq!(joined.as_der(), [SEQUENCE, 0, SEQUENCE, 2, 5, 0]);
        let mut extended = one;
        extended.extend(&two);
        assert_eq!(extended, joined);
        let rdns: Rdns = [Rdns(vec![SET, 0]), Rdns::default(), Rdns(vec![SET, 1, 0])].into_iter().collect();
        assert_eq!(rdns.as_der(), [SET, 0, SET, 1, 0]);
    }
}
