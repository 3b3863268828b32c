//! The certificate authorities: a root and an intermediate, each in its own mount, the URLs in their certificates, and
//! the roles.
//!
//! The root signs only intermediates, so clients that request certificates need no rights in its mount. The maximum
//! lifetime of certificates in a mount equals the lifetime of its CA certificate, so that no requested lifetime is
//! silently shortened.

use std::path::Path;
use std::time::Duration;

use crate::auth::mounts::MountKind;
use crate::config::{Config, TlsRenewal};
use crate::error::{Error, Kind, Result};
use crate::x509::pem;
use serde_json::{Value, json};

use super::admin;
use super::api::SetupApi;
use super::files::{self, FileContent, write_new};
use super::plan::SetupPlan;
use super::step_output::print_step;
use crate::cli::certify::PemCertificate;
use crate::cli::client::texts_in;

const LISTENER_TTL: Duration = Duration::from_secs(720 * 3600);

/// Checks, before anything is changed, that the role exists or can be created, and that existing files of an earlier
/// setup belong to this store.
///
/// # Errors
/// `Invalid`, with the flag that is missing; `Conflict`, with the file that does not belong to this store.
pub(super) async fn check(api: &SetupApi, config: &Config, plan: &SetupPlan) -> Result<()> {
    let has_authority = api.shared().auth.mounts().iter().any(|mount| mount.kind == MountKind::Pki);
    for file in files::existing_setup_files(plan).into_iter().filter(|_| !has_authority) {
        if file != plan.admin_token_file || !admin::is_live_token(api, file).await? {
            return Err(files::missing_store_error(file, "there is no authority", config));
        }
    }
    let roles =
        if api.is_mounted(&plan.mount).await? { api.list(&format!("{}/roles", plan.mount)).await? } else { Vec::new() };
    if roles.contains(&plan.role) {
        return Ok(());
    }
    let others: Vec<&str> = roles
        .iter()
        .map(String::as_str)
        .filter(|role| config.tls_renewal.as_ref().is_none_or(|own| own.role != *role))
        .collect();
    if !plan.domains.is_empty() || others.is_empty() {
        return plan.domains().map(drop);
    }
    // The mount has other roles, and no `--domain` requests a new one. A repeated setup without the `--role` of the
    // first run must not create a second role.
    Err(Error::invalid(format!(
        "--role: {} has no role {}; it has {}: specify one of them (--role {}), or the domains of a new role \
         (--domain)",
        plan.mount,
        plan.role,
        others.join(", "),
        others[0]
    )))
}

/// Creates the root, the intermediate and their URLs, as far as they do not exist. Returns `true` if the intermediate
/// can issue certificates now, and `false` if an outside authority must still sign its certificate.
pub(super) async fn ensure_authority(api: &SetupApi, plan: &SetupPlan) -> Result<bool> {
    let begun = has_keys(api, &plan.mount).await? || has_issuer(api, &plan.mount).await?;
    let outside = plan.outside_csr_file.is_some() || plan.signed_file.is_some();
    // An intermediate key without a root mount shows that an earlier run created a request for an outside authority.
    // Continue with that.
    let outside = outside || (begun && !api.is_mounted(&plan.root_mount).await?);
    if !outside {
        ensure_root(api, plan).await?;
    }
    ensure_mount(api, &plan.mount, plan.intermediate_ttl, "certificates").await?;
    if has_issuer(api, &plan.mount).await? {
        print_step("kept", &format!("the issuer in {}", plan.mount))?;
        if let Some(file) = &plan.signed_file {
            complete_chain(api, plan, file).await?;
        }
        ensure_urls(api, plan, &plan.mount).await?;
        return write_root(api, plan).await.map(|()| true);
    }
    let issues = match (&plan.signed_file, outside) {
        (Some(file), _) => {
            import_signed(api, plan, &read_signed_file(file)?).await?;
            true
        }
        (None, true) => {
            write_csr(api, plan).await?;
            false
        }
        (None, false) => {
            create_intermediate(api, plan).await?;
            true
        }
    };
    if issues {
        ensure_urls(api, plan, &plan.mount).await?;
        write_root(api, plan).await?;
    }
    Ok(issues)
}

async fn has_issuer(api: &SetupApi, mount: &str) -> Result<bool> {
    if !api.is_mounted(mount).await? {
        return Ok(false);
    }
    let config = api.get(&format!("{mount}/config/issuers")).await?.unwrap_or_default();
    Ok(config["data"]["default"].as_str().is_some_and(|id| !id.is_empty()))
}

