//! AppRole secret ids: `role/:login_role/secret-id` and related paths.

use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use serde_json::json;

use super::fields::{read_ttl, read_uses};
use crate::auth::login::approle::AppRoleMethod;
use crate::auth::login::approle::secret_id::{IssuedSecretId, SecretId, SecretIdRequest};
use crate::auth::login::approle::secret_ids::SecretIdRef;
use crate::auth::login::method_mount::MethodMount;
use crate::auth::token::Network;
use crate::clock::{Time, format_rfc3339};
use crate::error::{Error, Kind, Result};
use crate::fields::{Fields, ListLimit, MAX_NAME_LEN};
use crate::http::secrets::handler_response::HandlerResponse;
use crate::http::secrets::json_object::JsonObjectBuilder;
use crate::http::secrets::listing::{self, ListPageFuture, ListRow, RowSource};
use crate::http::secrets::login::roles::ROLE_PARAM;
use crate::http::secrets::page::PageParams;
use crate::http::secrets::route::Call;
use crate::secret::{PartlySecret, Secret};

pub(super) const GENERATE_FIELDS: &[&str] = &["metadata", "cidr_list", "token_bound_cidrs", "num_uses", "ttl"];
pub(super) const REGISTER_FIELDS: &[&str] =
    &["secret_id", "metadata", "cidr_list", "token_bound_cidrs", "num_uses", "ttl"];
pub(super) const SECRET_ID_FIELDS: &[&str] = &["secret_id"];
pub(super) const ACCESSOR_FIELDS: &[&str] = &["secret_id_accessor"];

/// Maximum number of metadata pairs, not counting the role name that logins add, and their maximum total size in bytes.
const MAX_METADATA_PAIRS_AND_BYTES: (usize, usize) = (63, 4_096);
/// The expiration time that responses contain for a secret id that does not expire.
const NO_EXPIRATION_TIME: &str = "0001-01-01T00:00:00Z";

pub(super) async fn list(call: Call) -> Result<HandlerResponse> {
    let PageParams { after, limit } = PageParams::of(&call.fields)?;
    let open = call.method::<AppRoleMethod>().await?;
    let name = call.param(ROLE_PARAM).to_owned();
    let role = open.role_number(&name)?;
    let source = SecretIdAccessorSource { open, name, role, now: call.state.clock.now() };
    listing::build_response(&call, source, after, limit).await
}

/// The list of accessors of a role's secret ids that are valid at `now`.
struct SecretIdAccessorSource {
    open: Arc<MethodMount<AppRoleMethod>>,
    name: String,
    role: i64,
    now: Time,
}

impl RowSource for SecretIdAccessorSource {
    type Position = String;

    fn page(&self, after: &String, max: usize, _: bool) -> ListPageFuture<String> {
        let found = self.open.secret_id_accessors(self.role, after.clone(), max as u32, self.now);
        listing::ListPage::read(found, max, |accessor: String| ListRow::named(accessor.clone(), &accessor, None))
    }

    /// Checks that the role still exists, both in this node's memory and in the store. After the role is deleted, its
    /// secret ids are removed in the background, possibly by a node that learned of the deletion earlier.
    fn require_source_exists(&self) -> BoxFuture<'static, Result<()>> {
        let known = self.open.role_number(&self.name).is_ok_and(|role| role == self.role);
        let exists = self.open.secret_id_role_exists(self.role);
        let gone = || Error::new(Kind::NotFound, "list: the role was deleted while the list was read");
        async move { if known && exists.await? { Ok(()) } else { Err(gone()) } }.boxed()
    }
}

pub(super) async fn generate(call: Call) -> Result<HandlerResponse> {
    issue_secret_id(call, None).await
}

/// Creates a secret id with the text in the request.
pub(super) async fn register(mut call: Call) -> Result<HandlerResponse> {
    let text = required_text(&mut call)?;
    issue_secret_id(call, Some(text)).await
}

async fn issue_secret_id(call: Call, text: Option<Secret>) -> Result<HandlerResponse> {
    let fields = &call.fields;
    let wanted = SecretIdRequest {
        text,
        metadata: read_metadata(fields)?,
        cidr_list: Network::parse_list(fields, "cidr_list")?.unwrap_or_default(),
        token_bound_cidrs: Network::parse_list(fields, "token_bound_cidrs")?.unwrap_or_default(),
        num_uses: read_uses(fields, "num_uses")?,
        ttl: read_ttl(fields, "ttl")?,
    };
    let open = call.method::<AppRoleMethod>().await?;
    let issued = open.issue_secret_id(call.param(ROLE_PARAM), wanted, &call.mount, call.state.clock.now()).await?;
    Ok(HandlerResponse::rendered(render_issued(&issued)).with_warnings(issued.warnings))
}

