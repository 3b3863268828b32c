//! The encoded pieces that certificates, CRLs and requests are put together from, each a type of its own: a
//! list of extensions cannot stand where a name belongs. They come from the encoders in [`name`](super::name)
//! and [`extension`](super::extension) or from what was read, and from then on they are only copied.
//!
//! The type says which values a piece consists of (SEQUENCEs, SETs), and that they are whole. What is inside of
//! them is checked where everything is that is signed.

use super::reader::{Read, Reader};
use super::writer::{SEQUENCE, SET};

/// A whole Name: the SEQUENCE of its RelativeDistinguishedNames, byte for byte (RFC 5280 4.1.2.4 and
/// 4.1.2.6). It may be empty, as a subject may. What it says is read by the methods in [`name`](super::name).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Name(Vec<u8>);

impl Name {
    /// From what an encoder wrote.
    pub(super) fn encoded(der: Vec<u8>) -> Self {
        Self(der)
    }

    /// A name that was read. Its RDNs are not looked at.
    ///
    /// # Errors
    /// The rule of DER that is broken when this is not one whole SEQUENCE.
    pub fn from_der(der: &[u8]) -> Read<Self> {
        Reader::only(der, SEQUENCE)?;
        Ok(Self(der.to_vec()))
    }

    /// The whole encoding.
    pub fn as_der(&self) -> &[u8] {
        &self.0
    }
}

/// RelativeDistinguishedNames (RFC 5280 4.1.2.4), whole SETs one after another, possibly none: part of a
/// [`Name`] to be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rdns(Vec<u8>);

impl Rdns {
    /// From what an encoder wrote.
    pub(super) fn encoded(der: Vec<u8>) -> Self {
        Self(der)
    }

    /// RDNs that were encoded elsewhere. Their attributes are not looked at.
    ///
    /// # Errors
    /// The rule of DER that is broken when these are not whole SETs.
    pub fn from_der(der: &[u8]) -> Read<Self> {
        whole(der, SET).map(Self)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The encodings, one after another.
    pub fn as_der(&self) -> &[u8] {
        &self.0
    }
}

/// All RDNs of the pieces, in their order.
impl FromIterator<Self> for Rdns {
    fn from_iter<I: IntoIterator<Item = Self>>(pieces: I) -> Self {
        let mut all = Vec::new();
        pieces.into_iter().for_each(|piece| all.extend_from_slice(&piece.0));
        Self(all)
    }
}

/// `Extension` SEQUENCEs (RFC 5280 4.1 and 4.2, of CRLs and their entries 5.2 and 5.3), whole, one after
/// another, possibly none: one, some or all elements of an `Extensions`, without the SEQUENCE around them.
/// An empty piece disappears when it is joined.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Extensions(Vec<u8>);

impl Extensions {
    /// From what an encoder wrote.
    pub(super) fn encoded(der: Vec<u8>) -> Self {
        Self(der)
    }

    /// Extensions that were read. Their fields are not looked at.
    ///
    /// # Errors
    /// The rule of DER that is broken when these are not whole SEQUENCEs.
    pub fn from_der(der: &[u8]) -> Read<Self> {
        whole(der, SEQUENCE).map(Self)
    }

    /// All extensions of the pieces, in their order.
    pub fn joined(pieces: &[&Self]) -> Self {
        let mut all = Vec::with_capacity(pieces.iter().map(|piece| piece.0.len()).sum());
        pieces.iter().for_each(|piece| all.extend_from_slice(&piece.0));
        Self(all)
    }

    /// Puts more of them at the end.
    pub fn extend(&mut self, more: &Self) {
        self.0.extend_from_slice(&more.0);
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The encodings, one after another.
    pub fn as_der(&self) -> &[u8] {
        &self.0
    }
}

/// The bytes, where they are whole values with this tag, one after another.
fn whole(der: &[u8], tag: u8) -> Read<Vec<u8>> {
    let mut values = Reader::new(der);
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
        let (one, two) = (Extensions(vec![SEQUENCE, 0]), Extensions(vec![SEQUENCE, 2, 5, 0]));
        let joined = Extensions::joined(&[&one, &Extensions::default(), &two]);
        assert_eq!(joined.as_der(), [SEQUENCE, 0, SEQUENCE, 2, 5, 0]);
        let mut extended = one;
        extended.extend(&two);
        assert_eq!(extended, joined);
        let rdns: Rdns = [Rdns(vec![SET, 0]), Rdns::default(), Rdns(vec![SET, 1, 0])].into_iter().collect();
        assert_eq!(rdns.as_der(), [SET, 0, SET, 1, 0]);
    }
}
