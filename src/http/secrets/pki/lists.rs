//! Lists of stored certificates and revocations by serial number, for tokens. They are read and rendered page
//! by page: there may be millions.

use std::borrow::Cow;
use std::fmt::Write as _;

use futures_util::future::BoxFuture;
use serde_json::{Map, Value, json};

use super::Page;
use crate::clock::{Time, rfc3339};
use crate::documents::MountId;
use crate::error::{Error, Result};
use crate::http::secrets::answer::Answer;
use crate::http::secrets::route::Call;
use crate::pki::store::{PkiStore, SerialAndDer};
use crate::x509::certificate::Certificate;
use crate::x509::general_name::CsrSans;
use crate::x509::oid;
use crate::x509::serial::Serial;

/// Rows read from storage at a time.
const PAGE: usize = 1_000;
/// Most DNS names that are shown of a certificate.
const MOST_NAMES: usize = 5;
/// Most certificates that are listed in the order of their ends.
const MOST_ENDING: usize = 100;

/// How an element of a page is listed.
enum Shown<'a> {
    /// Not at all.
    Not,
    /// By its serial.
    Serial,
    /// By its serial, with what is known of it (JSON).
    With(Cow<'a, str>),
}

pub(super) async fn certificates(call: Call) -> Result<Answer> {
    serials(&call, |store, mount, after, limit| store.serials(mount, after, limit)).await
}

/// As `certificates`, with what is in them; in the order of their serials, or of their ends.
pub(super) async fn detailed(call: Call) -> Result<Answer> {
    match call.fields.text("order")?.as_deref() {
        None | Some("" | "serial") => {}
        Some("not_after") => return next_to_end(call).await,
        Some(_) => return Err(Error::invalid("order: must be serial or not_after")),
    }
    let page_of = |store: &dyn PkiStore, mount, after, limit| store.certificates(mount, after, limit);
    let shown = |of: Option<Value>| of.map_or(Shown::Not, |of| Shown::With(of.to_string().into()));
    list(&call, page_of, |(serial, der): &SerialAndDer| (*serial, shown(details(*serial, der)))).await
}

/// Those that end next, the soonest first, and whether they are revoked. One page, which an index has.
async fn next_to_end(call: Call) -> Result<Answer> {
    let page = Page::of(&call.fields)?;
    if !page.after.is_empty() {
        return Err(Error::invalid("after: is for the order of serial numbers"));
    }
    let limit = page.limit.unwrap_or(MOST_ENDING);
    if limit > MOST_ENDING {
        return Err(Error::invalid(format!("limit: must be at most {MOST_ENDING} in the order of not_after")));
    }
    let authority = call.authority().await?;
    let (store, mount) = (&authority.tools().store, authority.mount());
    let found = store.ending(mount, call.state.clock.now().unix_timestamp(), limit as u32).await?;
    let known = store.known(mount, found.iter().map(|(serial, _)| *serial).collect()).await?;
    let (mut keys, mut infos) = (Vec::new(), Map::new());
    for ((serial, der), known) in found.iter().zip(known) {
        let Some(mut details) = details(*serial, der) else { continue };
        details["revoked"] = known.revocation.is_some().into();
        keys.push(serial.to_string());
        infos.insert(serial.to_string(), details);
    }
    Answer::keys(keys, Some(Value::Object(infos)))
}

/// What is in a stored certificate; `None` of one that cannot be read.
fn details(serial: Serial, der: &[u8]) -> Option<Value> {
    let certificate = match Certificate::parse(der) {
        Ok(certificate) => certificate,
        Err(error) => {
            tracing::warn!(%serial, %error, "a stored certificate that cannot be read is left off the list");
            return None;
        }
    };
    let kind = certificate.key().kind();
    let time = |at: i64| Time::from_unix_timestamp(at).map(rfc3339).unwrap_or_default();
    let sans = certificate.extension(oid::SUBJECT_ALT_NAME).and_then(|extension| CsrSans::read(&extension.value).ok());
    let dns: Vec<String> = sans.into_iter().flat_map(|sans| sans.dns).take(MOST_NAMES).collect();
    Some(json!({
        "common_name": certificate.common_name(),
        "issuer": certificate.issuer().display(),
        "key_type": kind.name(),
        "key_bits": kind.bits(),
        "not_before": time(certificate.not_before()),
        "not_after": time(certificate.not_after()),
        "dns_names": dns,
    }))
}

pub(super) async fn revoked(call: Call) -> Result<Answer> {
    serials(&call, |store, mount, after, limit| store.revoked_serials(mount, after, limit)).await
}

/// Revocations that wait for another cluster: the nodes of one database are the only one, so there are
/// never any.
pub(super) async fn revocation_queue(call: Call) -> Result<Answer> {
    Page::of(&call.fields)?;
    Err(Error::not_found())
}

/// As `revoked`, with the clusters that revoked: this one.
pub(super) async fn unified_revoked(call: Call) -> Result<Answer> {
    let info = format!("{{\"revoking_clusters\":[{}]}}", json!(call.state.identity.cluster_id));
    let page_of = |store: &dyn PkiStore, mount, after, limit| store.revoked_serials(mount, after, limit);
    list(&call, page_of, |serial: &Serial| (*serial, Shown::With(info.as_str().into()))).await
}

/// A list of serials.
pub(super) async fn serials(
    call: &Call,
    page_of: impl Fn(&dyn PkiStore, MountId, Option<Serial>, u32) -> BoxFuture<'static, Result<Vec<Serial>>>,
) -> Result<Answer> {
    list(call, page_of, |serial: &Serial| (*serial, Shown::Serial)).await
}

async fn list<'a, T>(
    call: &Call,
    page_of: impl Fn(&dyn PkiStore, MountId, Option<Serial>, u32) -> BoxFuture<'static, Result<Vec<T>>>,
    show: impl Fn(&T) -> (Serial, Shown<'a>),
) -> Result<Answer> {
    let page = Page::of(&call.fields)?;
    let authority = call.authority().await?;
    let (store, mount) = (&authority.tools().store, authority.mount());
    let mut after = page.after_serial();
    let mut count = 0;
    let mut json = String::from("{\"keys\":[");
    let mut infos = String::new();
    loop {
        let left = page.limit.map_or(PAGE, |limit| limit - count).min(PAGE);
        let found = page_of(&**store, mount, after, left as u32).await?;
        for element in &found {
            let (serial, shown) = show(element);
            after = Some(serial);
            let comma = if count == 0 { "" } else { "," };
            // A serial's text has nothing that JSON escapes; writing to a String cannot fail.
            match shown {
                Shown::Not => continue,
                Shown::Serial => {}
                Shown::With(info) => drop(write!(infos, "{comma}\"{serial}\":{info}")),
            }
            count += 1;
            let _ = write!(json, "{comma}\"{serial}\"");
        }
        if found.len() < left || page.limit == Some(count) {
            break;
        }
    }
    if count == 0 {
        return Err(Error::not_found());
    }
    json.push(']');
    if !infos.is_empty() {
        let _ = write!(json, ",\"key_info\":{{{infos}}}");
    }
    json.push('}');
    Ok(Answer::rendered(json))
}