async fn has_keys(api: &SetupApi, mount: &str) -> Result<bool> {
    Ok(api.is_mounted(mount).await? && !api.list(&format!("{mount}/keys")).await?.is_empty())
}

async fn ensure_mount(api: &SetupApi, path: &str, max_ttl: Duration, description: &str) -> Result<()> {
    if let Some(found) = api.get("sys/mounts").await?.as_ref().map(|all| &all["data"][format!("{path}/")])
        && found.is_object()
    {
        if found["type"] != "pki" {
            return Err(Error::invalid(format!(
                "{path}: is already a mount of another type; choose another path with --mount or --root-mount"
            )));
        }
        return print_step("kept", &format!("the mount {path}"));
    }
    let wanted = json!({ "type": "pki", "description": description, "config": { "max_lease_ttl": max_ttl.as_secs() } });
    api.post(&format!("sys/mounts/{path}"), wanted).await?;
    print_step("made", &format!("the mount {path} ({description})"))
}

async fn ensure_root(api: &SetupApi, plan: &SetupPlan) -> Result<()> {
    let path = &plan.root_mount;
    ensure_mount(api, path, plan.root_ttl, "the root").await?;
    if has_issuer(api, path).await? {
        return print_step("kept", &format!("the root in {path}"));
    }
    let wanted = json!({
        "common_name": plan.name_of("Root CA"),
        "issuer_name": "root",
        "ttl": plan.root_ttl.as_secs(),
        "key_type": plan.keys.kind,
        "key_bits": plan.keys.root_bits,
    });
    let root = api.post(&format!("{path}/root/generate/internal"), with_organization(plan, wanted)).await?;
    ensure_urls(api, plan, path).await?;
    print_step(
        "made",
        &format!("{}, serial number {}", plan.name_of("Root CA"), response_text(&root, "serial_number")?),
    )
}

fn with_organization(plan: &SetupPlan, mut request: Value) -> Value {
    if !plan.organization.is_empty() {
        request["organization"] = plan.organization.as_str().into();
    }
    request
}

/// Creates a certification request for the intermediate, with the key in the mount or else a new one. The request
/// contains the extensions of a CA certificate, so that an outside authority can copy them.
async fn create_csr(api: &SetupApi, plan: &SetupPlan) -> Result<String> {
    let path = &plan.mount;
    let contents = json!({
        "common_name": plan.name_of("Issuing CA"),
        "add_basic_constraints": true,
        "key_usage": "CertSign,CRLSign",
    });
    let mut wanted = with_organization(plan, contents);
    let response = if has_keys(api, path).await? {
        api.post(&format!("{path}/issuers/generate/intermediate/existing"), wanted).await?
    } else {
        wanted["key_type"] = plan.keys.kind.into();
        wanted["key_bits"] = plan.keys.intermediate_bits.into();
        api.post(&format!("{path}/issuers/generate/intermediate/internal"), wanted).await?
    };
    Ok(response_text(&response, "csr")?.to_owned())
}

async fn create_intermediate(api: &SetupApi, plan: &SetupPlan) -> Result<()> {
    let csr = create_csr(api, plan).await?;
    let wanted = with_organization(
        plan,
        json!({
            "csr": csr,
            "common_name": plan.name_of("Issuing CA"),
            "ttl": plan.intermediate_ttl.as_secs(),
            "max_path_length": 0,
        }),
    );
    let signed = api.post(&format!("{}/root/sign-intermediate", plan.root_mount), wanted).await?;
    let own = response_text(&signed, "certificate")?;
    let above: Vec<&str> = texts_in(&signed["data"]["ca_chain"]).filter(|pem| pem.trim() != own.trim()).collect();
    import_signed(api, plan, &[&[own][..], &above].concat().join("\n")).await
}

/// Imports the certificates in `pem` and makes the one for the mount's key the default issuer. If none of them is for
/// that key, removes all of them again and fails.
async fn import_signed(api: &SetupApi, plan: &SetupPlan, pem: &str) -> Result<()> {
    let path = &plan.mount;
    let imported = api.post(&format!("{path}/intermediate/set-signed"), json!({ "certificate": pem })).await?;
    let imported = &imported["data"];
    let mut mapping = imported["mapping"].as_object().into_iter().flatten();
    let issuer_with_key = mapping.find(|(_, key)| key.as_str().is_some_and(|key| !key.is_empty()));
    let Some((issuer, _)) = issuer_with_key else {
        remove_issuers(api, path, imported).await?;
        return Err(Error::invalid(format!(
            "--signed: holds no certificate of the key in {path}: have the certification request {} signed",
            plan.csr_file().display()
        )));
    };
    api.post(&format!("{path}/config/issuers"), json!({ "default": issuer })).await?;
    api.post(&format!("{path}/issuer/{issuer}"), json!({ "issuer_name": "intermediate" })).await?;
    // The subject is read from the certificate, because an outside authority may have changed the requested name.
    let named = api.get(&format!("{path}/issuer/{issuer}")).await?.unwrap_or_default();
    let subject = PemCertificate::read(response_text(&named, "certificate")?)?.certificate.subject().display();
    print_step("made", &format!("{subject} (the issuer in {path})"))
}

