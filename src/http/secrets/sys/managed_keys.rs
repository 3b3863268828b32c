//! Managed keys (`sys/managed-keys`): write, read, list, test, delete.
//!
//! Parameters that all types share are read here, those of cloud services in `cloud`, and those of PKCS #11 devices in
//! `pkcs11`. To add a type, add its fields to `TYPE_FIELDS` and its arms to the matches below.

mod cloud;
mod pkcs11;
mod write_body;

use futures_util::future::LocalBoxFuture;
use serde_json::{Value, json};

use self::write_body::ManagedKeyWriteBody;
use super::super::handler_response::{HandlerResponse, ResponseBody};
use super::super::page::PageParams;
use super::super::route::{Call, ExistenceQuery, concat_fields};
use super::super::warnings::warn_unknown_fields;
use super::run_detached;
use crate::auth::policy::{Spelling, lower};
use crate::error::{Error, Result};
use crate::fields::{Fields, ListLimit, MAX_NAME_LEN, Resource};
use crate::keys::managed::{BackendConfig, BackendType, KeyPermissions, ManagedKeyRecord, ManagedKeyUsages};
use crate::keys::pkcs11::Pkcs11Settings;
use crate::keys::{CloudAkmsConfig, CloudBkeyvaultConfig, CloudCkmsConfig, TestHash, TestSign};

/// Parameters that all types of managed keys have.
const SHARED_FIELDS: &[&str] = &concat_fields::<8>(&[&["UUID", "type", "name"], KeyPermissions::FIELDS]);

/// Parameters that only some types of managed keys have.
const TYPE_FIELDS: &[&str] = &concat_fields::<31>(&[
    Pkcs11Settings::FIELDS,
    CloudAkmsConfig::FIELDS,
    CloudBkeyvaultConfig::FIELDS,
    CloudCkmsConfig::FIELDS,
]);

pub(super) const FIELDS: &[&str] = &concat_fields::<39>(&[SHARED_FIELDS, TYPE_FIELDS]);

pub(super) const TEST_SIGN_FIELDS: &[&str] = &["use_pss", "hash_algorithm"];

/// Limits on the list of allowed usages.
const USAGE_LIST_LIMIT: ListLimit = ListLimit::new(16, 64).rejecting_only_empty();

pub(super) async fn list(call: Call) -> Result<HandlerResponse> {
    let names = call.state.managed_keys.names(backend_type(&call)?);
    let names = PageParams::of(&call.fields)?.take_page(names.iter().map(String::as_str));
    if names.is_empty() {
        return Err(Error::not_found());
    }
    Ok(ResponseBody::DataAndTop(json!({ "keys": names })).into())
}

pub(super) async fn read(call: Call) -> Result<HandlerResponse> {
    let record = call.state.managed_keys.read(backend_type(&call)?, key_name(&call)).ok_or_else(Error::not_found)?;
    Ok(HandlerResponse::data(call.dialect.convert_managed_key(to_json(&record))))
}

pub(super) fn exists(named: ExistenceQuery<'_>) -> LocalBoxFuture<'_, Result<bool>> {
    let kind = BackendType::parse(named.param("backend"));
    let exists = kind.is_ok_and(|kind| named.state.managed_keys.read(kind, named.param("managed_key")).is_some());
    Box::pin(std::future::ready(Ok(exists)))
}

/// `POST sys/managed-keys/:type/:name`: creates a key, or merges the request into the stored key.
pub(super) async fn write(mut call: Call) -> Result<HandlerResponse> {
    let kind = backend_type(&call)?;
    let fields = std::mem::take(&mut call.fields);
    check_against_path(&call, &fields)?;
    let own = TypeFields::of(kind);
    let foreign = fields.iter().map(|(name, _)| name);
    let foreign = foreign.filter(|name| TYPE_FIELDS.contains(name) && !own.all.contains(name));
    let mut warnings = warn_unknown_fields(foreign, own.all);
    if call.was_normalized {
        warnings.add(format!("the key name was changed to {:?}: names are in lower case", key_name(&call)));
    }
    let mut fields = fields;
    call.dialect.remove_unset_max_parallel(&mut fields);
    let sent = ManagedKeyWriteBody::new(fields, own.secrets)?;
    run_detached(async move {
        let change = |stored: Option<&ManagedKeyRecord>| merge_write(kind, &sent, stored);
        let record = call.state.managed_keys.write(kind, key_name(&call), change).await?;
        if record.terms.allow_generate_key {
            warnings.add("disable allow_generate_key after initial creation".to_owned());
        }
        warnings.extend(match &record.backend {
            BackendConfig::Pkcs11(settings) => pkcs11::unsupported_mechanism_warning(settings),
            BackendConfig::CloudAkms(_) | BackendConfig::CloudBKeyVault(_) | BackendConfig::CloudCkms(_) => None,
        });
        Ok(warnings)
    })
    .await
}

/// `DELETE sys/managed-keys/:type/:name`; also succeeds if the key does not exist.
pub(super) async fn delete(call: Call) -> Result<HandlerResponse> {
    let kind = backend_type(&call)?;
    run_detached(async move { call.state.managed_keys.delete(kind, key_name(&call)).await }).await
}

pub(super) async fn test_sign(call: Call) -> Result<HandlerResponse> {
    let kind = backend_type(&call)?;
    let hash = call.fields.text("hash_algorithm")?.map(|word| TestHash::parse(&word)).transpose()?;
    let test = TestSign { hash, use_pss: call.fields.bool("use_pss")? };
    let in_use = call.state.mounts.keys_in_use(kind, key_name(&call));
    let candidates = call.state.mounts.candidate_keys(kind, key_name(&call));
    call.state.managed_keys.offer_candidates(kind, key_name(&call), &candidates);
    call.state.managed_keys.test_sign(kind, key_name(&call), test, &in_use).await.map(HandlerResponse::from)
}

fn backend_type(call: &Call) -> Result<BackendType> {
    if call.used_alias && !call.state.settings.compat {
        return Err(Error::invalid("unknown managed key type: type names of other servers need the setting compat"));
    }
    BackendType::parse(call.param("backend"))
}

/// Returns the name of the key in the path, which is in lower case after normalization.
fn key_name(call: &Call) -> &str {
    call.param("managed_key")
}

/// Rejects a type or name in the body that differs from the path.
fn check_against_path(call: &Call, fields: &Fields) -> Result<()> {
    for (field, of_path, spelling) in
        [("type", call.param("backend"), Spelling::KeyBackend), ("name", key_name(call), Spelling::KeyName)]
    {
        if fields.text(field)?.is_some_and(|given| *spelling.canonical(&lower(&given)) != *of_path) {
            return Err(Error::invalid(format!("{field}: must be {of_path:?}, as in the path")));
        }
    }
    Ok(())
}

/// The names of all fields that one type of managed keys has, and the names of those that are secret.
struct TypeFields {
    all: &'static [&'static str],
    secrets: Vec<&'static str>,
}