fn read_metadata(fields: &Fields) -> Result<std::collections::BTreeMap<String, String>> {
    // Each value may have any length, because the total is limited.
    let metadata =
        fields.map_within("metadata", ListLimit { bytes: usize::MAX, ..ListLimit::LIST })?.unwrap_or_default();
    let bytes: usize = metadata.iter().map(|(name, value)| name.len() + value.len()).sum();
    let (pairs, max_bytes) = MAX_METADATA_PAIRS_AND_BYTES;
    if metadata.len() > pairs || bytes > max_bytes {
        return Err(Error::invalid(format!("metadata: more than {pairs} pairs or {max_bytes} bytes")));
    }
    Ok(metadata)
}

/// Renders the response to the creation of a secret id. No other response contains the text of the secret id.
fn render_issued(issued: &IssuedSecretId) -> PartlySecret {
    let mut data = JsonObjectBuilder::with_capacity(256 + 2 * issued.text.expose().len());
    data.add_secret_text("secret_id", issued.text.expose_text().unwrap_or_default());
    data.add("secret_id_accessor", &issued.accessor);
    data.add("secret_id_num_uses", &issued.num_uses);
    data.add("secret_id_ttl", &issued.ttl.as_secs());
    data.finish()
}

/// Looks up a secret id by its text. The response is empty if the secret id does not exist.
pub(super) async fn look_up(mut call: Call) -> Result<HandlerResponse> {
    let named = SecretIdRef::Text(required_text(&mut call)?);
    Ok(look_up_by(&call, named).await?.map_or_else(HandlerResponse::empty, |known| render_secret_id(&known)))
}

pub(super) async fn look_up_accessor(call: Call) -> Result<HandlerResponse> {
    let accessor = required_accessor(&call)?;
    look_up_by(&call, SecretIdRef::Accessor(accessor))
        .await?
        .map(|known| render_secret_id(&known))
        .ok_or_else(accessor_not_found)
}

async fn look_up_by(call: &Call, named: SecretIdRef) -> Result<Option<SecretId>> {
    call.method::<AppRoleMethod>().await?.look_up_secret_id(call.param(ROLE_PARAM), named, call.state.clock.now()).await
}

fn render_secret_id(known: &SecretId) -> HandlerResponse {
    let SecretId { row, terms } = known;
    HandlerResponse::data(json!({
        "secret_id_accessor": row.accessor,
        "secret_id_num_uses": row.uses.unwrap_or(0),
        "secret_id_ttl": terms.ttl.as_secs(),
        "creation_time": format_rfc3339(terms.created_at),
        "expiration_time": row.expires_at.map_or_else(|| NO_EXPIRATION_TIME.to_owned(), format_rfc3339),
        "last_updated_time": format_rfc3339(row.updated_at),
        "metadata": terms.metadata,
        "cidr_list": terms.cidr_list,
        "token_bound_cidrs": terms.token_bound_cidrs,
    }))
}

/// Deletes a secret id by its text. Also succeeds if the secret id does not exist.
pub(super) async fn destroy(mut call: Call) -> Result<HandlerResponse> {
    let named = SecretIdRef::Text(required_text(&mut call)?);
    destroy_by(&call, named).await?;
    Ok(HandlerResponse::empty())
}

/// Deletes a secret id by its accessor. The secret id must exist.
pub(super) async fn destroy_accessor(call: Call) -> Result<HandlerResponse> {
    let accessor = required_accessor(&call)?;
    if destroy_by(&call, SecretIdRef::Accessor(accessor)).await? {
        Ok(HandlerResponse::empty())
    } else {
        Err(accessor_not_found())
    }
}

async fn destroy_by(call: &Call, named: SecretIdRef) -> Result<bool> {
    call.method::<AppRoleMethod>().await?.delete_secret_id(call.param(ROLE_PARAM), named, call.state.clock.now()).await
}

fn required_text(call: &mut Call) -> Result<Secret> {
    let text = call.fields.take_secret("secret_id")?.filter(|text| !text.expose().is_empty());
    text.ok_or_else(|| Error::invalid("missing secret_id"))
}

fn required_accessor(call: &Call) -> Result<String> {
    let accessor = call.fields.nonempty_text("secret_id_accessor")?;
    let accessor = accessor.ok_or_else(|| Error::invalid("missing secret_id_accessor"))?;
    if accessor.len() > MAX_NAME_LEN { Err(accessor_not_found()) } else { Ok(accessor) }
}

fn accessor_not_found() -> Error {
    Error::new(Kind::NotFound, "failed to find accessor entry for secret_id_accessor")
}

/// Starts the removal of expired secret ids, which otherwise happens within half a minute. They are already invalid.
pub(super) async fn tidy(call: Call) -> Result<HandlerResponse> {
    // Fails if the mount is not available.
    call.method::<AppRoleMethod>().await?;
    call.state.mounts.sweep_secret_ids();
    let started = "Tidy operation successfully started. Any information from the operation will be printed to the \
                   server logs.";
    Ok(HandlerResponse::empty().with_status(202).with_warnings(Some(started.to_owned())))
}
