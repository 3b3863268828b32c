//! Changes of a mount's roles, issuers, keys and settings. Each function plans one atomic change of the current
//! [`MountView`].
//!
//! The caller passes a `merge` function that derives the new value from the current one. If another node commits first,
//! `merge` is called again with the newer value.

mod issuer;

pub use self::issuer::{CurrentIssuer, IssuerSettings, ManualChain, write_issuer};
use crate::clock::{Time, format_rfc3339};
use crate::error::{Error, Result, Warnings};
use crate::pki::actor::PlannedChange;
use crate::pki::check::role_feasibility;
use crate::pki::engine::Authority;
use crate::pki::mount::cluster::Cluster;
use crate::pki::mount::issuer::MountKey;
use crate::pki::mount::role::Role;
use crate::pki::mount::settings::crl::CrlConfig;
use crate::pki::mount::settings::external_policy;
use crate::pki::mount::urls::Urls;
use crate::pki::mount::view::MountView;
use crate::pki::store::PkiWrite;
use crate::x509::extension;

/// Creates or updates a role; returns the role as stored, with warnings. `merge` receives the existing role of that
/// name, if any.
///
/// # Errors
/// Those of `merge`; `Invalid` naming field and rule.
pub async fn write_role(
    authority: &Authority,
    name: &str,
    merge: impl Fn(Option<&Role>) -> Result<Role> + Send + 'static,
) -> Result<(Role, Warnings)> {
    let name = name.to_owned();
    let now = authority.deps().clock.now();
    authority
        .change(move |view| {
            let stored = view.role(&name).map(|entry| &**entry.role);
            let (role, mut warnings) = merge(stored)?.checked_after(stored)?;
            match view.signer(&role.issuer_ref) {
                Some(signer) => {
                    let begins = signer.issuer.certificate.not_before();
                    if let Some(problem) = not_before_problem(&role, begins) {
                        // If the role exists already, the problem is only a warning: the issuer may have changed after
                        // the role was written.
                        if stored.is_none() {
                            return Err(Error::invalid(problem));
                        }
                        warnings.add(problem);
                    }
                }
                None => {
                    warnings.add(format!("issuer_ref: {} is not an issuer of this mount at present", role.issuer_ref));
                }
            }
            let policies =
                || role.policy_identifiers.iter().filter_map(|policy| extension::parse_oid(policy.oid())).collect();
            let advice = view.signer(&role.issuer_ref).and_then(|signer| signer.policy_warning(policies));
            warnings.extend(advice);
            let mut next = view.clone();
            let writes = vec![next.put_role(&name, role.clone())?];
            // A role that cannot issue is stored with a warning, because `sign-verbatim` may still use it: that
            // endpoint uses fewer fields.
            let useless = next.role(&name).and_then(|entry| role_feasibility::check_role_feasible(entry, now).err());
            warnings.extend(useless.map(|error| error.text().to_owned()));
            Ok((PlannedChange { view: next, writes, rebuild_crls: false }, (role, warnings)))
        })
        .await
}

/// Returns the problem if the role has a fixed `not_before` that is earlier than `begins`, the issuer's notBefore in
/// epoch seconds.
fn not_before_problem(role: &Role, begins: i64) -> Option<String> {
    let fixed = role.not_before.as_ref().filter(|fixed| fixed.epoch_seconds() < begins)?;
    let begins = Time::from_unix_timestamp(begins).map(format_rfc3339).unwrap_or_default();
    Some(format!(
        "not_before: {} is before the issuer's not_before ({begins}): certificates must not be older than their CA",
        fixed.as_str()
    ))
}

/// Deletes a role, if it exists.
///
/// # Errors
/// `Unavailable` from storage.
pub async fn delete_role(authority: &Authority, name: &str) -> Result<()> {
    let name = name.to_owned();
    authority
        .change(move |view| {
            let mut next = view.clone();
            let writes = next.remove_role(&name).into_iter().collect();
            Ok((PlannedChange { view: next, writes, rebuild_crls: false }, ()))
        })
        .await
}

/// Deletes the issuer with this id or name, if it exists; its private key remains. Returns warnings.
///
/// # Errors
/// `Unavailable` from storage.
pub async fn delete_issuer(authority: &Authority, reference: &str) -> Result<Warnings> {
    let reference = reference.to_owned();
    let now = authority.deps().clock.now().unix_timestamp();
    let (mut warnings, crls) = authority
        .change_with_crl_warnings(move |view| {
            let mut next = view.clone();
            let Some(signer) = view.signer(&reference) else {
                return Ok((
                    PlannedChange { view: next, writes: Vec::new(), rebuild_crls: false },
                    Warnings::default(),
                ));
            };
            let record = &signer.issuer.record;
            let mut warnings = Warnings::default();
            let writes = next.remove_issuers(std::slice::from_ref(&record.id), now);
            if view.is_default_issuer(&record.id) {
                warnings.add("the deleted issuer was the default: this mount has no default issuer now");
            }
            let roles = [record.id.as_str(), record.name.as_str()].map(|r| view.roles_using(r, 10)).concat();
            if !roles.is_empty() {
                warnings.add(format!("roles still name the deleted issuer: {}", roles.join(", ")));
            }
            Ok((PlannedChange { view: next, writes, rebuild_crls: true }, warnings))
        })
        .await?;
    warnings.extend(crls);
    Ok(warnings)
}

