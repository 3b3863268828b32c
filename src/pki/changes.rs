//! Changes of a mount's roles, issuers, keys and settings, each as one plan on the current view.

use super::Authority;
use super::actor::Planned;
use super::issuer::{IssuerRecord, Key, MAX_CHAIN, Usage};
use super::role::Role;
use super::store::PkiWrite;
use super::urls::Urls;
use super::validity::LeafNotAfter;
use super::view::View;
use crate::error::{Error, Result};
use crate::fields::{Cap, Fields, MAX_NAME};
use crate::x509::algorithm::{KeyKind, SignatureAlgorithm};

/// The most issuers of a chain that is written by hand.
const CHAIN: Cap = Cap::new(MAX_CHAIN, MAX_NAME);

/// Fields of an issuer write.
pub const ISSUER_FIELDS: &[&str] = &[
    "issuer_name",
    "manual_chain",
    "leaf_not_after_behavior",
    "usage",
    "revocation_signature_algorithm",
    "issuing_certificates",
    "crl_distribution_points",
    "delta_crl_distribution_points",
    "ocsp_servers",
    "enable_aia_url_templating",
];

/// Whether absent fields fall back to their defaults or stay as they are.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Write {
    /// POST: absent → default.
    Replace,
    /// PATCH: absent → stays, null → default.
    Merge,
}

fn planned(view: View, writes: Vec<PkiWrite>) -> Planned {
    Planned { view, writes, crls: false }
}

/// Writes a role; the answer is the role as stored, and warnings.
///
/// # Errors
/// `Invalid` naming field and rule; `Invalid` when a merge finds no role.
pub async fn write_role(
    authority: &Authority,
    name: &str,
    fields: &Fields,
    write: Write,
) -> Result<(Role, Vec<String>)> {
    let (name, fields) = (name.to_owned(), fields.clone());
    authority
        .change(move |view| {
            let (role, mut warnings) = match write {
                Write::Replace => Role::from_fields(&fields)?,
                Write::Merge => view
                    .role(&name)
                    .ok_or_else(|| Error::invalid(format!("role does not exist: {name}")))?
                    .role
                    .patched(&fields)?,
            };
            if view.signer(&role.issuer_ref).is_none() {
                warnings.push(format!("issuer_ref: {} names no issuer of this mount at present", role.issuer_ref));
            }
            let mut next = view.clone();
            let writes = vec![next.put_role(&name, role.clone())?];
            Ok((planned(next, writes), (role, warnings)))
        })
        .await
}

/// Deletes a role; nothing happens when there is none.
///
/// # Errors
/// `Unavailable` from storage.
pub async fn delete_role(authority: &Authority, name: &str) -> Result<()> {
    let name = name.to_owned();
    authority
        .change(move |view| {
            let mut next = view.clone();
            let writes = next.remove_role(&name).into_iter().collect();
            Ok((planned(next, writes), ()))
        })
        .await
}

/// Writes the updatable fields of an issuer; gives its id and warnings.
///
/// # Errors
/// `NotFound` for an unknown issuer; `Invalid` naming field and rule.
pub async fn write_issuer(
    authority: &Authority,
    reference: &str,
    fields: &Fields,
    write: Write,
) -> Result<(String, Vec<String>)> {
    let (reference, fields) = (reference.to_owned(), fields.clone());
    let now = authority.tools().clock.now().unix_timestamp();
    let ((id, mut warnings), crls) = authority
        .change_and_crls(move |view| {
            let signer = view.signer(&reference).ok_or_else(Error::not_found)?;
            let old = &signer.issuer.record;
            let record = updated(view, old, &fields, write, now)?;
            if record.usage.crl && !old.usage.crl && !signer.issuer.may_sign_crls() {
                return Err(Error::invalid("usage: crl-signing needs cRLSign in the certificate's keyUsage"));
            }
            let mut warnings = Vec::new();
            if record.name != old.name && !old.name.is_empty() {
                let roles = view.roles_using(&old.name, 10);
                if !roles.is_empty() {
                    warnings.push(format!("roles still name the issuer by its old name: {}", roles.join(", ")));
                }
            }
            check_algorithm(&record.revocation_signature_algorithm, signer.issuer.certificate.key().kind())?;
            let id = record.id.clone();
            let crls = record.usage.crl != old.usage.crl
                || record.revocation_signature_algorithm != old.revocation_signature_algorithm;
            let mut next = view.clone();
            let writes = vec![next.put_issuer(record)?];
            Ok((Planned { view: next, writes, crls }, (id, warnings)))
        })
        .await?;
    warnings.extend(crls);
    Ok((id, warnings))
}

