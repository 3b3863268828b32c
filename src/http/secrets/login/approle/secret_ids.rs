//! Secret ids: `role/:login_role/secret-id` and related paths.

use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use serde_json::json;

use super::fields::{ttl, uses};
use crate::auth::login::approle::AppRoles;
use crate::auth::login::approle::secret_id::{Issued, SecretId, Wanted};
use crate::auth::login::approle::secret_ids::Named;
use crate::auth::login::open::Open;
use crate::auth::token::Network;
use crate::clock::{Time, rfc3339};
use crate::error::{Error, Kind, Result};
use crate::fields::{Cap, Fields, MAX_NAME};
use crate::http::secrets::answer::Answer;
use crate::http::secrets::listing::{self, Row, Source};
use crate::http::secrets::login::roles::NAME;
use crate::http::secrets::page::Page;
use crate::http::secrets::route::Call;
use crate::secret::{PartlySecret, Secret};

pub(super) const NEW: &[&str] = &["metadata", "cidr_list", "token_bound_cidrs", "num_uses", "ttl"];
pub(super) const CUSTOM: &[&str] = &["secret_id", "metadata", "cidr_list", "token_bound_cidrs", "num_uses", "ttl"];
pub(super) const TEXT: &[&str] = &["secret_id"];
pub(super) const ACCESSOR: &[&str] = &["secret_id_accessor"];

/// Maximum number of metadata pairs, without the role name that logins add; and their maximum total size in bytes.
const METADATA: (usize, usize) = (63, 4_096);
/// The expiration time that is shown for a secret id without one.
const NO_END: &str = "0001-01-01T00:00:00Z";

pub(super) async fn list(call: Call) -> Result<Answer> {
    let Page { after, limit } = Page::of(&call.fields)?;
    let (open, name) = (call.method::<AppRoles>().await?, call.param(NAME).to_owned());
    let role = open.number_of(&name)?;
    let source = Accessors { open, name, role, now: call.state.clock.now() };
    listing::answer(&call, source, after, limit).await
}

/// The accessors of a role's secret ids that are valid at `now`.
struct Accessors {
    open: Arc<Open<AppRoles>>,
    name: String,
    role: i64,
    now: Time,
}

impl Source for Accessors {
    type Place = String;

    fn page(&self, after: &String, most: usize, _: bool) -> BoxFuture<'static, Result<listing::Page<String>>> {
        let found = self.open.accessors(self.role, after.clone(), most as u32, self.now);
        listing::Page::read(found, most, |accessor: String| Row::named(accessor.clone(), &accessor, None))
    }

    /// Checks that the role still exists, locally and in the store. Its secret ids are removed in the background after
    /// it is deleted, possibly by a node that learned of the deletion earlier.
    fn require_whole(&self) -> BoxFuture<'static, Result<()>> {
        let known = self.open.number_of(&self.name).is_ok_and(|role| role == self.role);
        let stands = self.open.stands(self.role);
        let gone = || Error::new(Kind::NotFound, "the role of a list is gone");
        async move { if known && stands.await? { Ok(()) } else { Err(gone()) } }.boxed()
    }
}

pub(super) async fn generate(call: Call) -> Result<Answer> {
    issue(call, None).await
}

/// Creates a secret id with a given text.
pub(super) async fn register(mut call: Call) -> Result<Answer> {
    let text = text(&mut call)?;
    issue(call, Some(text)).await
}

async fn issue(call: Call, text: Option<Secret>) -> Result<Answer> {
    let fields = &call.fields;
    let wanted = Wanted {
        text,
        metadata: metadata(fields)?,
        cidr_list: Network::list(fields, "cidr_list")?.unwrap_or_default(),
        token_bound_cidrs: Network::list(fields, "token_bound_cidrs")?.unwrap_or_default(),
        num_uses: uses(fields, "num_uses")?,
        ttl: ttl(fields, "ttl")?,
    };
    let open = call.method::<AppRoles>().await?;
    let issued = open.issue(call.param(NAME), wanted, &call.mount, call.state.clock.now()).await?;
    Ok(Answer::rendered(rendered(&issued)?).with_warnings(issued.warnings))
}

