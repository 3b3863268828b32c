//! Lists that a caller words: from entries of any serial numbers, or from other lists of the same key. Both are
//! signed and handed out; nothing is stored, and what the mount publishes does not know of them. Refuses issuers
//! that may not sign CRLs.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use crate::error::{Error, Result, Warnings};
use crate::keys::signing::Signers;
use crate::pki::check::blocking::{self, Outside};
use crate::pki::crl::batch::Batch;
use crate::pki::crl::entries::Entries;
use crate::pki::crl::list::{Draft, Frame};
use crate::pki::engine::Authority;
use crate::pki::mount::signer::Signer;
use crate::x509::crl::{Crl, entry, entry_with_extensions};
use crate::x509::extension::{MAX_EXTENSIONS, extension};
use crate::x509::oid;
use crate::x509::pieces::Extensions;
use crate::x509::profile;
use crate::x509::public_key::PublicKey;
use crate::x509::raw_extension::ExtensionRef;
use crate::x509::reader::Reader;
use crate::x509::serial::Serial;
use crate::x509::writer::{ENUMERATED, SEQUENCE, context};

/// Life of a list when nobody names one.
const LIFE: Duration = Duration::from_secs(72 * 3600);
/// Extensions that the server itself writes.
const RESERVED: [(&[u8], &str); 3] = [
    (oid::AUTHORITY_KEY_ID, "authorityKeyIdentifier"),
    (oid::CRL_NUMBER, "cRLNumber"),
    (oid::DELTA_CRL_INDICATOR, "deltaCRLIndicator"),
];
/// Most lists that are joined: the signature of each is checked.
pub const MAX_LISTS: usize = 100;
/// Longest entry, in octets.
const LONGEST_ENTRY: usize = 16 << 10;

/// An issuer that signs lists on request.
pub struct ListSigner {
    signer: Arc<Signer>,
    signers: Arc<dyn Signers>,
    now: i64,
}

/// A list to sign.
pub struct WordedList {
    /// Its numbers and its life.
    pub terms: ListTerms,
    /// What is on it.
    pub entries: Batch,
    /// Further extensions of the list.
    pub extensions: WordedExtensions,
}

impl ListSigner {
    /// The issuer that `reference` names.
    ///
    /// # Errors
    /// `NotFound` for an unknown issuer; `Invalid` when it may not sign CRLs, or cannot.
    pub fn of(authority: &Authority, reference: &str) -> Result<Self> {
        let signer = authority.view().signer(reference).cloned().ok_or_else(Error::not_found)?;
        if !signer.issuer.record.usage.crl {
            return Err(Error::invalid("issuer_ref: the issuer's usage has no crl-signing"));
        }
        if signer.key.is_none() {
            return Err(Error::invalid("issuer_ref: the issuer has no private key in this mount"));
        }
        let tools = authority.tools();
        Ok(Self { signer, signers: Arc::clone(&tools.signers), now: tools.clock.now().unix_timestamp() })
    }

    /// Signs a list, off the worker; gives its DER.
    ///
    /// # Errors
    /// `Invalid` when an extension is one that the server writes itself, or the list breaks a rule.
    pub async fn sign(self, list: WordedList) -> Result<Vec<u8>> {
        let WordedList { terms, entries, extensions } = list;
        let has = |oid: &[u8]| extensions.0.iter().any(|(id, _)| id == oid);
        if let Some((_, name)) = RESERVED.iter().find(|(oid, _)| has(oid)) {
            return Err(Error::invalid(format!("extensions: {name} is written by the server")));
        }
        let Self { signer, signers, now } = self;
        let work = |outside: Outside| async move {
            let entries = Entries::default().with(entries);
            let frame = terms.from(now, &entries);
            let draft = Draft::new(&signer, &entries, frame, &extensions.joined())?;
            let signature = draft.sign(&signer, &*signers, &outside).await?;
            Ok(draft.finish(&signature).pieces().flatten().collect())
        };
        blocking::run(None, work).await?
    }
}

/// The numbers and the life of a list.
#[derive(Clone, Copy)]
pub struct ListTerms {
    number: u64,
    base: Option<u64>,
    life: Duration,
}