fn updated(view: &View, old: &IssuerRecord, fields: &Fields, write: Write, now: i64) -> Result<IssuerRecord> {
    // What an absent field means: its default, or the stored value. Null on a merge is the default too.
    let keeps = |name: &str| write == Write::Merge && !fields.is_null(name);
    let mut record = old.clone();
    match fields.text("issuer_name")? {
        Some(name) => record.name = name,
        None if !keeps("issuer_name") => record.name = String::new(),
        None => {}
    }
    match fields.list_within("manual_chain", CHAIN)? {
        Some(chain) => record.manual_chain = manual_chain(view, &old.id, &chain)?,
        None if !keeps("manual_chain") => record.manual_chain = Vec::new(),
        None => {}
    }
    match fields.text("leaf_not_after_behavior")? {
        Some(word) => record.leaf_not_after_behavior = LeafNotAfter::parse(&word)?,
        None if !keeps("leaf_not_after_behavior") => record.leaf_not_after_behavior = LeafNotAfter::Err,
        None => {}
    }
    match fields.list("usage")? {
        Some(words) => record.usage = usage(old, &words)?,
        None if !keeps("usage") => record.usage = default_usage(view, old),
        None => {}
    }
    match fields.text("revocation_signature_algorithm")? {
        Some(name) => record.revocation_signature_algorithm = name,
        None if !keeps("revocation_signature_algorithm") => record.revocation_signature_algorithm = String::new(),
        None => {}
    }
    let base = if write == Write::Merge { old.urls.clone() } else { Urls::default() };
    record.urls = base.merged(&nulls_as_empty(fields), "enable_aia_url_templating")?;
    record.modified_at = now;
    Ok(record)
}

/// A merge resets a list of URLs by null.
fn nulls_as_empty(fields: &Fields) -> Fields {
    let mut fields = fields.clone();
    for name in super::urls::LIST_FIELDS {
        if fields.is_null(name) {
            fields.set(name, Vec::<String>::new());
        }
    }
    if fields.is_null("enable_aia_url_templating") {
        fields.set("enable_aia_url_templating", false);
    }
    fields
}

fn usage(old: &IssuerRecord, words: &[String]) -> Result<Usage> {
    let usage = Usage::parse(words)?;
    if usage.issuing && old.revoked_at.is_some() {
        return Err(Error::invalid("usage: a revoked issuer may not have issuing-certificates"));
    }
    Ok(usage)
}

/// All uses that the certificate and its state allow.
fn default_usage(view: &View, record: &IssuerRecord) -> Usage {
    let crl = view.signer(&record.id).is_some_and(|s| s.issuer.may_sign_crls());
    Usage { issuing: record.revoked_at.is_none(), crl, ocsp: true }
}

fn manual_chain(view: &View, own_id: &str, references: &[String]) -> Result<Vec<String>> {
    let ids = references
        .iter()
        .map(|reference| match reference.as_str() {
            "self" => Ok(own_id.to_owned()),
            other => view
                .signer(other)
                .map(|s| s.issuer.record.id.clone())
                .ok_or_else(|| Error::invalid("manual_chain: every entry must name an issuer of this mount")),
        })
        .collect::<Result<Vec<_>>>()?;
    if ids.first().is_some_and(|first| first != own_id) {
        return Err(Error::invalid("manual_chain: the first entry must be the issuer itself"));
    }
    Ok(ids)
}

/// The signature algorithm must be one that the issuer's key can make.
fn check_algorithm(name: &str, kind: KeyKind) -> Result<()> {
    if name.is_empty() {
        return Ok(());
    }
    let algorithm = SignatureAlgorithm::parse_name(name)
        .ok_or_else(|| Error::invalid("revocation_signature_algorithm: unknown signature algorithm"))?;
    if algorithm.fits(kind) {
        return Ok(());
    }
    Err(Error::invalid("revocation_signature_algorithm: does not suit the issuer's key"))
}

