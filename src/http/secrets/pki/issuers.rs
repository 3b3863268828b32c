//! Issuers: `root`, `root/replace`, `issuers`, `issuer/:issuer_ref`, `config/issuers`.

mod settings;

use serde_json::{Map, Value, json};

pub(super) use self::settings::FIELDS;
use super::{PageParams, WriteMode, revoking, urls};
use crate::clock::{Time, format_rfc3339};
use crate::error::{Error, Result, Warnings};
use crate::http::secrets::handler_response::HandlerResponse;
use crate::http::secrets::route::Call;
use crate::pki::Authority;
use crate::pki::ca::changes;
use crate::pki::mount::issuer::Issuer;
use crate::pki::mount::profile::certificate_pem;
use crate::pki::mount::signer::IssuerSigner;
use crate::pki::mount::view::MountView;
use crate::pki::revocation::revoke;

pub(super) async fn replace_root(call: Call) -> Result<HandlerResponse> {
    let default = call.fields.text("default")?.unwrap_or_else(|| "next".to_owned());
    // No other setting: the permission to replace the default must not allow other changes.
    default_to(&*call.authority().await?, Some(default), None).await
}

pub(super) async fn delete_all(call: Call) -> Result<HandlerResponse> {
    let warnings = changes::delete_all_issuers(&*call.authority().await?).await?;
    Ok(HandlerResponse::empty().with_warnings(warnings))
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
    Ok(HandlerResponse::data(issuer_json(signer, authority.tools().clock.now())))
}

pub(super) async fn write(mut call: Call) -> Result<HandlerResponse> {
    let authority = call.authority().await?;
    let write = WriteMode::of(&call);
    let fields = std::mem::take(&mut call.fields);
    let merge = move |issuer: &changes::CurrentIssuer<'_>| settings::read(&fields, write, issuer);
    let (id, warnings) = changes::write_issuer(&authority, call.param("issuer_ref"), merge).await?;
    render_changed_issuer(&authority, &id, warnings)
}

pub(super) async fn revoke(call: Call) -> Result<HandlerResponse> {
    let authority = call.authority().await?;
    let why = revoking::read_reason_and_date(&call.fields)?;
    let reference = call.param("issuer_ref");
    let (id, warnings) = revoke::revoke_issuer(&authority, reference, why, call.recorded_as()).await?;
    render_changed_issuer(&authority, &id, warnings)
}

/// Renders an issuer after a change.
fn render_changed_issuer(authority: &Authority, id: &str, warnings: Warnings) -> Result<HandlerResponse> {
    let view = authority.view();
    let signer = view.signer(id).ok_or_else(Error::not_found)?;
    Ok(HandlerResponse::data(issuer_json(signer, authority.tools().clock.now())).with_warnings(warnings))
}

pub(super) async fn delete(call: Call) -> Result<HandlerResponse> {
    let warnings = changes::delete_issuer(&*call.authority().await?, call.param("issuer_ref")).await?;
    // 200 with null data, also for an unknown issuer, as known clients expect.
    Ok(HandlerResponse::data(Value::Null).with_warnings(warnings))
}

/// Returns an issuer's certificate as PEM with a trailing newline.
pub(super) fn pem_line(issuer: &Issuer) -> String {
    certificate_pem(issuer) + "\n"
}

/// Returns the chain served at `now` (epoch seconds).
pub(super) fn chain_lines(signer: &IssuerSigner, now: i64) -> Vec<String> {
    signer.chain(now).iter().map(|i| pem_line(i)).collect()
}

fn issuer_json(signer: &IssuerSigner, now: Time) -> Value {
    let issuer = &signer.issuer;
    let record = &issuer.record;
    let own_urls = !record.urls.is_empty();
    let mut json = urls::to_json(&record.urls, settings::TEMPLATING_FIELD);
    if !own_urls {
        json.remove(settings::TEMPLATING_FIELD);
    }
    let manual_chain = (!record.manual_chain.is_empty()).then_some(&record.manual_chain);
    json.extend([
        ("issuer_id".to_owned(), json!(record.id)),
        ("issuer_name".to_owned(), json!(record.name)),
        ("key_id".to_owned(), json!(record.key_id)),
        ("certificate".to_owned(), json!(pem_line(issuer))),
        ("manual_chain".to_owned(), json!(manual_chain)),
        ("ca_chain".to_owned(), json!(chain_lines(signer, now.unix_timestamp()))),
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
    default_to(&authority, default, follows).await
}

async fn default_to(authority: &Authority, default: Option<String>, follows: Option<bool>) -> Result<HandlerResponse> {
    let warnings = changes::write_issuers_config(authority, default, follows).await?;
    Ok(HandlerResponse::data(config_json(&authority.view())).with_warnings(warnings))
}

fn config_json(view: &MountView) -> Value {
    let config = &view.issuers_config.value;
    json!({ "default": config.default, "default_follows_latest_issuer": config.default_follows_latest_issuer })
}
