//! Issuers: `root`, `root/replace`, `issuers`, `issuer/:issuer_ref`, `config/issuers`.

use serde_json::{Map, Value, json};

use super::{PageParams, WriteMode, revoking, urls};
use crate::clock::{Time, format_rfc3339};
use crate::error::{Error, Result, Warnings};
use crate::fields::{Fields, ListFieldSlot, ListLimit, MAX_NAME_LEN, Resource as _};
use crate::http::secrets::handler_response::HandlerResponse;
use crate::http::secrets::route::{Call, concat_fields};
use crate::pki::Authority;
use crate::pki::ca::changes::{self, CurrentIssuer, IssuerSettings};
use crate::pki::mount::chains::MAX_CHAIN_LENGTH;
use crate::pki::mount::issuer::{Issuer, IssuerUsage, LeafNotAfterBehavior};
use crate::pki::mount::profile::certificate_pem;
use crate::pki::mount::signer::IssuerSigner;
use crate::pki::mount::urls::Urls;
use crate::pki::mount::view::MountView;
use crate::pki::revocation::revoke;
use crate::pki::values::Keyword as _;

/// Fields of a request that changes an issuer.
pub(crate) const FIELDS: &[&str] = &concat_fields::<10>(&[
    &["issuer_name", "manual_chain", "leaf_not_after_behavior", "usage", "revocation_signature_algorithm"],
    Urls::FIELDS,
    &[TEMPLATING_FIELD],
]);
/// Flag that enables templates in the URLs of the issuer itself.
const TEMPLATING_FIELD: &str = "enable_aia_url_templating";
/// Limits on `manual_chain`, the chain that an operator sets for an issuer.
const MANUAL_CHAIN_LIMIT: ListLimit = ListLimit::new(MAX_CHAIN_LENGTH, MAX_NAME_LEN);

pub(super) async fn replace_root(call: Call) -> Result<HandlerResponse> {
    let default = call.fields.text("default")?.unwrap_or_else(|| "next".to_owned());
    // No other field is read, because the permission to replace the default issuer must not allow other changes.
    write_default_issuer(&*call.authority().await?, Some(default), None).await
}

pub(super) async fn delete_all(call: Call) -> Result<HandlerResponse> {
    changes::delete_all_issuers(&*call.authority().await?).await.map(HandlerResponse::from)
}

pub(super) async fn list(call: Call) -> Result<HandlerResponse> {
    let view = call.authority().await?.view();
    let keys = PageParams::of(&call.fields)?.take_page(view.signers().map(|s| s.issuer.record.id.as_str()));
    let mut info = Map::new();
    for issuer in keys.iter().filter_map(|id| view.signer(id)).map(|s| &s.issuer) {
        info.insert(
            issuer.record.id.clone(),
            json!({
                "issuer_name": issuer.record.name,
                "is_default": view.is_default_issuer(&issuer.record.id),
                "serial_number": issuer.certificate.serial().to_string(),
                "key_id": issuer.record.key_id,
            }),
        );
    }
    HandlerResponse::keys(keys, Some(Value::Object(info)))
}

pub(super) async fn read(call: Call) -> Result<HandlerResponse> {
    let authority = call.authority().await?;
    let view = authority.view();
    let signer = view.signer(call.param("issuer_ref")).ok_or_else(Error::not_found)?;
    Ok(HandlerResponse::data(issuer_json(signer, authority.deps().clock.now())))
}

pub(super) async fn write(mut call: Call) -> Result<HandlerResponse> {
    let authority = call.authority().await?;
    let write = WriteMode::of(&call);
    let fields = std::mem::take(&mut call.fields);
    let merge = move |issuer: &CurrentIssuer<'_>| read_settings(&fields, write, issuer);
    let (id, warnings) = changes::write_issuer(&authority, call.param("issuer_ref"), merge).await?;
    render_changed_issuer(&authority, &id, warnings)
}

pub(super) async fn revoke(call: Call) -> Result<HandlerResponse> {
    let authority = call.authority().await?;
    let why = revoking::read_reason_and_date(&call.fields)?;
    let reference = call.param("issuer_ref");
    let (id, warnings) = revoke::revoke_issuer(&authority, reference, why, call.requester_record()).await?;
    render_changed_issuer(&authority, &id, warnings)
}

/// Renders an issuer after a change to it.
fn render_changed_issuer(authority: &Authority, id: &str, warnings: Warnings) -> Result<HandlerResponse> {
    let view = authority.view();
    let signer = view.signer(id).ok_or_else(Error::not_found)?;
    Ok(HandlerResponse::data(issuer_json(signer, authority.deps().clock.now())).with_warnings(warnings))
}

pub(super) async fn delete(call: Call) -> Result<HandlerResponse> {
    let warnings = changes::delete_issuer(&*call.authority().await?, call.param("issuer_ref")).await?;
    // The status is 200 with null data, even for an unknown issuer, as known clients expect.
    Ok(HandlerResponse::data(Value::Null).with_warnings(warnings))
}

/// Returns an issuer's certificate as PEM with a trailing newline.
pub(super) fn pem_with_newline(issuer: &Issuer) -> String {
    certificate_pem(issuer) + "\n"
}

