//! Lists of stored certificates and revocations, by serial number. Listing needs a token. A list may have millions of
//! rows, so it is read and sent in pages ([`listing`]).

use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use serde_json::{Map, Value, json};

use super::PageParams;
use crate::clock::{Time, format_rfc3339};
use crate::documents::MountId;
use crate::error::{Error, Kind, Result};
use crate::http::secrets::handler_response::HandlerResponse;
use crate::http::secrets::listing::{self, ListPageFuture, ListRow, RowSource};
use crate::http::secrets::route::Call;
use crate::pki::store::{PkiStore, SerialAndDer};
use crate::rationing::cpu;
use crate::x509::certificate::Certificate;
use crate::x509::general_name::ParsedSans;
use crate::x509::oid;
use crate::x509::serial::Serial;

/// Maximum number of DNS names in the details of a certificate.
const MAX_DNS_NAMES: usize = 5;
/// Maximum number of certificates in a list ordered by notAfter.
const MAX_EXPIRING_CERTIFICATES: usize = 100;

/// The serial number after which a list continues; `None` at its start.
type SerialPosition = Option<Serial>;

/// Reads the serial numbers of a mount that follow a given serial number, up to a maximum count.
type SerialPageReader = fn(&dyn PkiStore, MountId, Option<Serial>, u32) -> BoxFuture<'static, Result<Vec<Serial>>>;

/// Lists serial numbers that all have the same details.
struct SerialListSource {
    store: Arc<dyn PkiStore>,
    mount: MountId,
    page_of: SerialPageReader,
    /// The JSON details that every row has; `None` for a list without details.
    info: Option<String>,
}

impl RowSource for SerialListSource {
    type Position = SerialPosition;

    fn page(&self, after: &SerialPosition, max: usize, infos: bool) -> ListPageFuture<SerialPosition> {
        let found = (self.page_of)(&*self.store, self.mount, *after, max as u32);
        let info = self.info.clone().filter(|_| infos);
        listing::ListPage::read(found, max, move |serial| ListRow {
            position: Some(serial),
            shown: Some((serial_json(serial), info.clone())),
        })
    }

    /// All rows have the same details, so a page has as many rows as a page of names.
    fn max_page_rows(&self) -> usize {
        listing::NAMES_PER_PAGE
    }

    fn has_details(&self) -> bool {
        self.info.is_some()
    }

    fn require_source_exists(&self) -> BoxFuture<'static, Result<()>> {
        require_mount(&*self.store, self.mount)
    }
}

struct CertificateSource {
    store: Arc<dyn PkiStore>,
    mount: MountId,
}

impl RowSource for CertificateSource {
    type Position = SerialPosition;

    fn page(&self, after: &SerialPosition, max: usize, infos: bool) -> ListPageFuture<SerialPosition> {
        let found = self.store.certificates(self.mount, *after, max as u32);
        async move {
            let found = found.await?;
            let read = move || found.iter().map(|one| certificate_row(one, infos)).collect();
            let rows = cpu::run(read).await?;
            Ok(listing::ListPage::of(rows, max))
        }
        .boxed()
    }

    fn has_details(&self) -> bool {
        true
    }

    fn require_source_exists(&self) -> BoxFuture<'static, Result<()>> {
        require_mount(&*self.store, self.mount)
    }
}

/// Formats a serial number as a JSON string. Its text needs no escaping.
fn serial_json(serial: Serial) -> String {
    format!("\"{serial}\"")
}

/// Checks that a mount still exists: an empty page of a deleted mount must not look like the end of its list.
fn require_mount(store: &dyn PkiStore, mount: MountId) -> BoxFuture<'static, Result<()>> {
    let exists = store.has_mount(mount);
    let gone = || Error::new(Kind::NotFound, "list: the mount was deleted while the list was read");
    async move { if exists.await? { Ok(()) } else { Err(gone()) } }.boxed()
}

pub(super) async fn list_certificates(call: Call) -> Result<HandlerResponse> {
    list_serials(&call, |store, mount, after, limit| store.serials(mount, after, limit), None).await
}

/// Lists certificates with details from their contents, ordered by serial number or by notAfter.
pub(super) async fn list_with_details(call: Call) -> Result<HandlerResponse> {
    match call.fields.text("order")?.as_deref() {
        None | Some("" | "serial") => {}
        Some("not_after") => return list_expiring(call).await,
        Some(_) => return Err(Error::invalid("order: must be serial or not_after")),
    }
    let page = PageParams::of(&call.fields)?;
    let authority = call.authority().await?;
    let source = CertificateSource { store: Arc::clone(&authority.deps().store), mount: authority.mount() };
    let _slot = call.state.long_lists.wait_for_first_page().await?;
    listing::build_response(&call, source, page.after_serial(), page.limit).await
}