/// Deletes an issuer; its key stays. Gives warnings; nothing happens when there is none.
///
/// # Errors
/// `Unavailable` from storage.
pub async fn delete_issuer(authority: &Authority, reference: &str) -> Result<Vec<String>> {
    let reference = reference.to_owned();
    let now = authority.tools().clock.now().unix_timestamp();
    let (mut warnings, crls) = authority
        .change_and_crls(move |view| {
            let mut next = view.clone();
            let Some(signer) = view.signer(&reference) else { return Ok((planned(next, Vec::new()), Vec::new())) };
            let record = &signer.issuer.record;
            let mut warnings = Vec::new();
            let writes = next.remove_issuers(std::slice::from_ref(&record.id), now);
            if view.is_default_issuer(&record.id) {
                warnings.push("the deleted issuer was the default: this mount has no default issuer now".to_owned());
            }
            let roles = [record.id.as_str(), record.name.as_str()].map(|r| view.roles_using(r, 10)).concat();
            if !roles.is_empty() {
                warnings.push(format!("roles still name the deleted issuer: {}", roles.join(", ")));
            }
            Ok((Planned { view: next, writes, crls: true }, warnings))
        })
        .await?;
    warnings.extend(crls);
    Ok(warnings)
}

/// Deletes every issuer and key of the mount; certificates, revocations and roles stay.
///
/// # Errors
/// `Unavailable` from storage.
pub async fn delete_all_issuers(authority: &Authority) -> Result<Vec<String>> {
    let now = authority.tools().clock.now().unix_timestamp();
    let (mut warnings, crls) = authority
        .change_and_crls(move |view| {
            let mut next = view.clone();
            let (issuers, keys) = (view.signers().count(), view.keys().count());
            let mut writes = next.remove_all_issuers_and_keys(now);
            let mut warnings = Vec::new();
            if !writes.is_empty() {
                writes.push(next.set_keys_config(Default::default()));
                warnings.push(format!("deleted {issuers} issuers and {keys} keys of this mount"));
            }
            Ok((Planned { view: next, writes, crls: true }, warnings))
        })
        .await?;
    warnings.extend(crls);
    Ok(warnings)
}

/// Writes `config/issuers`: `default` (a reference; absent keeps it) and the follow flag.
///
/// # Errors
/// `Invalid` when the default names no issuer.
pub async fn write_issuers_config(authority: &Authority, fields: &Fields) -> Result<Vec<String>> {
    let fields = fields.clone();
    let now = authority.tools().clock.now().unix_timestamp();
    let (mut warnings, crls) = authority
        .change_and_crls(move |view| {
            let mut config = view.issuers_config.value.clone();
            let mut warnings = Vec::new();
            if let Some(reference) = fields.text("default")? {
                let signer = named(&reference, "issuer", |r| view.signer(r))?;
                config.default = signer.issuer.record.id.clone();
                if signer.key.is_none() {
                    warnings.push("the default issuer has no private key in this mount".to_owned());
                }
            }
            config.default_follows_latest_issuer =
                fields.bool("default_follows_latest_issuer")?.unwrap_or(config.default_follows_latest_issuer);
            let crls = config.default != view.issuers_config.value.default;
            if crls {
                config.changed_at = now;
            }
            let mut next = view.clone();
            let writes = vec![next.set_issuers_config(config)];
            Ok((Planned { view: next, writes, crls }, warnings))
        })
        .await?;
    warnings.extend(crls);
    Ok(warnings)
}

/// Writes `config/keys`: `default` (a reference).
///
/// # Errors
/// `Invalid` when the default names no key.
pub async fn write_keys_config(authority: &Authority, fields: &Fields) -> Result<()> {
    let reference = fields.text("default")?;
    authority
        .change(move |view| {
            let mut config = view.keys_config.value.clone();
            if let Some(reference) = &reference {
                config.default = named(reference, "key", |r| view.key(r))?.id.clone();
            }
            let mut next = view.clone();
            let writes = vec![next.set_keys_config(config)];
            Ok((planned(next, writes), ()))
        })
        .await
}

/// What a new default names; neither nothing nor the word `default` itself.
fn named<'a, T>(reference: &str, what: &str, find: impl FnOnce(&str) -> Option<&'a T>) -> Result<&'a T> {
    if reference.is_empty() || reference.eq_ignore_ascii_case("default") {
        return Err(Error::invalid(format!("default: must be the id or name of one {what}")));
    }
    find(reference).ok_or_else(|| Error::invalid(format!("default: names no {what} of this mount")))
}

