//! Lists of stored certificates and revocations by serial number; they need a token. They may have millions of rows,
//! and are read and sent in pages ([`listing`]).

use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use serde_json::{Map, Value, json};

use super::Page;
use crate::clock::{Time, rfc3339};
use crate::documents::MountId;
use crate::error::{Error, Kind, Result};
use crate::http::secrets::answer::Answer;
use crate::http::secrets::listing::{self, Row, Source};
use crate::http::secrets::route::Call;
use crate::pki::store::{PkiStore, SerialAndDer};
use crate::turns::cpu;
use crate::x509::certificate::Certificate;
use crate::x509::general_name::CsrSans;
use crate::x509::oid;
use crate::x509::serial::Serial;

/// Maximum number of DNS names shown per certificate.
const MOST_NAMES: usize = 5;
/// Maximum number of certificates listed by notAfter.
const MOST_ENDING: usize = 100;

/// The serial number after which a list continues; `None` for the start.
type Place = Option<Serial>;

/// Reads a limited number of serial numbers of a mount, after a given one.
type PageOf = fn(&dyn PkiStore, MountId, Option<Serial>, u32) -> BoxFuture<'static, Result<Vec<Serial>>>;

/// A list of serial numbers that all have the same details.
struct Serials {
    store: Arc<dyn PkiStore>,
    mount: MountId,
    page_of: PageOf,
    /// The details as JSON.
    info: Option<String>,
}

impl Source for Serials {
    type Place = Place;

    fn page(&self, after: &Place, most: usize, infos: bool) -> BoxFuture<'static, Result<listing::Page<Place>>> {
        let found = (self.page_of)(&*self.store, self.mount, *after, most as u32);
        let info = self.info.clone().filter(|_| infos);
        listing::Page::read(found, most, move |serial| Row {
            at: Some(serial),
            shown: Some((name(serial), info.clone())),
        })
    }

    fn has_infos(&self) -> bool {
        self.info.is_some()
    }

    fn require_whole(&self) -> BoxFuture<'static, Result<()>> {
        require_mount(&*self.store, self.mount)
    }
}

struct Certificates {
    store: Arc<dyn PkiStore>,
    mount: MountId,
}

impl Source for Certificates {
    type Place = Place;

    fn page(&self, after: &Place, most: usize, infos: bool) -> BoxFuture<'static, Result<listing::Page<Place>>> {
        let found = self.store.certificates(self.mount, *after, most as u32);
        async move {
            let found = found.await?;
            let read = move || found.iter().map(|one| certificate(one, infos)).collect();
            let rows = cpu::run(read).await?;
            Ok(listing::Page::of(rows, most))
        }
        .boxed()
    }

    fn most(&self) -> usize {
        listing::DETAILED
    }

    fn has_infos(&self) -> bool {
        true
    }

    fn require_whole(&self) -> BoxFuture<'static, Result<()>> {
        require_mount(&*self.store, self.mount)
    }
}

/// Formats a serial number as JSON. Its text needs no escaping.
fn name(serial: Serial) -> String {
    format!("\"{serial}\"")
}

/// Checks that a mount exists: an empty page of a deleted mount must not look like the end of its list.
fn require_mount(store: &dyn PkiStore, mount: MountId) -> BoxFuture<'static, Result<()>> {
    let exists = store.has_mount(mount);
    let gone = || Error::new(Kind::NotFound, "the mount of a list is gone");
    async move { if exists.await? { Ok(()) } else { Err(gone()) } }.boxed()
}

pub(super) async fn certificates(call: Call) -> Result<Answer> {
    serials(&call, |store, mount, after, limit| store.serials(mount, after, limit), None).await
}

/// Lists certificates with their contents, by serial number or by notAfter.
pub(super) async fn detailed(call: Call) -> Result<Answer> {
    match call.fields.text("order")?.as_deref() {
        None | Some("" | "serial") => {}
        Some("not_after") => return next_to_end(call).await,
        Some(_) => return Err(Error::invalid("order: must be serial or not_after")),
    }
    let page = Page::of(&call.fields)?;
    let authority = call.authority().await?;
    let source = Certificates { store: Arc::clone(&authority.tools().store), mount: authority.mount() };
    let _turn = call.state.lists.turn_for_first().await?;
    listing::answer(&call, source, page.after_serial(), page.limit).await
}

