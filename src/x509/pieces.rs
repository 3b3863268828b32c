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
        DerReader::read_single(der, SEQUENCE)?;
        Ok(Self(der.to_vec()))
    }

    /// The encoded Name.
    pub fn as_der(&self) -> &[u8] {
        &self.0
    }
}

/// Encoded RelativeDistinguishedNames (RFC 5280 4.1.2.4), any number of SETs: a part of a [`Name`].
pub type Rdns = EncodedList<SET>;

/// Encoded `Extension` SEQUENCEs of certificates (RFC 5280 4.1, 4.2), CRLs (5.2) or their entries (5.3): any number
/// of elements of an `Extensions`, without the enclosing SEQUENCE.
pub type Extensions = EncodedList<SEQUENCE>;

/// Encoded values with one tag, without an enclosing value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EncodedList<const TAG: u8>(Vec<u8>);

impl<const TAG: u8> EncodedList<TAG> {
    pub(super) fn encoded(der: Vec<u8>) -> Self {
        Self(der)
    }

    /// Creates a list from DER. The content of its values is not validated.
    ///
    /// # Errors
    /// The violated DER rule when these are not complete values with this tag.
    pub fn from_der(der: &[u8]) -> DerResult<Self> {
        let mut values = DerReader::new(der);
        while !values.is_empty() {
            values.expect(TAG)?;
        }
        Ok(Self(der.to_vec()))
    }

    /// Joins the values of several lists, in order.
    pub fn joined(pieces: &[&Self]) -> Self {
        let mut all = Vec::with_capacity(pieces.iter().map(|piece| piece.0.len()).sum());
        pieces.iter().for_each(|piece| all.extend_from_slice(&piece.0));
        Self(all)
    }

    /// Appends the values of `more`.
    pub fn extend(&mut self, more: &Self) {
        self.0.extend_from_slice(&more.0);
    }

    /// `true` if there are no values.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The concatenated values.
    pub fn as_der(&self) -> &[u8] {
        &self.0
    }
}

/// Joins the values of several lists, in order.
impl<const TAG: u8> FromIterator<Self> for EncodedList<TAG> {
    fn from_iter<I: IntoIterator<Item = Self>>(pieces: I) -> Self {
        let mut all = Self::default();
        pieces.into_iter().for_each(|piece| all.extend(&piece));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encoded_pieces_must_be_complete_values() {
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
        let one = Extensions::encoded(vec![SEQUENCE, 0]);
        let two = Extensions::encoded(vec![SEQUENCE, 2, 5, 0]);
        let joined = Extensions::joined(&[&one, &Extensions::default(), &two]);
        assert_eq!(joined.as_der(), [SEQUENCE, 0, SEQUENCE, 2, 5, 0]);
        let mut extended = one;
        extended.extend(&two);
        assert_eq!(extended, joined);
        let rdns: Rdns = [vec![SET, 0], vec![], vec![SET, 1, 0]].map(Rdns::encoded).into_iter().collect();
        assert_eq!(rdns.as_der(), [SET, 0, SET, 1, 0]);
    }
}