impl ListTerms {
    /// A list with its number, for 72 hours; with the number of a complete list it is a delta CRL of that.
    ///
    /// # Errors
    /// `Invalid` when the base comes later (RFC 5280 5.2.4).
    pub fn numbered(number: u64, base: Option<u64>) -> Result<Self> {
        if base.is_some_and(|base| base > number) {
            return Err(Error::invalid("delta_crl_base_number: must not be above crl_number (RFC 5280 5.2.4)"));
        }
        Ok(Self { number, base, life: LIFE })
    }

    /// With another life, of at most [a century](crate::pki::mount::settings::crl::lifetime).
    ///
    /// # Errors
    /// `Invalid` when it is shorter than a second.
    pub fn lasting(self, life: Duration) -> Result<Self> {
        if life.as_secs() == 0 {
            return Err(Error::invalid("next_update: must be at least one second"));
        }
        Ok(Self { life, ..self })
    }

    fn from(self, now: i64, entries: &Entries) -> Frame {
        let Self { number, base, life } = self;
        // The caller may date an entry in the future; the list is valid from now all the same.
        let latest = entries.latest_revocation().map(|latest| latest.min(now));
        Frame::new(number, base, now, life.as_secs(), latest)
    }
}

/// Extensions of an entry or a list, each with its identifier, in their order.
#[derive(Default)]
pub struct WordedExtensions(Vec<(Vec<u8>, Extensions)>);

impl WordedExtensions {
    /// One more, by the content octets of its identifier and its value; errors name it by `path`.
    ///
    /// # Errors
    /// `Invalid` for one that is there before, and for too many.
    pub fn push(&mut self, path: &str, id: Vec<u8>, critical: bool, value: &[u8]) -> Result<()> {
        if self.0.iter().any(|(known, _)| *known == id) {
            return Err(Error::invalid(format!("{path}: its id is there before (RFC 5280 4.2)")));
        }
        if self.0.len() == MAX_EXTENSIONS {
            return Err(Error::invalid(format!("{path}: at most {MAX_EXTENSIONS} extensions are taken")));
        }
        let raw = extension(&id, critical, value);
        self.0.push((id, raw));
        Ok(())
    }

    /// The value of the one with this identifier.
    fn value_of(&self, id: &[u8]) -> Option<&[u8]> {
        let (_, raw) = self.0.iter().find(|(known, _)| known == id)?;
        ExtensionRef::next(&mut Reader::new(raw.as_der())).ok().map(|extension| extension.value)
    }

    fn joined(&self) -> Extensions {
        Extensions::joined(&self.0.iter().map(|(_, raw)| raw).collect::<Vec<_>>())
    }
}

/// An entry that a caller words.
pub struct WordedEntry {
    /// Any serial number.
    pub serial: Serial,
    /// Epoch seconds, from 1970 to 9999.
    pub revoked_at: i64,
    /// Its extensions.
    pub extensions: WordedExtensions,
}

/// The entries of a list that a caller words.
pub struct WordedEntries {
    batch: Batch,
    seen: HashSet<Serial>,
    is_delta: bool,
    /// Where the first one stands that is of another issuer.
    of_another: Option<String>,
    /// The first entry that names none.
    of_nobody: Option<String>,
}

impl WordedEntries {
    /// None yet, for a list on these terms.
    pub fn of(terms: &ListTerms) -> Self {
        let is_delta = terms.base.is_some();
        Self { batch: Batch::default(), seen: HashSet::new(), is_delta, of_another: None, of_nobody: None }
    }

    /// One more.
    ///
    /// # Errors
    /// `Invalid` naming the entry by its place in `revoked_certs`.
    pub fn push(&mut self, entry: &WordedEntry) -> Result<()> {
        let path = format!("revoked_certs[{}]", self.batch.len());
        let WordedEntry { serial, revoked_at, extensions } = entry;
        if !self.seen.insert(*serial) {
            return Err(Error::invalid(format!("{path}: its serial_number is listed before")));
        }
        extensions.0.iter().try_for_each(|(_, raw)| check_entry_extension(raw, &path, self.is_delta))?;
        let encoded = entry_with_extensions(serial, *revoked_at, &extensions.joined());
        if encoded.len() > LONGEST_ENTRY {
            return Err(Error::invalid(format!("{path}: the entry is above 16 KiB")));
        }
        self.batch.push(*serial, &encoded, *revoked_at, i64::MAX);
        let names_issuer = extensions.value_of(oid::CERTIFICATE_ISSUER).is_some();
        let first = if names_issuer { &mut self.of_another } else { &mut self.of_nobody };
        first.get_or_insert(path);
        Ok(())
    }

