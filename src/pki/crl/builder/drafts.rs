//! Drafts CRLs, and converts CRLs to and from stored rows, which have no entries.

use std::sync::Arc;

use crate::documents::MountId;
use crate::error::Result;
use crate::pki::crl::entries::CrlEntries;
use crate::pki::crl::groups::IssuerGroup;
use crate::pki::crl::list::{CrlDraft, CrlHeader, PublishedCrl, SignedCrlDraft};
use crate::pki::mount::signer::IssuerSigner;
use crate::pki::mount::view::MountView;
use crate::pki::store::CrlRow;
use crate::x509::extension;
use crate::x509::pieces::Extensions;

pub(super) fn delta_group_id(group: &str) -> String {
    format!("{group}/delta")
}

/// Returns the row to store for a CRL that contains every revocation up to the sequence number `covers`.
pub(super) fn crl_row(signed: &SignedCrlDraft, mount: MountId, group: &IssuerGroup, covers: u64) -> CrlRow {
    let CrlHeader { number, base, this_update, next_update, .. } = signed.header();
    CrlRow {
        mount,
        group: if base.is_some() { delta_group_id(&group.id) } else { group.id.clone() },
        number,
        covers,
        this_update,
        next_update,
        signature: signed.signature().to_vec(),
    }
}

/// Drafts a CRL. If delta CRL locations are configured, a complete CRL names them in freshestCRL (RFC 5280 5.2.6).
pub(super) fn draft_crl(
    view: &MountView,
    signer: &IssuerSigner,
    entries: &CrlEntries,
    header: CrlHeader,
) -> Result<CrlDraft> {
    let urls = view.urls_of(&signer.issuer).unwrap_or_default();
    let freshest = match header.base {
        None => extension::freshest_crl(&urls.delta_crl_distribution_points),
        Some(_) => Extensions::default(),
    };
    CrlDraft::new(signer, entries, header, &freshest)
}

/// Rebuilds a CRL from its stored row and its entries; `None` if the stored signature does not verify.
pub(super) fn rebuild_stored_crl(
    view: &MountView,
    signer: &IssuerSigner,
    entries: &CrlEntries,
    row: &CrlRow,
    base: Option<u64>,
) -> Option<Arc<PublishedCrl>> {
    let CrlRow { number, this_update, next_update, .. } = *row;
    let header = CrlHeader { number, base, made_at: this_update, this_update, next_update };
    let draft = draft_crl(view, signer, entries, header).ok()?;
    draft.is_signed_by(signer, &row.signature).then(|| Arc::new(draft.finish(&row.signature)))
}