/// Imports the CA certificates above the issuer from `file`, if the issuer's chain does not end with a root yet. If the
/// chain then still does not, removes them again and fails.
async fn complete_chain(api: &SetupApi, plan: &SetupPlan, file: &Path) -> Result<()> {
    let path = &plan.mount;
    if chain_end(api, plan).await?.is_root() {
        return print_step("kept", &format!("the chain of the issuer: {} is not needed", file.display()));
    }
    let imported =
        api.post(&format!("{path}/issuers/import/cert"), json!({ "pem_bundle": read_signed_file(file)? })).await?;
    let top = chain_end(api, plan).await?;
    if !top.is_root() {
        remove_issuers(api, path, &imported["data"]).await?;
        let above = top.certificate.issuer().display();
        return Err(Error::invalid(format!(
            "--signed: {}: must hold the certificates above the issuer, {above}",
            file.display()
        )));
    }
    print_step("made", &format!("the chain of the issuer, up to {}", top.certificate.subject().display()))
}

fn read_signed_file(file: &Path) -> Result<String> {
    std::fs::read_to_string(file).map_err(|e| Error::of_file("--signed", file, "read", e))
}

async fn remove_issuers(api: &SetupApi, path: &str, imported: &Value) -> Result<()> {
    for issuer in texts_in(&imported["imported_issuers"]) {
        api.delete(&format!("{path}/issuer/{issuer}")).await?;
    }
    Ok(())
}

async fn chain_end(api: &SetupApi, plan: &SetupPlan) -> Result<PemCertificate> {
    let issuer = api.get(&format!("{}/issuer/default", plan.mount)).await?.unwrap_or_default();
    let mut chain = texts_in(&issuer["data"]["ca_chain"]);
    PemCertificate::read(chain.next_back().ok_or_else(|| Error::internal("the issuer has no chain"))?)
}

/// Creates the certification request for an outside authority and writes it to its file. An existing file is kept.
async fn write_csr(api: &SetupApi, plan: &SetupPlan) -> Result<()> {
    let file = plan.csr_file();
    if file.exists() {
        return print_step("kept", &format!("{} (the request waits for an outside authority)", file.display()));
    }
    let csr = create_csr(api, plan).await?;
    write_new(&file, format!("{}\n", csr.trim_end()).as_bytes(), FileContent::Public)?;
    print_step("made", &format!("{} (a request for an outside authority)", file.display()))
}

async fn ensure_urls(api: &SetupApi, plan: &SetupPlan, mount: &str) -> Result<()> {
    let Some(base) = &plan.public_url else { return Ok(()) };
    let config = api.get(&format!("{mount}/config/urls")).await?.unwrap_or_default();
    let members = ["issuing_certificates", "crl_distribution_points", "ocsp_servers"];
    let is_set = |member: &&str| config["data"][*member].as_array().is_some_and(|urls| !urls.is_empty());
    if members.iter().any(is_set) {
        return print_step("kept", &format!("the URLs of {mount}"));
    }
    let own = format!("{base}/v1/{mount}");
    api.post(&format!("{mount}/config/cluster"), json!({ "path": own, "aia_path": own })).await?;
    let addresses = json!({
        "enable_templating": true,
        "issuing_certificates": ["{{cluster_aia_path}}/issuer/{{issuer_id}}/der"],
        "crl_distribution_points": ["{{cluster_aia_path}}/issuer/{{issuer_id}}/crl/der"],
        "ocsp_servers": ["{{cluster_aia_path}}/ocsp"],
    });
    api.post(&format!("{mount}/config/urls"), addresses).await?;
    print_step("made", &format!("the URLs of {mount}, below {own}"))
}