    /// The list of them, to be signed.
    ///
    /// # Errors
    /// `Invalid` for entries of other issuers where the list does not say that it has such.
    pub fn into_list(self, terms: ListTerms, extensions: WordedExtensions) -> Result<WordedList> {
        let is_indirect = extensions.value_of(oid::ISSUING_DISTRIBUTION_POINT).is_some_and(is_indirect);
        if let Some(path) = self.of_another.as_ref().filter(|_| !is_indirect) {
            return Err(Error::invalid(format!(
                "{path}: extensions: certificateIssuer stands in indirect CRLs alone (RFC 5280 5.3.3): give the list an \
                 issuingDistributionPoint with indirectCRL TRUE in extensions"
            )));
        }
        // Entries are sorted by number, and one without an issuer has that of the entry before it.
        if let (Some(_), Some(path)) = (&self.of_another, self.of_nobody) {
            return Err(Error::invalid(format!(
                "{path}: extensions: must have a certificateIssuer, because others of the list have one (RFC 5280 5.3.3)"
            )));
        }
        Ok(WordedList { terms, entries: self.batch, extensions })
    }
}

/// Whether issuingDistributionPoint says that a list has entries of several issuers (RFC 5280 5.2.5). One that breaks a
/// rule is refused with its list.
fn is_indirect(value: &[u8]) -> bool {
    let Ok(scope) = Reader::only(value, SEQUENCE) else { return false };
    let mut fields = scope.reader();
    std::iter::from_fn(|| fields.any().ok()).any(|field| field.tag == context(4) && field.content != [0])
}

/// Entries are not read back before a list is signed: what a caller words is held here.
fn check_entry_extension(raw: &Extensions, path: &str, is_delta: bool) -> Result<()> {
    let extension = ExtensionRef::next(&mut Reader::new(raw.as_der())).map_err(|e| e.of(path))?;
    oid::check_size(extension.oid).map_err(|e| e.of(&format!("{path}: extensions")))?;
    let Some(known) = profile::of_entry(extension.oid) else { return Ok(()) };
    known.hold(&format!("{path}: extensions"), extension.critical == Some(true), extension.value)?;
    if extension.oid == oid::REASON_CODE && extension.value == REMOVE_FROM_CRL && !is_delta {
        let text = format!("{path}: extensions: reasonCode: removeFromCRL stands in delta CRLs alone (RFC 5280 5.3.1)");
        return Err(Error::invalid(text));
    }
    Ok(())
}

/// The reason with which an entry leaves the list, as an ENUMERATED.
const REMOVE_FROM_CRL: [u8; 3] = [ENUMERATED, 1, 8];

/// The entries of several lists of one key; of a serial that is on several the first revocation counts.
pub struct Union<'a> {
    key: &'a PublicKey,
    entries: BTreeMap<Serial, i64>,
    lists: usize,
    repeated: usize,
    stripped: usize,
    partial: usize,
}

impl<'a> Union<'a> {
    /// None yet, of lists that this issuer's key has signed.
    pub fn by(signer: &'a ListSigner) -> Self {
        let key = signer.signer.issuer.certificate.key();
        Self { key, entries: BTreeMap::new(), lists: 0, repeated: 0, stripped: 0, partial: 0 }
    }

    /// The entries of one more list.
    ///
    /// # Errors
    /// `Invalid` naming the list by its place in `crls` when another key signed it, when its entries are no revocations
    /// of this issuer's certificates ([`Crl::is_partial`]), or for too many.
    pub fn push(&mut self, crl: &Crl) -> Result<()> {
        let at = self.lists;
        if at == MAX_LISTS {
            return Err(Error::invalid(format!("crls: at most {MAX_LISTS} lists are taken")));
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

    /// The entries, to be signed, and what was left out of them.
    pub fn into_batch(self) -> (Batch, Warnings) {
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
                "{partial} of the lists say that they do not hold all certificates of their issuer \
                 (issuingDistributionPoint): the new list says nothing of that"
            ));
        }
        let mut batch = Batch::default();
        for (serial, revoked_at) in entries {
            batch.push(serial, &entry(&serial, revoked_at, None, None), revoked_at, i64::MAX);
        }
        (batch, warnings)
    }
}