/// Deletes every issuer and every private key of the mount; issued certificates, revocations and roles remain. Returns
/// warnings.
///
/// # Errors
/// `Unavailable` from storage.
pub async fn delete_all_issuers(authority: &Authority) -> Result<Warnings> {
    let now = authority.deps().clock.now().unix_timestamp();
    let (mut warnings, crls) = authority
        .change_with_crl_warnings(move |view| {
            let mut next = view.clone();
            let issuers = view.signers().count();
            let keys = view.keys().count();
            let mut writes = next.remove_all_issuers_and_keys(now);
            let mut warnings = Warnings::default();
            if !writes.is_empty() {
                writes.push(next.set_keys_config(Default::default()));
                warnings.add(format!("deleted {issuers} issuers and {keys} keys of this mount"));
            }
            Ok((PlannedChange { view: next, writes, rebuild_crls: true }, warnings))
        })
        .await?;
    warnings.extend(crls);
    Ok(warnings)
}

/// Writes `config/issuers`; fields that are `None` keep their value. Returns warnings.
///
/// # Errors
/// `Invalid` when no issuer has this id or name.
pub async fn write_issuers_config(
    authority: &Authority,
    default: Option<String>,
    follows_latest: Option<bool>,
) -> Result<Warnings> {
    let now = authority.deps().clock.now().unix_timestamp();
    let (mut warnings, crls) = authority
        .change_with_crl_warnings(move |view| {
            let mut config = view.issuers_config.value.clone();
            let mut warnings = Warnings::default();
            if let Some(reference) = &default {
                let signer = resolve_default(reference, "issuer", |r| view.signer(r))?;
                config.default = signer.issuer.record.id.clone();
                if signer.key.is_none() {
                    warnings.add("the default issuer has no private key in this mount");
                }
            }
            config.default_follows_latest_issuer = follows_latest.unwrap_or(config.default_follows_latest_issuer);
            let rebuild_crls = config.default != view.issuers_config.value.default;
            if rebuild_crls {
                config.changed_at = now;
            }
            let mut next = view.clone();
            let writes = vec![next.set_issuers_config(config)];
            Ok((PlannedChange { view: next, writes, rebuild_crls }, warnings))
        })
        .await?;
    warnings.extend(crls);
    Ok(warnings)
}

/// Writes `config/keys`; `None` keeps the current default key.
///
/// # Errors
/// `Invalid` when no key has this id or name.
pub async fn write_keys_config(authority: &Authority, default: Option<String>) -> Result<()> {
    authority
        .change(move |view| {
            let mut config = view.keys_config.value.clone();
            if let Some(reference) = &default {
                config.default = resolve_default(reference, "key", |r| view.key(r))?.id.clone();
            }
            let mut next = view.clone();
            let writes = vec![next.set_keys_config(config)];
            Ok((PlannedChange { view: next, writes, rebuild_crls: false }, ()))
        })
        .await
}

/// Finds the issuer or key with this reference (id or name), which becomes the new default. Rejects an empty reference
/// and the word `default`.
fn resolve_default<'a, T>(reference: &str, what: &str, find: impl FnOnce(&str) -> Option<&'a T>) -> Result<&'a T> {
    if reference.is_empty() || reference.eq_ignore_ascii_case("default") {
        return Err(Error::invalid(format!("default: must be the id or name of one {what}")));
    }
    find(reference).ok_or_else(|| Error::invalid(format!("default: no {what} of this mount has this id or name")))
}

/// Renames a key, or clears its name if `name` is empty; returns the key's id.
///
/// # Errors
/// `NotFound` for an unknown key; `Invalid` when the name is in use.
pub async fn rename_key(authority: &Authority, reference: &str, name: &str) -> Result<String> {
    let reference = reference.to_owned();
    let name = name.to_owned();
    authority
        .change(move |view| {
            let key = view.key(&reference).ok_or_else(Error::not_found)?;
            let id = key.id.clone();
            let renamed = MountKey { name: name.clone(), ..MountKey::clone(key) };
            let mut next = view.clone();
            let writes = vec![next.put_key(renamed)?];
            Ok((PlannedChange { view: next, writes, rebuild_crls: false }, id))
        })
        .await
}

