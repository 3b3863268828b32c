//! The steps of a `cloudb` login.
//!
//! Local checks come first, so that a client with an invalid token causes no request to the provider. The only
//! exceptions are rare requests for the directory's keys. For a role without resource restrictions, the claims of the
//! token are sufficient. The identification of the client has one deadline, and holds no lock or thread while it waits.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use metrics::{counter, histogram};

use super::claims::CloudbClaims;
use super::method::CloudbMethod;
use super::proof::ProvenResource;
use super::provider::CloudbProvider;
use super::request::CloudbLoginRequest;
use super::role::CloudbRole;
use super::settings::CloudbServices;
use crate::auth::Auth;
use crate::auth::login::method::MethodView;
use crate::auth::login::method_mount::MethodMount;
use crate::auth::login::role::{MethodRole as _, fold_role_name};
use crate::auth::login::verifier::{forbidden, parse_jwt};
use crate::auth::mounts::Mount;
use crate::auth::token::{AuthenticatedLogin, LoginAlias, TokenResponse};
use crate::error::{Error, Kind, Result, Warnings};
use crate::jose::CompactJws;
use crate::telemetry;

/// Maximum time for identifying the client, including all calls to the directory and the provider.
const IDENTIFICATION_TIMEOUT: Duration = Duration::from_secs(30);

struct IdentifiedClient {
    oid: String,
    groups: Vec<String>,
    metadata: BTreeMap<String, String>,
}

/// Logs a client in, and returns its token and warnings.
///
/// # Errors
/// `Invalid` for missing or malformed fields, `Forbidden` for insufficient proof, `BadGateway` when the provider
/// rejects this service's credential, `Unavailable` when directory or provider do not respond; the errors of
/// [`Auth::log_in`].
pub(crate) async fn log_in(
    auth: &Auth,
    services: &Arc<CloudbServices>,
    mount: &Arc<Mount>,
    open: &MethodMount<CloudbMethod>,
    request: &CloudbLoginRequest,
    address: Option<IpAddr>,
) -> Result<(TokenResponse, Warnings)> {
    let begun = Instant::now();
    let done = authenticate(auth, services, mount, open, request, address).await;
    histogram!(telemetry::CLOUDB_LOGIN_SECONDS).record(begun.elapsed().as_secs_f64());
    counter!(telemetry::CLOUDB_LOGINS, "mount" => mount.meter().label(), "result" => result_label(&done)).increment(1);
    done
}

async fn authenticate(
    auth: &Auth,
    services: &Arc<CloudbServices>,
    mount: &Arc<Mount>,
    open: &MethodMount<CloudbMethod>,
    request: &CloudbLoginRequest,
    address: Option<IpAddr>,
) -> Result<(TokenResponse, Warnings)> {
    let view = open.view();
    let jwt = request.jwt.expose_text().filter(|jwt| !jwt.is_empty());
    let jwt = jwt.ok_or_else(|| Error::invalid("jwt is required"))?;
    if request.role.is_empty() {
        return Err(Error::invalid("role is required"));
    }
    let jwt = parse_jwt(jwt)?;
    let role = view
        .roles()
        .get(&request.role)
        .ok_or_else(|| Error::invalid(format!("invalid role name {:?}", request.role)))?;
    if !role.terms().admits(address) {
        return Err(Error::forbidden());
    }
    let late =
        |_| Error::new(Kind::Unavailable, "cloudb: the directory or the provider did not answer in time; log in again");
    let known = tokio::time::timeout(IDENTIFICATION_TIMEOUT, identify_client(services, &view, role, request, &jwt))
        .await
        .map_err(late)??;
    // An operator may have changed the role while the provider was slow to respond.
    if open.view().roles().get(&request.role).is_none_or(|now| **now != **role) {
        return Err(Error::new(Kind::Unavailable, "the role changed during the login; log in again"));
    }
    let IdentifiedClient { oid, groups, metadata } = known;
    auth.log_in(AuthenticatedLogin {
        mount: Arc::clone(mount),
        role: fold_role_name(&request.role),
        alias: Some(LoginAlias { name: oid.clone(), metadata: metadata.clone(), groups }),
        display_name: oid,
        meta: metadata,
        terms: role.terms().clone(),
        address,
        consumed_use: None,
    })
    .await
}

async fn identify_client(
    services: &Arc<CloudbServices>,
    view: &MethodView<CloudbMethod>,
    role: &CloudbRole,
    request: &CloudbLoginRequest,
    jwt: &CompactJws<'_>,
) -> Result<IdentifiedClient> {
    let claimed = request.claimed_resource()?;
    let tenant = view.derived().clients(view.config(), services)?;
    let claims = tenant.directory.verify(jwt).await?;
    role.bounds.require_sufficient()?;
    claims.check_bounds(&role.bounds)?;
    let mut metadata = BTreeMap::from([("role".to_owned(), fold_role_name(&request.role))]);
    for name in ["subscription_id", "resource_group_name"] {
        // These keys are always present, because policy templates refer to them.
        metadata.insert(name.to_owned(), String::new());
    }
    if role.bounds.requires_resource() {
        let proven = ProvenResource::new(&claimed, &claims, &role.bounds)?;
        let resource = tenant.provider.query_resource(&proven).await?;
        if !resource.has_principal(&claims.oid) {
            let app_id = find_owned_app_id(&tenant.provider, &proven, &claims).await?;
            metadata.insert("app_id".to_owned(), app_id);
        }
        resource.check_location(&role.bounds)?;
        let (name, value) = proven.metadata_entry();
        metadata.insert("subscription_id".to_owned(), proven.subscription.to_owned());
        metadata.insert("resource_group_name".to_owned(), proven.group.to_owned());
        metadata.insert(name.to_owned(), value);
    }
    let CloudbClaims { oid, groups, .. } = claims;
    Ok(IdentifiedClient { oid, groups: groups.into_iter().filter(|group| !group.is_empty()).collect(), metadata })
}

/// Returns the application id in the token's claims if it belongs to an identity in the proven resource group.
///
/// # Errors
/// `Forbidden` if it does not; the errors of [`CloudbProvider::has_identity_with_client_id`].
async fn find_owned_app_id(
    provider: &CloudbProvider,
    proven: &ProvenResource<'_>,
    claims: &CloudbClaims,
) -> Result<String> {
    if claims.appid.is_empty() {
        return Err(forbidden("token object id does not match expected identities, and no app id was found"));
    }
    match provider.has_identity_with_client_id(proven, &claims.appid).await? {
        true => Ok(claims.appid.clone()),
        false => Err(forbidden("neither token object id nor token app id match expected identities")),
    }
}

/// Returns the metrics label for the result of a login.
fn result_label<T>(done: &Result<T>) -> &'static str {
    match done.as_ref().map_err(Error::kind) {
        Ok(_) => "ok",
        Err(Kind::Invalid | Kind::Malformed) => "bad_request",
        Err(Kind::Forbidden) => "denied",
        Err(_) => "provider_error",
    }
}
