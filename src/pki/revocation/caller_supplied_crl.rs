//! CRLs that a caller composes, from arbitrary entries or from other CRLs that the same key signed. They are signed and
//! returned, but not stored, and do not affect the CRLs of the mount.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use crate::error::{Error, Result, Warnings};
use crate::keys::signing::Signers;
use crate::pki::check::blocking::{self, SignatureWaiter};
use crate::pki::crl::batch::CrlEntryBatch;
use crate::pki::crl::entries::CrlEntries;
use crate::pki::crl::list::{CrlDraft, CrlHeader};
use crate::pki::engine::Authority;
use crate::pki::mount::signer::IssuerSigner;
use crate::x509::crl::{Crl, encode_entry, encode_entry_with_extensions};
use crate::x509::extension::{MAX_EXTENSIONS, extension};
use crate::x509::oid;
use crate::x509::pieces::Extensions;
use crate::x509::profile;
use crate::x509::public_key::PublicKey;
use crate::x509::raw_extension::ExtensionRef;
use crate::x509::reader::DerReader;
use crate::x509::serial::Serial;
use crate::x509::writer::{ENUMERATED, SEQUENCE, context};

const DEFAULT_CRL_LIFETIME: Duration = Duration::from_secs(72 * 3600);
/// Extensions that a caller may not set, because the server writes them.
const RESERVED_EXTENSIONS: [(&[u8], &str); 3] = [
    (oid::AUTHORITY_KEY_ID, "authorityKeyIdentifier"),
    (oid::CRL_NUMBER, "cRLNumber"),
    (oid::DELTA_CRL_INDICATOR, "deltaCRLIndicator"),
];
/// Maximum number of CRLs in a union; the signature of each is verified.
pub const MAX_UNION_CRLS: usize = 100;
/// Maximum length of a CRL entry, in bytes.
const MAX_ENTRY_BYTES: usize = 16 << 10;

/// An issuer that signs the CRLs that callers compose.
pub struct CallerSuppliedCrlSigner {
    signer: Arc<IssuerSigner>,
    signers: Arc<dyn Signers>,
    now: i64,
}

/// A CRL that a caller composed, to be signed.
pub struct CallerSuppliedCrl {
    /// CRL number, base CRL number and lifetime.
    pub terms: CallerSuppliedCrlTerms,
    /// Entries of the CRL.
    pub entries: CrlEntryBatch,
    /// Extensions of the CRL in addition to those that the server writes.
    pub extensions: CallerSuppliedExtensions,
}

impl CallerSuppliedCrlSigner {
    /// Resolves the issuer that `reference` (id, name or `default`) refers to.
    ///
    /// # Errors
    /// `NotFound` for an unknown issuer; `Invalid` when it may not sign CRLs or has no key.
    pub fn of(authority: &Authority, reference: &str) -> Result<Self> {
        let signer = authority.view().signer(reference).cloned().ok_or_else(Error::not_found)?;
        if !signer.issuer.record.usage.crl {
            return Err(Error::invalid("issuer_ref: the issuer's usage has no crl-signing"));
        }
        if signer.key.is_none() {
            return Err(Error::invalid("issuer_ref: the issuer has no private key in this mount"));
        }
        let deps = authority.deps();
        Ok(Self { signer, signers: Arc::clone(&deps.signers), now: deps.clock.now().unix_timestamp() })
    }

    /// Signs a CRL in the CPU queue, because it may be long; returns its DER.
    ///
    /// # Errors
    /// `Invalid` for an extension that only the server writes, or when the CRL breaks a rule.
    pub async fn sign(self, list: CallerSuppliedCrl) -> Result<Vec<u8>> {
        let CallerSuppliedCrl { terms, entries, extensions } = list;
        let has = |oid: &[u8]| extensions.0.iter().any(|(id, _)| id == oid);
        if let Some((_, name)) = RESERVED_EXTENSIONS.iter().find(|(oid, _)| has(oid)) {
            return Err(Error::invalid(format!("extensions: {name} must be absent, because the server writes it")));
        }
        let Self { signer, signers, now } = self;
        let work = |waiter: SignatureWaiter| async move {
            let entries = CrlEntries::default().with_batch(entries);
            let draft = CrlDraft::new(&signer, &entries, terms.header(now, &entries), &extensions.joined())?;
            let signed = draft.sign(&signer, &*signers, &waiter).await?;
            Ok(signed.finish().pieces().flatten().collect())
        };
        blocking::run(None, work).await?
    }
}