/// Renames a key; an empty name clears it. Gives the key's id.
///
/// # Errors
/// `NotFound` for an unknown key; `Invalid` when the name is taken.
pub async fn rename_key(authority: &Authority, reference: &str, name: &str) -> Result<String> {
    let (reference, name) = (reference.to_owned(), name.to_owned());
    authority
        .change(move |view| {
            let key = view.key(&reference).ok_or_else(Error::not_found)?;
            let id = key.id.clone();
            let renamed =
                Key { id: id.clone(), name: name.clone(), version: key.version, private: key.private.clone() };
            let mut next = view.clone();
            let writes = vec![next.put_key(renamed)?];
            Ok((planned(next, writes), id))
        })
        .await
}

/// Deletes a key that no issuer uses. Gives warnings; nothing happens when there is none.
///
/// # Errors
/// `Invalid` naming the issuers that use it.
pub async fn delete_key(authority: &Authority, reference: &str) -> Result<Vec<String>> {
    let reference = reference.to_owned();
    authority
        .change(move |view| {
            let mut next = view.clone();
            let Some(key) = view.key(&reference) else { return Ok((planned(next, Vec::new()), Vec::new())) };
            let users: Vec<&str> = view
                .signers()
                .filter(|s| s.issuer.record.key_id == key.id)
                .map(|s| s.issuer.record.id.as_str())
                .collect();
            if !users.is_empty() {
                return Err(Error::invalid(format!("key_ref: the key is in use by issuers {}", users.join(", "))));
            }
            let mut warnings = Vec::new();
            let mut writes: Vec<PkiWrite> = next.remove_key(&key.id).into_iter().collect();
            if view.is_default_key(&key.id) {
                writes.push(next.set_keys_config(Default::default()));
                warnings.push("the deleted key was the default: this mount has no default key now".to_owned());
            }
            Ok((planned(next, writes), warnings))
        })
        .await
}

/// Writes `config/urls`; lists that are absent stay. Gives warnings.
///
/// # Errors
/// `Invalid` naming the list and the rule.
pub async fn write_urls(authority: &Authority, fields: &Fields) -> Result<Vec<String>> {
    let fields = fields.clone();
    authority
        .change(move |view| {
            let urls = view.urls.value.merged(&fields, "enable_templating")?;
            let mut next = view.clone();
            let writes = vec![next.set_urls(urls)];
            let warnings = unresolved(&next);
            Ok((planned(next, writes), warnings))
        })
        .await
}

/// Writes `config/cluster`; addresses that are absent stay. Gives warnings.
///
/// # Errors
/// `Invalid` naming the field and the rule.
pub async fn write_cluster(authority: &Authority, fields: &Fields) -> Result<Vec<String>> {
    let fields = fields.clone();
    authority
        .change(move |view| {
            let cluster = view.cluster.value.merged(&fields)?;
            let mut next = view.clone();
            let writes = vec![next.set_cluster(cluster)];
            let warnings = unresolved(&next);
            Ok((planned(next, writes), warnings))
        })
        .await
}

/// Writes `config/crl`; settings that are absent stay. A switch that changes what lists hold builds them
/// anew before the answer. Gives warnings.
///
/// # Errors
/// `Invalid` naming the field and the rule.
pub async fn write_crl_config(authority: &Authority, fields: &Fields) -> Result<Vec<String>> {
    let fields = fields.clone();
    let ((), warnings) = authority
        .change_and_crls(move |view| {
            let old = &view.crl_config.value;
            let config = old.merged(&fields)?;
            let crls = config.disable != old.disable
                || config.enable_delta != old.enable_delta
                || (old.auto_rebuild && !config.auto_rebuild);
            let mut next = view.clone();
            let writes = vec![next.set_crl_config(config)];
            Ok((Planned { view: next, writes, crls }, ()))
        })
        .await?;
    Ok(warnings)
}

/// Warns of URLs with addresses of the mount that are not configured, once there is an issuer to use them.
fn unresolved(view: &View) -> Vec<String> {
    let missing = view.global_urls().unresolved() && view.signers().next().is_some();
    missing
        .then(|| "cluster config missing: issuing fails while the URLs name its paths".to_owned())
        .into_iter()
        .collect()
}