/// Lists the certificates that expire next, and whether each is revoked. The list has a single page, which is read from
/// an index.
async fn list_expiring(call: Call) -> Result<HandlerResponse> {
    let page = PageParams::of(&call.fields)?;
    if !page.after.is_empty() {
        return Err(Error::invalid("after: not supported with order=not_after"));
    }
    let limit = page.limit.unwrap_or(MAX_EXPIRING_CERTIFICATES);
    if limit > MAX_EXPIRING_CERTIFICATES {
        return Err(Error::invalid(format!("limit: must be at most {MAX_EXPIRING_CERTIFICATES} with order=not_after")));
    }
    let authority = call.authority().await?;
    let _slot = call.state.long_lists.wait_for_first_page().await?;
    let store = &authority.deps().store;
    let mount = authority.mount();
    let found = store.certificates_by_expiry(mount, call.state.clock.now().unix_timestamp(), limit as u32).await?;
    let known = store.known_serials(mount, found.iter().map(|(serial, _)| *serial).collect()).await?;
    let read = move || {
        let mut keys = Vec::new();
        let mut infos = Map::new();
        for (one, known) in found.iter().zip(known) {
            let Some(certificate) = parse_or_log(one) else { continue };
            let serial = one.0.to_string();
            let mut details = certificate_details(&certificate);
            details["revoked"] = known.revocation.is_some().into();
            infos.insert(serial.clone(), details);
            keys.push(serial);
        }
        (keys, infos)
    };
    let (keys, infos) = cpu::run(read).await?;
    HandlerResponse::keys(keys, Some(Value::Object(infos)))
}

/// Builds the row of a certificate, with details if `infos` is `true`. Unreadable certificates are hidden.
fn certificate_row(one: &SerialAndDer, infos: bool) -> ListRow<SerialPosition> {
    // The list is read twice, but an unreadable certificate is logged only once.
    let read = if infos { parse_or_log(one) } else { Certificate::parse(&one.1).ok() };
    let shown = read.map(|read| (serial_json(one.0), infos.then(|| certificate_details(&read).to_string())));
    ListRow { position: Some(one.0), shown }
}

fn parse_or_log((serial, der): &SerialAndDer) -> Option<Certificate> {
    let left_off = |error: &Error| {
        tracing::warn!(%serial, %error, "an unreadable stored certificate is omitted from the list");
    };
    Certificate::parse(der).inspect_err(left_off).ok()
}

fn certificate_details(certificate: &Certificate) -> Value {
    let kind = certificate.key().kind();
    let time = |at: i64| Time::from_unix_timestamp(at).map(format_rfc3339).unwrap_or_default();
    let sans =
        certificate.extension(oid::SUBJECT_ALT_NAME).and_then(|extension| ParsedSans::read(&extension.value).ok());
    let dns: Vec<String> = sans.into_iter().flat_map(|sans| sans.dns).take(MAX_DNS_NAMES).collect();
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

pub(super) async fn list_revoked(call: Call) -> Result<HandlerResponse> {
    list_serials(&call, READ_REVOKED_SERIALS, None).await
}

const READ_REVOKED_SERIALS: SerialPageReader = |store, mount, after, limit| store.revoked_serials(mount, after, limit);

/// Lists revocations that wait for another cluster. The list is always empty, because the nodes of a database form the
/// only cluster.
pub(super) async fn list_revocation_queue(call: Call) -> Result<HandlerResponse> {
    PageParams::of(&call.fields)?;
    Err(Error::not_found())
}

/// Lists revoked certificates, each with the id of the cluster that revoked it, which is always this cluster.
pub(super) async fn list_unified_revoked(call: Call) -> Result<HandlerResponse> {
    let info = format!("{{\"revoking_clusters\":[{}]}}", json!(call.state.identity.cluster_id));
    list_serials(&call, READ_REVOKED_SERIALS, Some(info)).await
}

/// Lists serial numbers. `info` is the JSON text of the details that every row has.
pub(super) async fn list_serials(
    call: &Call,
    page_of: SerialPageReader,
    info: Option<String>,
) -> Result<HandlerResponse> {
    let page = PageParams::of(&call.fields)?;
    let authority = call.authority().await?;
    let _slot = call.state.long_lists.wait_for_first_page().await?;
    let store = Arc::clone(&authority.deps().store);
    let mount = authority.mount();
    listing::build_response(call, SerialListSource { store, mount, page_of, info }, page.after_serial(), page.limit)
        .await
}