/// CRL number, base CRL number (for a delta CRL) and lifetime of a CRL.
#[derive(Clone, Copy)]
pub struct CallerSuppliedCrlTerms {
    number: u64,
    base: Option<u64>,
    lifetime: Duration,
}

impl CallerSuppliedCrlTerms {
    /// Creates terms with a lifetime of 72 hours. With `base`, the CRL is a delta to the CRL with that number.
    ///
    /// # Errors
    /// `Invalid` when the base is above the number (RFC 5280 5.2.4).
    pub fn new(number: u64, base: Option<u64>) -> Result<Self> {
        if base.is_some_and(|base| base > number) {
            return Err(Error::invalid("delta_crl_base_number: must not be above crl_number (RFC 5280 5.2.4)"));
        }
        Ok(Self { number, base, lifetime: DEFAULT_CRL_LIFETIME })
    }

    /// Sets the lifetime. Its maximum, [a century](crate::pki::mount::settings::crl::parse_lifetime), is not checked
    /// here.
    ///
    /// # Errors
    /// `Invalid` when it is shorter than a second.
    pub fn with_lifetime(self, lifetime: Duration) -> Result<Self> {
        if lifetime.as_secs() == 0 {
            return Err(Error::invalid("next_update: must be at least one second"));
        }
        Ok(Self { lifetime, ..self })
    }

    fn header(self, now: i64, entries: &CrlEntries) -> CrlHeader {
        let Self { number, base, lifetime } = self;
        // An entry may have a revocation time in the future. Cap it at `now`, so that the CRL is valid from now on.
        let latest = entries.latest_revocation().map(|latest| latest.min(now));
        CrlHeader::new(number, base, now, lifetime.as_secs(), latest)
    }
}

/// Extensions of a CRL or entry in order, each with its OID (DER content bytes).
#[derive(Default)]
pub struct CallerSuppliedExtensions(Vec<(Vec<u8>, Extensions)>);

impl CallerSuppliedExtensions {
    /// Adds an extension. `id` is its OID (DER content bytes); `path` names the extension in errors.
    ///
    /// # Errors
    /// `Invalid` for a duplicate, or for too many extensions.
    pub fn push(&mut self, path: &str, id: Vec<u8>, critical: bool, value: &[u8]) -> Result<()> {
        if self.0.iter().any(|(known, _)| *known == id) {
            return Err(Error::invalid(format!("{path}: duplicate extension id (RFC 5280 4.2)")));
        }
        if self.0.len() == MAX_EXTENSIONS {
            return Err(Error::invalid(format!("{path}: at most {MAX_EXTENSIONS} extensions are allowed")));
        }
        let raw = extension(&id, critical, value);
        self.0.push((id, raw));
        Ok(())
    }

    fn value_of(&self, id: &[u8]) -> Option<&[u8]> {
        let (_, raw) = self.0.iter().find(|(known, _)| known == id)?;
        ExtensionRef::next(&mut DerReader::new(raw.as_der())).ok().map(|extension| extension.value)
    }

    fn joined(&self) -> Extensions {
        Extensions::joined(&self.0.iter().map(|(_, raw)| raw).collect::<Vec<_>>())
    }
}

/// A CRL entry that a caller specifies.
pub struct CallerSuppliedEntry {
    /// The revoked serial number, which this server need not have issued.
    pub serial: Serial,
    /// Time of the revocation, epoch seconds, from 1970 to 9999.
    pub revoked_at: i64,
    /// Extensions of the entry.
    pub extensions: CallerSuppliedExtensions,
}

