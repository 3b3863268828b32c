//! A single CRL, complete or delta: drafted, then signed or matched with a stored signature, and published.

use bytes::Bytes;

use super::entries::CrlEntries;
use crate::error::{Error, Result};
use crate::keys::signing::Signers;
use crate::pki::check::blocking::SignatureWaiter;
use crate::pki::check::linted_tbs::LintedCrlTbs;
use crate::pki::check::structure::{ExpectedIssuer, FieldSources};
use crate::pki::mount::profile::issuer_key_id;
use crate::pki::mount::signer::{IssuerSigner, revocation_algorithm};
use crate::pki::store::CRL_BACKDATING_SECONDS;
use crate::pki::values::hex;
use crate::x509::algorithm::{Hash, SignatureAlgorithm};
use crate::x509::crl::{CrlTbs, EncodedCrlTbs};
use crate::x509::extension;
use crate::x509::pieces::Extensions;

/// A published CRL. Its encoding consists of pieces that are shared with other CRLs and are never joined.
pub struct PublishedCrl {
    /// CRL number (RFC 5280 5.2.3).
    pub number: u64,
    /// Number of the complete CRL that a delta CRL extends; `None` for a complete CRL.
    pub base: Option<u64>,
    /// Time of creation, epoch seconds; for a CRL rebuilt from storage, its thisUpdate.
    pub made_at: i64,
    /// thisUpdate, epoch seconds.
    pub this_update: i64,
    /// nextUpdate, epoch seconds.
    pub next_update: i64,
    /// Number of entries.
    pub entries: usize,
    /// Length of the DER encoding in bytes.
    pub len: usize,
    /// Identifies the CRL: a hash of the first and the last piece of its encoding. The last piece contains the
    /// signature.
    pub tag: String,
    pieces: Vec<Bytes>,
}

impl PublishedCrl {
    fn new(header: CrlHeader, entries: usize, pieces: Vec<Bytes>) -> Self {
        let ends = [pieces.first(), pieces.last()];
        let tag = hex(Hash::Sha256.digest_pieces(ends.into_iter().flatten().map(|end| &end[..])).as_ref());
        let len = pieces.iter().map(Bytes::len).sum();
        let CrlHeader { number, base, made_at, this_update, next_update } = header;
        Self { number, base, made_at, this_update, next_update, entries, len, tag, pieces }
    }

    /// Returns the DER encoding in pieces.
    pub fn pieces(&self) -> impl Iterator<Item = Bytes> + Send + use<> {
        self.pieces.clone().into_iter()
    }
}

/// A revocation time determines thisUpdate only if it is at most this many seconds ahead of the current time.
const MAX_CLOCK_ERROR_SECONDS: i64 = 12 * 3600;

/// Returns the thisUpdate of a CRL or OCSP response made at `made_at` (epoch seconds). Like certificates, it is
/// backdated for clients whose clocks are slow, but it never precedes the latest revocation. Revocation times more than
/// [`MAX_CLOCK_ERROR_SECONDS`] ahead came from a wrong clock. They are ignored, because the CRL would otherwise not be
/// valid until that time.
pub(crate) fn this_update(made_at: i64, latest_revocation: Option<i64>) -> i64 {
    let backdated = made_at.saturating_sub_unsigned(CRL_BACKDATING_SECONDS);
    let from_cache = latest_revocation.filter(|latest| *latest <= made_at.saturating_add(MAX_CLOCK_ERROR_SECONDS));
    from_cache.map_or(backdated, |latest| backdated.max(latest))
}

/// CRL number, number of the base CRL, and times of a CRL.
#[derive(Clone, Copy)]
pub(crate) struct CrlHeader {
    pub(crate) number: u64,
    pub(crate) base: Option<u64>,
    pub(crate) made_at: i64,
    pub(crate) this_update: i64,
    pub(crate) next_update: i64,
}

/// An unsigned CRL.
pub(crate) struct CrlDraft {
    algorithm: SignatureAlgorithm,
    tbs: EncodedCrlTbs,
    header: CrlHeader,
    entries: usize,
}

impl CrlHeader {
    /// Creates the header of a CRL made at `made_at` (epoch seconds) and valid for `lifetime` seconds. `latest` is the
    /// latest revocation time on the CRL.
    pub(crate) fn new(number: u64, base: Option<u64>, made_at: i64, lifetime: u64, latest: Option<i64>) -> Self {
        let this_update = this_update(made_at, latest);
        // thisUpdate may be later than `made_at` if the clock was set back after a revocation.
        let next_update = made_at.max(this_update).saturating_add_unsigned(lifetime);
        Self { number, base, made_at, this_update, next_update }
    }
}

impl CrlDraft {
    /// Drafts a CRL. `extensions` are added to authorityKeyIdentifier, CRLNumber and deltaCRLIndicator.
    pub(crate) fn new(
        signer: &IssuerSigner,
        entries: &CrlEntries,
        header: CrlHeader,
        extensions: &Extensions,
    ) -> Result<Self> {
        let issuer = &signer.issuer;
        let algorithm = revocation_algorithm(signer)?;
        let key_id = extension::authority_key_id(&issuer_key_id(issuer));
        let number = extension::crl_number(header.number);
        let base = header.base.map(extension::delta_crl_indicator).unwrap_or_default();
        let tbs = CrlTbs {
            algorithm,
            issuer: issuer.certificate.subject(),
            this_update: header.this_update,
            next_update: header.next_update,
            extensions: &[&key_id, &number, &base, extensions],
        }
        .encode(entries.pieces());
        Ok(Self { algorithm, tbs, header, entries: entries.len() })
    }

    /// Checks and signs the CRL. This takes time proportional to the number of entries, so it never runs on a worker
    /// thread.
    pub(crate) async fn sign(
        self,
        signer: &IssuerSigner,
        signers: &dyn Signers,
        waiter: &SignatureWaiter,
    ) -> Result<SignedCrlDraft> {
        let key = signer
            .key
            .as_ref()
            .ok_or_else(|| Error::internal("the issuer that signs the CRL has no private key in this mount"))?;
        let key_id = issuer_key_id(&signer.issuer);
        let issuer = signer.issuer.certificate.subject();
        let sources = &FieldSources::all("crl");
        let expected = ExpectedIssuer { algorithm: self.algorithm, issuer, key_id: &key_id, sources };
        let signature = LintedCrlTbs::new(&self.tbs, &expected, &key.signing)?.sign(signers, waiter).await?;
        Ok(SignedCrlDraft { draft: self, signature })
    }

    /// Returns `true` if `signature` is the signature of this CRL by the issuer `signer`.
    pub(crate) fn is_signed_by(&self, signer: &IssuerSigner, signature: &[u8]) -> bool {
        let key = signer.issuer.certificate.key();
        key.verify_pieces(self.algorithm, self.tbs.pieces(), signature).is_ok()
    }

    /// Returns the CRL with `signature`.
    pub(crate) fn finish(self, signature: &[u8]) -> PublishedCrl {
        PublishedCrl::new(self.header, self.entries, self.tbs.signed(self.algorithm, signature))
    }
}

/// A CRL draft with its signature.
pub(crate) struct SignedCrlDraft {
    draft: CrlDraft,
    signature: Vec<u8>,
}

impl SignedCrlDraft {
    pub(crate) fn header(&self) -> CrlHeader {
        self.draft.header
    }

    pub(crate) fn signature(&self) -> &[u8] {
        &self.signature
    }

    /// Returns the signed CRL.
    pub(crate) fn finish(self) -> PublishedCrl {
        self.draft.finish(&self.signature)
    }
}
