//! A login, step by step.
//!
//! What needs nobody comes first: a stranger with a worthless token makes this server ask nobody but the directory
//! for its keys, and that seldom. A role that asks for principals and groups alone needs the claims alone. The whole
//! of it has one deadline, and holds no lock and no thread while it waits.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use metrics::{counter, histogram};

use super::claims::Claims;
use super::method::Cloudb;
use super::proof::Proven;
use super::provider::Provider;
use super::refusal::denied;
use super::role::CloudbRole;
use super::settings::Services;
use super::shapes::LoginRequest;
use crate::auth::Auth;
use crate::auth::login::method::View;
use crate::auth::login::open::Open;
use crate::auth::login::role::{Role as _, folded};
use crate::auth::login::verifier::Jwt;
use crate::auth::mounts::Mount;
use crate::auth::token::{Alias, Given, Login};
use crate::error::{Error, Kind, Result, Warnings};
use crate::telemetry;

/// Longest time until it is known who somebody is.
const DEADLINE: Duration = Duration::from_secs(30);

/// Who somebody is, and what is known of them.
struct Known {
    oid: String,
    groups: Vec<String>,
    metadata: BTreeMap<String, String>,
}

/// Logs somebody in: their token and warnings.
///
/// # Errors
/// `Invalid` for what is missing or has not its shape, `Forbidden` for what does not prove enough, `BadGateway` when
/// the provider refuses the service's own credential, `Unavailable` when directory or provider give no answer; as
/// [`Auth::log_in`].
pub(crate) async fn log_in(
    auth: &Auth,
    services: &Arc<Services>,
    mount: &Arc<Mount>,
    open: &Open<Cloudb>,
    request: &LoginRequest,
    address: Option<IpAddr>,
) -> Result<(Given, Warnings)> {
    let begun = Instant::now();
    let done = made(auth, services, mount, open, request, address).await;
    histogram!(telemetry::CLOUDB_LOGIN_SECONDS).record(begun.elapsed().as_secs_f64());
    counter!(telemetry::CLOUDB_LOGINS, "mount" => mount.meter().label(), "result" => word(&done)).increment(1);
    done
}

async fn made(
    auth: &Auth,
    services: &Arc<Services>,
    mount: &Arc<Mount>,
    open: &Open<Cloudb>,
    request: &LoginRequest,
    address: Option<IpAddr>,
) -> Result<(Given, Warnings)> {
    let view = open.view();
    let jwt = request.jwt.expose_text().filter(|jwt| !jwt.is_empty());
    let jwt = jwt.ok_or_else(|| Error::invalid("jwt is required"))?;
    if request.role.is_empty() {
        return Err(Error::invalid("role is required"));
    }
    let jwt = Jwt::parse(jwt)?;
    let role = view
        .roles()
        .get(&request.role)
        .ok_or_else(|| Error::invalid(format!("invalid role name {:?}", request.role)))?;
    if !role.terms().admits(address) {
        return Err(Error::forbidden());
    }
    let late = |_| Error::new(Kind::Unavailable, "cloudb: directory and provider did not answer in time");
    let known = tokio::time::timeout(DEADLINE, known(services, &view, role, request, &jwt)).await.map_err(late)??;
    // The provider may have taken its time, and who was let in before may not be now.
    if open.view().roles().get(&request.role).is_none_or(|now| **now != **role) {
        return Err(Error::new(Kind::Unavailable, "the role was changed meanwhile; log in again"));
    }
    let Known { oid, groups, metadata } = known;
    auth.log_in(Login {
        mount: Arc::clone(mount),
        role: folded(&request.role),
        alias: Some(Alias { name: oid.clone(), metadata: metadata.clone(), groups }),
        display_name: oid,
        meta: metadata,
        terms: role.terms().clone(),
        address,
        spends: None,
    })
    .await
}

/// Finds out who somebody is.
async fn known(
    services: &Arc<Services>,
    view: &View<Cloudb>,
    role: &CloudbRole,
    request: &LoginRequest,
    jwt: &Jwt<'_>,
) -> Result<Known> {
    let place = request.place()?;
    let tenant = view.made().tenant(view.config(), services)?;
    let claims = tenant.directory.verified(jwt).await?;
    role.bounds.suffice()?;
    claims.fit(&role.bounds)?;
    let mut metadata = BTreeMap::from([("role".to_owned(), folded(&request.role))]);
    for name in ["subscription_id", "resource_group_name"] {
        // Templates read them, proven or not.
        metadata.insert(name.to_owned(), String::new());
    }
    if role.bounds.name_resources() {
        let proven = Proven::new(&place, &claims, &role.bounds)?;
        let resource = tenant.provider.resource(&proven).await?;
        if !resource.has(&claims.oid) {
            let app_id = owned(&tenant.provider, &proven, &claims).await?;
            metadata.insert("app_id".to_owned(), app_id);
        }
        resource.is_located(&role.bounds)?;
        let (name, value) = proven.member();
        metadata.insert("subscription_id".to_owned(), proven.subscription.to_owned());
        metadata.insert("resource_group_name".to_owned(), proven.group.to_owned());
        metadata.insert(name.to_owned(), value);
    }
    let Claims { oid, groups, .. } = claims;
    Ok(Known { oid, groups: groups.into_iter().filter(|group| !group.is_empty()).collect(), metadata })
}

/// The application of a token, when it is an identity in the group that was proven.
async fn owned(provider: &Provider, proven: &Proven<'_>, claims: &Claims) -> Result<String> {
    if claims.appid.is_empty() {
        return Err(denied("token object id does not match expected identities, and no app id was found"));
    }
    match provider.has_client(proven, &claims.appid).await? {
        true => Ok(claims.appid.clone()),
        false => Err(denied("neither token object id nor token app id match expected identities")),
    }
}

/// The outcome for the metrics, from a closed set.
fn word<T>(done: &Result<T>) -> &'static str {
    match done.as_ref().map_err(Error::kind) {
        Ok(_) => "ok",
        Err(Kind::Invalid | Kind::Malformed) => "bad_request",
        Err(Kind::Forbidden) => "denied",
        Err(_) => "provider_error",
    }
}