/// The CRL entries that a caller specifies.
pub struct CallerSuppliedEntries {
    batch: CrlEntryBatch,
    seen: HashSet<Serial>,
    is_delta: bool,
    /// Path (such as `revoked_certs[3]`) of the first entry with a certificateIssuer, for errors.
    first_with_issuer: Option<String>,
    /// Path of the first entry without a certificateIssuer, for errors.
    first_without_issuer: Option<String>,
}

impl CallerSuppliedEntries {
    /// Creates an empty list of entries for a CRL with these terms.
    pub fn of(terms: &CallerSuppliedCrlTerms) -> Self {
        let is_delta = terms.base.is_some();
        Self {
            batch: CrlEntryBatch::default(),
            seen: HashSet::new(),
            is_delta,
            first_with_issuer: None,
            first_without_issuer: None,
        }
    }

    /// Adds an entry.
    ///
    /// # Errors
    /// `Invalid` naming the entry by its index in `revoked_certs`.
    pub fn push(&mut self, entry: &CallerSuppliedEntry) -> Result<()> {
        let path = format!("revoked_certs[{}]", self.batch.len());
        let CallerSuppliedEntry { serial, revoked_at, extensions } = entry;
        if !self.seen.insert(*serial) {
            return Err(Error::invalid(format!("{path}: duplicate serial_number")));
        }
        extensions.0.iter().try_for_each(|(_, raw)| check_entry_extension(raw, &path, self.is_delta))?;
        let encoded = encode_entry_with_extensions(serial, *revoked_at, &extensions.joined());
        if encoded.len() > MAX_ENTRY_BYTES {
            return Err(Error::invalid(format!("{path}: the entry is longer than 16 KiB")));
        }
        self.batch.push(*serial, &encoded, *revoked_at, i64::MAX);
        let names_issuer = extensions.value_of(oid::CERTIFICATE_ISSUER).is_some();
        let first = if names_issuer { &mut self.first_with_issuer } else { &mut self.first_without_issuer };
        first.get_or_insert(path);
        Ok(())
    }

    /// Builds the CRL to sign.
    ///
    /// # Errors
    /// `Invalid` when an entry names a certificateIssuer but the CRL is not indirect, or another entry names none.
    pub fn into_crl(
        self,
        terms: CallerSuppliedCrlTerms,
        extensions: CallerSuppliedExtensions,
    ) -> Result<CallerSuppliedCrl> {
        let is_indirect = extensions.value_of(oid::ISSUING_DISTRIBUTION_POINT).is_some_and(is_indirect);
        if let Some(path) = self.first_with_issuer.as_ref().filter(|_| !is_indirect) {
            return Err(Error::invalid(format!(
                "{path}: extensions: certificateIssuer is allowed only in indirect CRLs (RFC 5280 5.3.3): in \
                 extensions, add an issuingDistributionPoint with indirectCRL TRUE"
            )));
        }
        // Entries are sorted by serial number, and an entry without certificateIssuer would inherit that of the
        // previous entry.
        if let (Some(_), Some(path)) = (&self.first_with_issuer, self.first_without_issuer) {
            return Err(Error::invalid(format!(
                "{path}: extensions: must have a certificateIssuer, because other entries of the list have one (RFC \
                 5280 5.3.3)"
            )));
        }
        Ok(CallerSuppliedCrl { terms, entries: self.batch, extensions })
    }
}

/// Returns `true` if issuingDistributionPoint sets indirectCRL (RFC 5280 5.2.5). The CRL check rejects bad values.
fn is_indirect(value: &[u8]) -> bool {
    let Ok(scope) = DerReader::read_single(value, SEQUENCE) else { return false };
    let mut fields = scope.reader();
    std::iter::from_fn(|| fields.any().ok()).any(|field| field.tag == context(4) && field.content != [0])
}

