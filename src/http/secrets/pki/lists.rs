//! Lists of stored certificates and revocations by serial number, for tokens. There may be millions: they are read and
//! sent page by page ([`listing`]).

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

/// Most DNS names that are shown of a certificate.
const MOST_NAMES: usize = 5;
/// Most certificates that are listed in the order of their ends.
const MOST_ENDING: usize = 100;

/// Behind which serial a list goes on; before all of them with `None`.
type Place = Option<Serial>;

/// At most so many serials of a mount after one.
type PageOf = fn(&dyn PkiStore, MountId, Option<Serial>, u32) -> BoxFuture<'static, Result<Vec<Serial>>>;

/// Serials, and one text that is said of each of them.
struct Serials {
    store: Arc<dyn PkiStore>,
    mount: MountId,
    page_of: PageOf,
    /// JSON.
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

/// Certificates with what is in them.
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

/// A serial as JSON: its text has nothing to escape.
fn name(serial: Serial) -> String {
    format!("\"{serial}\"")
}

/// Of a mount that is gone nothing is found, which is not the end of its list.
fn require_mount(store: &dyn PkiStore, mount: MountId) -> BoxFuture<'static, Result<()>> {
    let exists = store.has_mount(mount);
    let gone = || Error::new(Kind::NotFound, "the mount of a list is gone");
    async move { if exists.await? { Ok(()) } else { Err(gone()) } }.boxed()
}

pub(super) async fn certificates(call: Call) -> Result<Answer> {
    serials(&call, |store, mount, after, limit| store.serials(mount, after, limit), None).await
}

/// As `certificates`, with what is in them; in the order of their serials, or of their ends.
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

/// A row of a certificate, with what is in it (`infos`); nothing is shown of one that cannot be read.
fn certificate(one: &SerialAndDer, infos: bool) -> Row<Place> {
    // Said once: the list is gone through twice.
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

/// Revocations that wait for another cluster: the nodes of one database are the only one, so there are
/// never any.
pub(super) async fn revocation_queue(call: Call) -> Result<Answer> {
    Page::of(&call.fields)?;
    Err(Error::not_found())
}

/// As `revoked`, with the clusters that revoked: this one.
pub(super) async fn unified_revoked(call: Call) -> Result<Answer> {
    let info = format!("{{\"revoking_clusters\":[{}]}}", json!(call.state.identity.cluster_id));
    serials(&call, REVOKED, Some(info)).await
}

/// A list of serials, with what is said of each (JSON).
pub(super) async fn serials(call: &Call, page_of: PageOf, info: Option<String>) -> Result<Answer> {
    let page = Page::of(&call.fields)?;
    let authority = call.authority().await?;
    let _turn = call.state.lists.turn_for_first().await?;
    let (store, mount) = (Arc::clone(&authority.tools().store), authority.mount());
    listing::answer(call, Serials { store, mount, page_of, info }, page.after_serial(), page.limit).await
}