impl TypeFields {
    fn of(kind: BackendType) -> Self {
        match kind {
            BackendType::Pkcs11 => Self::of_resource::<Pkcs11Settings>(),
            BackendType::CloudAkms => Self::of_resource::<CloudAkmsConfig>(),
            BackendType::CloudBKeyVault => Self::of_resource::<CloudBkeyvaultConfig>(),
            BackendType::CloudCkms => Self::of_resource::<CloudCkmsConfig>(),
        }
    }

    fn of_resource<R: Resource>() -> Self {
        Self { all: R::FIELDS, secrets: R::SECRETS.iter().map(|slot| slot.name).collect() }
    }
}

/// Merges a request into the stored configuration of a managed key.
fn merge_write(
    kind: BackendType,
    sent: &ManagedKeyWriteBody,
    stored: Option<&ManagedKeyRecord>,
) -> Result<(KeyPermissions, BackendConfig)> {
    check_uuid(sent, stored)?;
    let terms = merge_terms(sent, stored)?;
    // If the stored key has another type, it is ignored here; the registry then rejects the write.
    let stored = stored.map(|record| &record.backend);
    macro_rules! merged {
        ($backend:ident, $members:ident) => {{
            let own = if let Some(BackendConfig::$backend(own)) = stored { Some(own) } else { None };
            BackendConfig::$backend($members::read(sent, own)?)
        }};
    }
    let backend = match kind {
        BackendType::Pkcs11 => merged!(Pkcs11, pkcs11),
        BackendType::CloudAkms => merged!(CloudAkms, cloud),
        BackendType::CloudBKeyVault => merged!(CloudBKeyVault, cloud),
        BackendType::CloudCkms => merged!(CloudCkms, cloud),
    };
    Ok((terms, backend))
}

/// Rejects a UUID in the request unless it is the UUID of the stored key, because the server assigns UUIDs.
fn check_uuid(sent: &ManagedKeyWriteBody, stored: Option<&ManagedKeyRecord>) -> Result<()> {
    match (sent.fields().text_within("UUID", MAX_NAME_LEN)?, stored) {
        (Some(given), Some(record)) if given != record.uuid => {
            Err(Error::invalid("UUID: is assigned by the server and cannot be changed"))
        }
        (Some(given), None) if !given.is_empty() => {
            Err(Error::invalid("UUID: is assigned by the server; a new key must be written without it"))
        }
        _ => Ok(()),
    }
}

fn merge_terms(sent: &ManagedKeyWriteBody, stored: Option<&ManagedKeyRecord>) -> Result<KeyPermissions> {
    let mut terms = stored.map(|record| record.terms.clone()).unwrap_or_default();
    let before = terms.clone();
    terms.merge_flags(sent.fields())?;
    for (name, is_new, operation) in [
        (
            "allow_replace_key",
            terms.allow_replace_key && !before.allow_replace_key,
            "replaces a key that is in the backend",
        ),
        ("allow_store_key", terms.allow_store_key && !before.allow_store_key, "copies a private key into the backend"),
    ] {
        if is_new {
            return Err(Error::invalid(format!("{name}: must be false: this server never {operation}")));
        }
    }
    if let Some(words) = sent.fields().list_within("usages", USAGE_LIST_LIMIT)? {
        terms.usages = ManagedKeyUsages::parse(words.iter().map(String::as_str))?;
    }
    Ok(terms)
}

fn to_json(record: &ManagedKeyRecord) -> Value {
    let shared = [
        ("UUID", json!(record.uuid)),
        ("name", json!(record.name)),
        ("type", json!(record.kind().name())),
        ("usages", json!(record.terms.usages.names().collect::<Vec<_>>())),
    ];
    let mut members = match &record.backend {
        BackendConfig::Pkcs11(settings) => pkcs11::to_json(settings),
        BackendConfig::CloudAkms(config) => cloud::to_json(config),
        BackendConfig::CloudBKeyVault(config) => cloud::to_json(config),
        BackendConfig::CloudCkms(config) => cloud::to_json(config),
    };
    members.extend(record.terms.to_members());
    members.extend(shared.map(|(name, value)| (name.to_owned(), value)));
    Value::Object(members)
}