/// Checks the extensions of an entry, because entries are not parsed again before the CRL is signed.
fn check_entry_extension(raw: &Extensions, path: &str, is_delta: bool) -> Result<()> {
    let extension = ExtensionRef::next(&mut DerReader::new(raw.as_der())).map_err(|e| e.into_error(path))?;
    oid::check_oid_size(extension.oid).map_err(|e| e.into_error(&format!("{path}: extensions")))?;
    let Some(known) = profile::find_entry_extension(extension.oid) else { return Ok(()) };
    known.validate(&format!("{path}: extensions"), extension.critical == Some(true), extension.value)?;
    if extension.oid == oid::REASON_CODE && extension.value == REMOVE_FROM_CRL && !is_delta {
        let text =
            format!("{path}: extensions: reasonCode: removeFromCRL is allowed only in delta CRLs (RFC 5280 5.3.1)");
        return Err(Error::invalid(text));
    }
    Ok(())
}

/// Encoded reasonCode removeFromCRL, an ENUMERATED.
const REMOVE_FROM_CRL: [u8; 3] = [ENUMERATED, 1, 8];

/// Union of the entries of several CRLs of one key. If several CRLs list a serial number, its earliest revocation
/// counts.
pub struct CrlUnion<'a> {
    key: &'a PublicKey,
    entries: BTreeMap<Serial, i64>,
    lists: usize,
    repeated: usize,
    stripped: usize,
    partial: usize,
}

impl<'a> CrlUnion<'a> {
    /// Creates an empty union of CRLs signed by this issuer's key.
    pub fn new(signer: &'a CallerSuppliedCrlSigner) -> Self {
        let key = signer.signer.issuer.certificate.key();
        Self { key, entries: BTreeMap::new(), lists: 0, repeated: 0, stripped: 0, partial: 0 }
    }

    /// Adds the entries of a CRL.
    ///
    /// # Errors
    /// `Invalid` naming the index in `crls`: another key signed it, or its entries do not revoke certificates of this
    /// issuer ([`Crl::is_partial`]). `Invalid` for too many CRLs.
    pub fn push(&mut self, crl: &Crl) -> Result<()> {
        let at = self.lists;
        if at == MAX_UNION_CRLS {
            return Err(Error::invalid(format!("crls: at most {MAX_UNION_CRLS} lists are allowed")));
        }
        if !crl.is_signed_by(self.key) {
            return Err(Error::invalid(format!("crls: CRL index {at} was not signed by the requested issuer")));
        }
        self.partial += usize::from(
            crl.is_partial().map_err(|error| Error::invalid(format!("crls: CRL index {at}: {}", error.text())))?,
        );
        self.lists += 1;
        for listed in crl.entries() {
            self.stripped += usize::from(listed.has_extensions);
            let known = self.entries.entry(listed.serial).or_insert(i64::MAX);
            self.repeated += usize::from(*known != i64::MAX);
            *known = listed.revoked_at.min(*known);
        }
        Ok(())
    }

    /// Returns the entries to sign, and warnings about information that the union does not contain.
    pub fn into_batch(self) -> (CrlEntryBatch, Warnings) {
        let Self { entries, repeated, stripped, partial, .. } = self;
        let mut warnings = Warnings::default();
        if repeated > 0 {
            let text = "serial numbers are on several lists; the earliest revocation was kept";
            warnings.add(format!("{repeated} {text}"));
        }
        if stripped > 0 {
            warnings.add(format!("the extensions of {stripped} entries were dropped"));
        }
        if partial > 0 {
            warnings.add(format!(
                "{partial} of the lists do not cover all certificates of their issuer (issuingDistributionPoint); the \
                 new list does not state this"
            ));
        }
        let mut batch = CrlEntryBatch::default();
        for (serial, revoked_at) in entries {
            batch.push(serial, &encode_entry(&serial, revoked_at, None, None), revoked_at, i64::MAX);
        }
        (batch, warnings)
    }
}