/// Returns the certificates of the chain served at `now` (epoch seconds), each as PEM with a trailing newline.
pub(super) fn chain_pems(signer: &IssuerSigner, now: i64) -> Vec<String> {
    signer.chain(now).iter().map(|i| pem_with_newline(i)).collect()
}

fn issuer_json(signer: &IssuerSigner, now: Time) -> Value {
    let issuer = &signer.issuer;
    let record = &issuer.record;
    let own_urls = !record.urls.is_empty();
    let mut json = urls::to_json(&record.urls, TEMPLATING_FIELD);
    if !own_urls {
        json.remove(TEMPLATING_FIELD);
    }
    let manual_chain = (!record.manual_chain.is_empty()).then_some(&record.manual_chain);
    json.extend([
        ("issuer_id".to_owned(), json!(record.id)),
        ("issuer_name".to_owned(), json!(record.name)),
        ("key_id".to_owned(), json!(record.key_id)),
        ("certificate".to_owned(), json!(pem_with_newline(issuer))),
        ("manual_chain".to_owned(), json!(manual_chain)),
        ("ca_chain".to_owned(), json!(chain_pems(signer, now.unix_timestamp()))),
        ("leaf_not_after_behavior".to_owned(), json!(record.leaf_not_after_behavior.as_str())),
        ("usage".to_owned(), json!(record.usage.to_string())),
        ("revocation_signature_algorithm".to_owned(), json!(record.revocation_signature_algorithm)),
        ("revoked".to_owned(), json!(record.revoked_at.is_some())),
    ]);
    if let Some(at) = record.revoked_at {
        json.insert("revocation_time".to_owned(), json!(at));
        let at = Time::from_unix_timestamp(at).unwrap_or(Time::UNIX_EPOCH);
        json.insert("revocation_time_rfc3339".to_owned(), json!(format_rfc3339(at)));
    }
    Value::Object(json)
}

pub(super) async fn read_config(call: Call) -> Result<HandlerResponse> {
    Ok(HandlerResponse::data(config_json(&call.authority().await?.view())))
}

pub(super) async fn write_config(call: Call) -> Result<HandlerResponse> {
    let authority = call.authority().await?;
    let default = call.fields.text("default")?;
    let follows = call.fields.bool("default_follows_latest_issuer")?;
    write_default_issuer(&authority, default, follows).await
}

async fn write_default_issuer(
    authority: &Authority,
    default: Option<String>,
    follows: Option<bool>,
) -> Result<HandlerResponse> {
    let warnings = changes::write_issuers_config(authority, default, follows).await?;
    Ok(HandlerResponse::data(config_json(&authority.view())).with_warnings(warnings))
}

fn config_json(view: &MountView) -> Value {
    let config = &view.issuers_config.value;
    json!({ "default": config.default, "default_follows_latest_issuer": config.default_follows_latest_issuer })
}

/// Reads the new settings of an issuer. `write` decides whether absent members get their defaults or are unchanged.
/// `null` sets the default in both cases.
///
/// # Errors
/// `Invalid` naming the field and the rule.
fn read_settings(fields: &Fields, write: WriteMode, issuer: &CurrentIssuer<'_>) -> Result<IssuerSettings> {
    let defaults = issuer.defaults();
    let stored = issuer.settings();
    let absent = |name: &str| if write == WriteMode::Merge && !fields.is_null(name) { &stored } else { &defaults };
    let name = "issuer_name";
    let behavior = "leaf_not_after_behavior";
    let algorithm = "revocation_signature_algorithm";
    Ok(IssuerSettings {
        name: fields.text(name)?.unwrap_or_else(|| absent(name).name.clone()),
        manual_chain: match fields.list_within("manual_chain", MANUAL_CHAIN_LIMIT)? {
            Some(references) => issuer.resolve_chain(&references)?,
            None => absent("manual_chain").manual_chain.clone(),
        },
        leaf_not_after_behavior: match fields.text(behavior)? {
            Some(word) => LeafNotAfterBehavior::parse(&word)?,
            None => absent(behavior).leaf_not_after_behavior,
        },
        usage: match fields.list("usage")? {
            Some(words) => issuer.check_usage(IssuerUsage::parse(&words)?)?,
            None => absent("usage").usage,
        },
        revocation_signature_algorithm: fields
            .text(algorithm)?
            .unwrap_or_else(|| absent(algorithm).revocation_signature_algorithm.clone()),
        urls: {
            let base = if write == WriteMode::Merge { &stored.urls } else { &defaults.urls };
            urls::merged(&clear_null_urls(base.clone(), fields), fields, TEMPLATING_FIELD)?
        },
    })
}

/// Clears each list of URLs that is null in the body. Also clears the templating flag if it is null in the body.
fn clear_null_urls(mut urls: Urls, fields: &Fields) -> Urls {
    for ListFieldSlot { slot, .. } in Urls::LISTS {
        if fields.is_null(slot.name) {
            (slot.get_mut)(&mut urls).clear();
        }
    }
    urls.templating &= !fields.is_null(TEMPLATING_FIELD);
    urls
}