fn metadata(fields: &Fields) -> Result<std::collections::BTreeMap<String, String>> {
    // Single values may have any length: the total is limited.
    let metadata = fields.map_within("metadata", Cap { bytes: usize::MAX, ..Cap::LIST })?.unwrap_or_default();
    let bytes: usize = metadata.iter().map(|(name, value)| name.len() + value.len()).sum();
    let (pairs, most) = METADATA;
    if metadata.len() > pairs || bytes > most {
        return Err(Error::invalid(format!("metadata: more than {pairs} pairs or {most} bytes")));
    }
    Ok(metadata)
}

/// Renders the only response that contains the text of a secret id.
fn rendered(issued: &Issued) -> Result<PartlySecret> {
    let mut data = PartlySecret::with_capacity(256 + 2 * issued.text.expose().len());
    data.push(b"{\"secret_id\":");
    let text = issued.text.expose_text().unwrap_or_default();
    data.secretly(|data| serde_json::to_writer(data, text)).map_err(Error::internal)?;
    let others = json!({
        "secret_id_accessor": issued.accessor,
        "secret_id_num_uses": issued.num_uses,
        "secret_id_ttl": issued.ttl.as_secs(),
    });
    let others = others.to_string();
    data.push(b",");
    data.push(others.trim_start_matches('{').as_bytes());
    Ok(data)
}

/// Looks up a secret id by its text. The response is empty if it does not exist.
pub(super) async fn look_up(mut call: Call) -> Result<Answer> {
    let named = Named::Text(text(&mut call)?);
    Ok(found(&call, named).await?.map_or_else(Answer::empty, |known| shown(&known)))
}

pub(super) async fn look_up_accessor(call: Call) -> Result<Answer> {
    let accessor = accessor(&call)?;
    found(&call, Named::Accessor(accessor)).await?.map(|known| shown(&known)).ok_or_else(no_accessor)
}

async fn found(call: &Call, named: Named) -> Result<Option<SecretId>> {
    call.method::<AppRoles>().await?.look_up(call.param(NAME), named, call.state.clock.now()).await
}

fn shown(known: &SecretId) -> Answer {
    let SecretId { row, terms } = known;
    Answer::data(json!({
        "secret_id_accessor": row.accessor,
        "secret_id_num_uses": row.uses.unwrap_or(0),
        "secret_id_ttl": terms.ttl.as_secs(),
        "creation_time": rfc3339(terms.created_at),
        "expiration_time": row.expires_at.map_or_else(|| NO_END.to_owned(), rfc3339),
        "last_updated_time": rfc3339(row.updated_at),
        "metadata": terms.metadata,
        "cidr_list": terms.cidr_list,
        "token_bound_cidrs": terms.token_bound_cidrs,
    }))
}

/// Deletes a secret id by its text. Succeeds if it does not exist.
pub(super) async fn destroy(mut call: Call) -> Result<Answer> {
    let named = Named::Text(text(&mut call)?);
    ended(&call, named).await?;
    Ok(Answer::empty())
}

/// Deletes a secret id by its accessor, which must exist.
pub(super) async fn destroy_accessor(call: Call) -> Result<Answer> {
    let accessor = accessor(&call)?;
    if ended(&call, Named::Accessor(accessor)).await? { Ok(Answer::empty()) } else { Err(no_accessor()) }
}

async fn ended(call: &Call, named: Named) -> Result<bool> {
    call.method::<AppRoles>().await?.destroy(call.param(NAME), named, call.state.clock.now()).await
}

fn text(call: &mut Call) -> Result<Secret> {
    let text = call.fields.take_secret("secret_id")?.filter(|text| !text.expose().is_empty());
    text.ok_or_else(|| Error::invalid("missing secret_id"))
}

fn accessor(call: &Call) -> Result<String> {
    let accessor = call.fields.text("secret_id_accessor")?.filter(|text| !text.is_empty());
    let accessor = accessor.ok_or_else(|| Error::invalid("missing secret_id_accessor"))?;
    if accessor.len() > MAX_NAME { Err(no_accessor()) } else { Ok(accessor) }
}

fn no_accessor() -> Error {
    Error::new(Kind::NotFound, "failed to find accessor entry for secret_id_accessor")
}

/// Removes expired secret ids immediately, which otherwise happens within half a minute. They are already invalid.
pub(super) async fn tidy(call: Call) -> Result<Answer> {
    // Checks that the mount is open.
    call.method::<AppRoles>().await?;
    call.state.mounts.sweep_secret_ids();
    let started = "Tidy operation successfully started. Any information from the operation will be printed to the \
                   server logs.";
    Ok(Answer::empty().with_status(202).with_warnings(Some(started.to_owned())))
}