/// Deletes a key, if it exists. Returns warnings.
///
/// # Errors
/// `Invalid` naming the issuers that use the key.
pub async fn delete_key(authority: &Authority, reference: &str) -> Result<Warnings> {
    let reference = reference.to_owned();
    authority
        .change(move |view| {
            let mut next = view.clone();
            let Some(key) = view.key(&reference) else {
                return Ok((
                    PlannedChange { view: next, writes: Vec::new(), rebuild_crls: false },
                    Warnings::default(),
                ));
            };
            let users: Vec<&str> = view
                .signers()
                .filter(|s| s.issuer.record.key_id == key.id)
                .map(|s| s.issuer.record.id.as_str())
                .collect();
            if !users.is_empty() {
                return Err(Error::invalid(format!("key_ref: the key is in use by issuers {}", users.join(", "))));
            }
            let mut warnings = Warnings::default();
            let mut writes: Vec<PkiWrite> = next.remove_key(&key.id).into_iter().collect();
            if view.is_default_key(&key.id) {
                writes.push(next.set_keys_config(Default::default()));
                warnings.add("the deleted key was the default: this mount has no default key now");
            }
            Ok((PlannedChange { view: next, writes, rebuild_crls: false }, warnings))
        })
        .await
}

/// Writes `config/urls`; returns warnings.
///
/// # Errors
/// Those of `merge`; `Invalid` naming the list of URLs and the rule.
pub async fn write_urls(
    authority: &Authority,
    merge: impl Fn(&Urls) -> Result<Urls> + Send + 'static,
) -> Result<Warnings> {
    authority
        .change(move |view| {
            let stored = &view.urls.value;
            let urls = merge(stored)?.checked_after(stored)?;
            let mut next = view.clone();
            let writes = vec![next.set_urls(urls)];
            let warnings = url_warnings(&next);
            Ok((PlannedChange { view: next, writes, rebuild_crls: false }, warnings))
        })
        .await
}

/// Writes `config/cluster`; returns warnings.
///
/// # Errors
/// Those of `merge`.
pub async fn write_cluster(
    authority: &Authority,
    merge: impl Fn(&Cluster) -> Result<Cluster> + Send + 'static,
) -> Result<Warnings> {
    authority
        .change(move |view| {
            let cluster = merge(&view.cluster.value)?;
            let mut next = view.clone();
            let writes = vec![next.set_cluster(cluster)];
            let warnings = url_warnings(&next);
            Ok((PlannedChange { view: next, writes, rebuild_crls: false }, warnings))
        })
        .await
}

/// Writes `config/crl`; returns warnings. Rebuilds the CRLs before it returns if the change affects their contents.
///
/// # Errors
/// Those of `merge`; `Invalid` naming the field and the rule.
pub async fn write_crl_config(
    authority: &Authority,
    merge: impl Fn(&CrlConfig) -> Result<CrlConfig> + Send + 'static,
) -> Result<Warnings> {
    authority
        .change_with_crl_warnings(move |view| {
            let old = &view.crl_config.value;
            let config = merge(old)?.checked()?;
            // A higher limit may permit a CRL that was too long before. Under a lower limit, the published CRL remains,
            // so nothing is rebuilt.
            let may_be_longer =
                old.max_crl_entries().is_some_and(|old| config.max_crl_entries().is_none_or(|max| max > old));
            let rebuild_crls = config.disable != old.disable
                || config.enable_delta != old.enable_delta
                || may_be_longer
                || (old.auto_rebuild && !config.auto_rebuild);
            let mut next = view.clone();
            let writes = vec![next.set_crl_config(config)];
            Ok((PlannedChange { view: next, writes, rebuild_crls }, ()))
        })
        .await
        .map(|((), warnings)| warnings)
}

/// Writes `config/external-policy`. Does not call the policy engine.
///
/// # Errors
/// Those of `merge`; `Invalid` naming the field and the rule.
pub async fn write_external_policy(
    authority: &Authority,
    merge: impl Fn(&external_policy::ExternalPolicyConfig) -> Result<external_policy::ExternalPolicyConfig> + Send + 'static,
) -> Result<()> {
    let now = authority.deps().clock.now();
    let egress_policy = authority.deps().egress_policy;
    authority
        .change(move |view| {
            let merged = merge(&view.external_policy.value)?;
            let config =
                external_policy::ExternalPolicyConfig { updated_at: now.unix_timestamp(), ..merged }.checked()?;
            if !config.external_service_url.is_empty() {
                egress_policy.validate_url("external_service_url", &config.external_service_url)?;
            }
            let mut next = view.clone();
            let writes = vec![next.set_external_policy(config)?];
            Ok((PlannedChange { view: next, writes, rebuild_crls: false }, ()))
        })
        .await
}

/// Returns warnings about URLs with placeholders that `config/cluster` does not fill, and about URLs that relying
/// parties may not support.
fn url_warnings(view: &MountView) -> Warnings {
    let urls = view.global_urls();
    let mut warnings: Warnings = urls.relying_party_warnings().into_iter().collect();
    if urls.has_unresolved_placeholders() && view.signers().next().is_some() {
        warnings.add("cluster config missing: no certificates can be issued, because the URLs use its paths");
    }
    warnings
}
