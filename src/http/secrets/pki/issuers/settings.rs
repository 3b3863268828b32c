//! Parses a write to an issuer: name, chain, usage and URLs.

use crate::error::Result;
use crate::fields::{Fields, ListFieldSlot, ListLimit, MAX_NAME_LEN, Resource as _};
use crate::http::secrets::pki::{WriteMode, urls};
use crate::http::secrets::route::concat_fields;
use crate::pki::ca::changes::{CurrentIssuer, IssuerSettings};
use crate::pki::mount::chains::MAX_CHAIN_LENGTH;
use crate::pki::mount::issuer::{IssuerUsage, LeafNotAfterBehavior};
use crate::pki::mount::urls::Urls;

/// Fields of a write to an issuer.
pub(crate) const FIELDS: &[&str] = &concat_fields::<10>(&[
    &["issuer_name", "manual_chain", "leaf_not_after_behavior", "usage", "revocation_signature_algorithm"],
    Urls::FIELDS,
    &[TEMPLATING_FIELD],
]);
/// Flag for templates in the issuer's own URLs.
pub(super) const TEMPLATING_FIELD: &str = "enable_aia_url_templating";
/// Limit on a manual chain.
const MANUAL_CHAIN_CAP: ListLimit = ListLimit::new(MAX_CHAIN_LENGTH, MAX_NAME_LEN);

/// Reads the new settings of an issuer. Absent members get their defaults or are unchanged, depending on `write`.
/// `null` sets the default in both cases.
///
/// # Errors
/// `Invalid` naming field and rule.
pub(crate) fn read(fields: &Fields, write: WriteMode, issuer: &CurrentIssuer<'_>) -> Result<IssuerSettings> {
    let defaults = issuer.defaults();
    let stored = issuer.settings();
    let absent = |name: &str| if write == WriteMode::Merge && !fields.is_null(name) { &stored } else { &defaults };
    let name = "issuer_name";
    let behavior = "leaf_not_after_behavior";
    let algorithm = "revocation_signature_algorithm";
    Ok(IssuerSettings {
        name: fields.text(name)?.unwrap_or_else(|| absent(name).name.clone()),
        manual_chain: match fields.list_within("manual_chain", MANUAL_CHAIN_CAP)? {
            Some(references) => issuer.chain(&references)?,
            None => absent("manual_chain").manual_chain.clone(),
        },
        leaf_not_after_behavior: match fields.text(behavior)? {
            Some(word) => LeafNotAfterBehavior::parse(&word)?,
            None => absent(behavior).leaf_not_after_behavior,
        },
        usage: match fields.list("usage")? {
            Some(words) => issuer.usage(IssuerUsage::parse(&words)?)?,
            None => absent("usage").usage,
        },
        revocation_signature_algorithm: fields
            .text(algorithm)?
            .unwrap_or_else(|| absent(algorithm).revocation_signature_algorithm.clone()),
        urls: {
            let base = if write == WriteMode::Merge { &stored.urls } else { &defaults.urls };
            urls::merged(&without_nulls(base.clone(), fields), fields, TEMPLATING_FIELD)?
        },
    })
}

/// Clears the lists of URLs that are null in the body.
fn without_nulls(mut urls: Urls, fields: &Fields) -> Urls {
    for ListFieldSlot { slot, .. } in Urls::LISTS {
        if fields.is_null(slot.name) {
            (slot.get_mut)(&mut urls).clear();
        }
    }
    urls.templating &= !fields.is_null(TEMPLATING_FIELD);
    urls
}