/// Writes the root certificate of the issuer's chain, which clients must trust, to `plan.root_file`. Writes nothing if
/// the chain does not end with a root.
async fn write_root(api: &SetupApi, plan: &SetupPlan) -> Result<()> {
    let file = plan.root_file.display();
    let top = chain_end(api, plan).await?;
    if files::exists_and_is_not_empty(&plan.root_file) {
        if top.is_root() && !contains_certificate(&plan.root_file, &top)? {
            let root = top.certificate.subject().display();
            let text = format!(
                "{file}: does not contain the root of the issuer in {}, {root}, which clients must trust; move the \
                 file away and run the setup again",
                plan.mount
            );
            return Err(Error::new(Kind::Conflict, text));
        }
        return print_step("kept", &format!("{file} (the root certificate for clients)"));
    }
    if !top.is_root() {
        let above = top.certificate.issuer().display();
        let step = "continue with --signed FILE, which also holds the certificates above the issuer";
        return print_step(
            "left",
            &format!("{file} (the root certificate for clients): the root is not known, {above}: {step}"),
        );
    }
    write_new(&plan.root_file, top.text.as_bytes(), FileContent::Public)?;
    print_step("made", &format!("{file} (the root certificate for clients)"))
}

fn contains_certificate(file: &Path, wanted: &PemCertificate) -> Result<bool> {
    let text = std::fs::read_to_string(file).map_err(|e| Error::of_io(file.display(), "read", e))?;
    let wanted = pem::parse_first_block(&wanted.text)?.map(|(_, der)| der);
    Ok(pem::parse_blocks(&text).unwrap_or_default().into_iter().any(|(_, der)| Some(der) == wanted))
}

pub(super) async fn ensure_roles(api: &SetupApi, plan: &SetupPlan, listener: Option<&TlsRenewal>) -> Result<()> {
    let path = format!("{}/roles/{}", plan.mount, plan.role);
    if api.get(&path).await?.is_some() {
        print_step("kept", &format!("the role {}", plan.role))?;
    } else {
        let own = json!({
            "allowed_domains": plan.domains()?,
            "allow_bare_domains": true,
            "allow_subdomains": true,
            // If one of the next two settings were `true`, clients of this role could get a certificate for `localhost`
            // or for any IP address, including those of this server.
            "allow_localhost": false,
            "allow_ip_sans": false,
            "key_type": "ec",
            "key_bits": 256,
            "ttl": plan.role_ttl.as_secs(),
            "max_ttl": plan.role_ttl.as_secs() * 3,
        });
        api.post(&path, own).await?;
        print_step("made", &format!("the role {} for {} and below", plan.role, plan.domains.join(", ")))?;
    }
    let Some(renewal) = listener.filter(|renewal| renewal.mount == plan.mount) else { return Ok(()) };
    let own = json!({
        "allowed_domains": renewal.hosts,
        "allow_bare_domains": true,
        "allow_localhost": renewal.hosts.iter().any(|name| name == "localhost"),
        "allow_ip_sans": !renewal.addresses.is_empty(),
        "require_cn": false,
        "client_flag": false,
        "key_type": "ec",
        "key_bits": 256,
        "ttl": LISTENER_TTL.min(plan.intermediate_ttl / 2).as_secs(),
    });
    let path = format!("{}/roles/{}", plan.mount, renewal.role);
    if api.get(&path).await?.is_some() {
        return print_step("kept", &format!("the role {}", renewal.role));
    }
    api.post(&path, own).await?;
    print_step("made", &format!("the role {} for this server's listener", renewal.role))
}

/// Returns an example of a DNS name that the role allows, or `NAME` if none can be derived from its domains.
pub(super) async fn example_name(api: &SetupApi, plan: &SetupPlan) -> Result<String> {
    let role = api.get(&format!("{}/roles/{}", plan.mount, plan.role)).await?.unwrap_or_default();
    let role = &role["data"];
    let mut domains = texts_in(&role["allowed_domains"]);
    // Domains with patterns or templates are skipped, because they are not DNS names.
    let domain = domains.find(|domain| !domain.contains(['*', '{']));
    let is_bare_allowed = role["allow_bare_domains"] == true;
    Ok(match domain {
        Some(domain) if is_bare_allowed && domain.starts_with("www.") => domain.to_owned(),
        Some(domain) if role["allow_subdomains"] == true => format!("www.{domain}"),
        Some(domain) if is_bare_allowed => domain.to_owned(),
        _ => "NAME".to_owned(),
    })
}

fn response_text<'a>(answer: &'a Value, member: &str) -> Result<&'a str> {
    answer["data"][member].as_str().ok_or_else(|| Error::internal(format!("the response has no {member}")))
}