/// Lists the certificates that expire next, and if they are revoked. The single page is read from an index.
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
    let _turn = call.state.lists.turn_for_first().await?;
    let (store, mount) = (&authority.tools().store, authority.mount());
    let found = store.ending(mount, call.state.clock.now().unix_timestamp(), limit as u32).await?;
    let known = store.known(mount, found.iter().map(|(serial, _)| *serial).collect()).await?;
    let read = move || {
        let (mut keys, mut infos) = (Vec::new(), Map::new());
        for (one, known) in found.iter().zip(known) {
            let Some(certificate) = readable(one) else { continue };
            let (serial, mut details) = (one.0.to_string(), details(&certificate));
            details["revoked"] = known.revocation.is_some().into();
            infos.insert(serial.clone(), details);
            keys.push(serial);
        }
        (keys, infos)
    };
    let (keys, infos) = cpu::run(read).await?;
    Answer::keys(keys, Some(Value::Object(infos)))
}

/// Builds the row of a certificate, with its contents if `infos` is set. Unreadable certificates are hidden.
fn certificate(one: &SerialAndDer, infos: bool) -> Row<Place> {
    // Logs an unreadable certificate only once, because the list is read twice.
    let read = if infos { readable(one) } else { Certificate::parse(&one.1).ok() };
    let shown = read.map(|read| (name(one.0), infos.then(|| details(&read).to_string())));
    Row { at: Some(one.0), shown }
}

fn readable((serial, der): &SerialAndDer) -> Option<Certificate> {
    let left_off = |error: &Error| {
        tracing::warn!(%serial, %error, "a stored certificate that cannot be read is left off the list");
    };
    Certificate::parse(der).inspect_err(left_off).ok()
}

fn details(certificate: &Certificate) -> Value {
    let kind = certificate.key().kind();
    let time = |at: i64| Time::from_unix_timestamp(at).map(rfc3339).unwrap_or_default();
    let sans = certificate.extension(oid::SUBJECT_ALT_NAME).and_then(|extension| CsrSans::read(&extension.value).ok());
    let dns: Vec<String> = sans.into_iter().flat_map(|sans| sans.dns).take(MOST_NAMES).collect();
    json!({
        "common_name": certificate.common_name(),
        "issuer": certificate.issuer().display(),
        "key_type": kind.name(),
        "key_bits": kind.bits(),
        "not_before": time(certificate.not_before()),
        "not_after": time(certificate.not_after()),
        "dns_names": dns,
    })
}

pub(super) async fn revoked(call: Call) -> Result<Answer> {
    serials(&call, REVOKED, None).await
}

const REVOKED: PageOf = |store, mount, after, limit| store.revoked_serials(mount, after, limit);

/// Lists revocations that wait for another cluster. It is always empty, because the nodes of a database form the only
/// cluster.
pub(super) async fn revocation_queue(call: Call) -> Result<Answer> {
    Page::of(&call.fields)?;
    Err(Error::not_found())
}

/// Lists revoked certificates with the cluster that revoked them, which is always this one.
pub(super) async fn unified_revoked(call: Call) -> Result<Answer> {
    let info = format!("{{\"revoking_clusters\":[{}]}}", json!(call.state.identity.cluster_id));
    serials(&call, REVOKED, Some(info)).await
}

/// Lists serial numbers, all with the same details (JSON).
pub(super) async fn serials(call: &Call, page_of: PageOf, info: Option<String>) -> Result<Answer> {
    let page = Page::of(&call.fields)?;
    let authority = call.authority().await?;
    let _turn = call.state.lists.turn_for_first().await?;
    let (store, mount) = (Arc::clone(&authority.tools().store), authority.mount());
    listing::answer(call, Serials { store, mount, page_of, info }, page.after_serial(), page.limit).await
}
