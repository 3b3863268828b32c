//! Tokens of users, teams and organizations: create, show, delete.
//!
//! The text of a token appears only in the response to its creation. All other documents have `null` instead.

use serde_json::json;

use super::super::body::{self, PrimaryResource, TypeRule};
use super::super::documents::{format_time, identifier, to_one};
use super::super::list::ListRequest;
use super::super::reply::{Rendered, RenderedResult, render_empty};
use super::super::request::ProjectsCall;
use super::super::route::{ProjectsRoute, route};
use crate::clock;
use crate::error::Kind as Cause;
use crate::projects::api_token::{
    self, ApiToken, ApiTokenExpiry, ApiTokenRequest, OrganizationTokenKind, TeamTokenFilter, TokenOwner,
};
use crate::projects::caller::TokenSubject;
use crate::projects::member::{self, Member};
use crate::projects::page::ResultPage;
use crate::projects::rejection::{ApiRejection, Fault, FaultSource, WorkResult};
use crate::projects::team::{self, Team};
use crate::projects::{Tx, escalation};
use crate::secret::Secret;

pub(crate) const ROUTES: &[ProjectsRoute] = &[
    route!(POST "users/:user_id/authentication-tokens", "user_token_create", create_of_user => render_created),
    route!(GET "users/:user_id/authentication-tokens", "user_token_list", list_of_user => render_list),
    route!(GET "authentication-tokens/:token_id", "token_show", show => render_one),
    route!(DELETE "authentication-tokens/:token_id", "token_delete", delete => render_empty),
    route!(POST "organizations/:organization_name/authentication-token", "organization_token_create", create_of_organization => render_created),
    route!(GET "organizations/:organization_name/authentication-token", "organization_token_show", show_of_organization => render_one),
    route!(DELETE "organizations/:organization_name/authentication-token", "organization_token_delete", delete_of_organization => render_empty),
    route!(GET "organizations/:organization_name/team-tokens", "team_tokens_of_organization",
        list_of_all_teams => render_list),
    route!(DELETE "organizations/:organization_name/team-tokens", "team_tokens_delete", delete_of_all_teams => render_empty),
    route!(POST "teams/:team_id/authentication-token", "team_token_replace", replace_of_team => render_created),
    route!(GET "teams/:team_id/authentication-token", "team_token_show", show_of_team => render_one),
    route!(DELETE "teams/:team_id/authentication-token", "team_token_delete", delete_of_team => render_empty),
    route!(POST "teams/:team_id/authentication-tokens", "team_token_create", create_of_team => render_created),
    route!(GET "teams/:team_id/authentication-tokens", "team_token_list", list_of_team => render_list),
];

async fn create_of_user(tx: &mut Tx<'_>, call: &ProjectsCall) -> WorkResult<(ApiToken, Secret)> {
    let user = own_user_row(call).ok_or_else(ApiRejection::not_found)?;
    let wanted = read_token_request(tx, call)?;
    api_token::create(tx, &call.caller, TokenOwner::User(user), wanted).await
}

/// Lists the tokens of a user. For any other user than the caller the list is empty, so that it does not reveal whether
/// that user exists.
async fn list_of_user(tx: &mut Tx<'_>, call: &ProjectsCall) -> WorkResult<(ListRequest, ResultPage<ApiToken>)> {
    let list_request = ListRequest::read(call, &[])?;
    let listed = match own_user_row(call) {
        Some(user) => api_token::list(tx, TokenOwner::User(user), list_request.page).await?,
        None => ResultPage::empty(),
    };
    Ok((list_request, listed))
}

fn own_user_row(call: &ProjectsCall) -> Option<i64> {
    match &call.caller.subject {
        TokenSubject::User { id, ext_id, .. } if ext_id == call.param("user_id") => Some(*id),
        _ => None,
    }
}

async fn show(tx: &mut Tx<'_>, call: &ProjectsCall) -> WorkResult<ApiToken> {
    api_token::find_manageable(tx, &call.caller, call.param("token_id")).await
}

async fn delete(tx: &mut Tx<'_>, call: &ProjectsCall) -> WorkResult<()> {
    let token = api_token::find_manageable(tx, &call.caller, call.param("token_id")).await?;
    api_token::delete(tx, &token).await
}

async fn create_of_organization(tx: &mut Tx<'_>, call: &ProjectsCall) -> WorkResult<(ApiToken, Secret)> {
    let slot = organization_slot(tx, call).await?;
    let wanted = read_token_request(tx, call)?;
    api_token::replace(tx, &call.caller, slot, wanted).await
}

async fn show_of_organization(tx: &mut Tx<'_>, call: &ProjectsCall) -> WorkResult<ApiToken> {
    let slot = organization_slot(tx, call).await?;
    api_token::find_in_slot(tx, slot).await
}

async fn delete_of_organization(tx: &mut Tx<'_>, call: &ProjectsCall) -> WorkResult<()> {
    let slot = organization_slot(tx, call).await?;
    api_token::delete_in_slot(tx, slot).await
}

/// Returns the organization's token slot that the parameter `token` selects. The caller must own the organization.
async fn organization_slot(tx: &mut Tx<'_>, call: &ProjectsCall) -> WorkResult<TokenOwner> {
    let member = member::find_by_organization_name(tx, &call.caller, call.param("organization_name")).await?;
    member.require_owner()?;
    let kind = match call.query.text("token") {
        None => OrganizationTokenKind::Standard,
        Some(word) if word == OrganizationTokenKind::AuditTrails.name() => OrganizationTokenKind::AuditTrails,
        Some(_) => {
            let detail = "token must be audit-trails or omitted".into();
            let fault = Fault { title: None, detail, source: Some(FaultSource::Parameter("token".into())) };
            return Err(ApiRejection::of(Cause::Invalid, vec![fault]).into());
        }
    };
    Ok(TokenOwner::Organization(member.organization.id, kind))
}

async fn replace_of_team(tx: &mut Tx<'_>, call: &ProjectsCall) -> WorkResult<(ApiToken, Secret)> {
    let team = find_team_for_new_token(tx, call).await?;
    let wanted = ApiTokenRequest { description: None, ..read_token_request(tx, call)? };
    api_token::replace(tx, &call.caller, TokenOwner::Team(team.id), wanted).await
}

async fn show_of_team(tx: &mut Tx<'_>, call: &ProjectsCall) -> WorkResult<ApiToken> {
    let (member, team) = find_team_with_manageable_tokens(tx, call).await?;
    let mut token = api_token::find_in_slot(tx, TokenOwner::Team(team.id)).await?;
    api_token::hide_creators(tx, &member, std::slice::from_mut(&mut token)).await?;
    Ok(token)
}

async fn delete_of_team(tx: &mut Tx<'_>, call: &ProjectsCall) -> WorkResult<()> {
    let (_, team) = find_team_with_manageable_tokens(tx, call).await?;
    api_token::delete_in_slot(tx, TokenOwner::Team(team.id)).await
}

/// Creates a token of a team. A new token without a description replaces the team's previous token without one.
async fn create_of_team(tx: &mut Tx<'_>, call: &ProjectsCall) -> WorkResult<(ApiToken, Secret)> {
    let team = find_team_for_new_token(tx, call).await?;
    let wanted = read_token_request(tx, call)?;
    let holder = TokenOwner::Team(team.id);
    match wanted.description {
        Some(_) => api_token::create(tx, &call.caller, holder, wanted).await,
        None => api_token::replace(tx, &call.caller, holder, wanted).await,
    }
}

async fn list_of_team(tx: &mut Tx<'_>, call: &ProjectsCall) -> WorkResult<(ListRequest, ResultPage<ApiToken>)> {
    let (member, team) = find_team_with_manageable_tokens(tx, call).await?;
    let list_request = ListRequest::read(call, &[])?;
    let mut listed = api_token::list(tx, TokenOwner::Team(team.id), list_request.page).await?;
    api_token::hide_creators(tx, &member, &mut listed.items).await?;
    Ok((list_request, listed))
}

async fn list_of_all_teams(tx: &mut Tx<'_>, call: &ProjectsCall) -> WorkResult<(ListRequest, ResultPage<ApiToken>)> {
    const EXPIRY_STATUS_FILTER: &str = "filter[expiry_status]";
    let member = member::find_by_organization_name(tx, &call.caller, call.param("organization_name")).await?;
    let list_request = ListRequest::read(call, &["q", EXPIRY_STATUS_FILTER])?;
    let mut wanted = TeamTokenFilter { q: call.query.text("q").map(str::to_owned), expiries: Vec::new() };
    for word in call.query.list(EXPIRY_STATUS_FILTER, 5)? {
        let unknown = || {
            let words = "active, expiring_in_7_days, expiring_in_30_days, expired, no_expiration";
            ApiRejection::parameter(
                EXPIRY_STATUS_FILTER,
                format!("{EXPIRY_STATUS_FILTER} must be a comma-separated list of {words}"),
            )
        };
        wanted.expiries.push(ApiTokenExpiry::of(&word).ok_or_else(unknown)?);
    }
    let listed = api_token::list_team_tokens(tx, &member, &wanted, list_request.page).await?;
    Ok((list_request, listed))
}

async fn delete_of_all_teams(tx: &mut Tx<'_>, call: &ProjectsCall) -> WorkResult<()> {
    let member = member::find_by_organization_name(tx, &call.caller, call.param("organization_name")).await?;
    let ids = body::read_typed_ids(&call.document, "authentication-tokens")?;
    api_token::delete_team_tokens(tx, &call.caller, &member, ids).await
}

/// Returns the team in the path, if the caller may create its tokens. A token has the team's rights, so the team must
/// not have rights that the caller lacks.
async fn find_team_for_new_token(tx: &mut Tx<'_>, call: &ProjectsCall) -> WorkResult<Team> {
    let (member, team) = find_team_with_manageable_tokens(tx, call).await?;
    escalation::reject_stronger_team(tx, &member, &team).await?;
    Ok(team)
}

/// Returns the team in the path, if the caller may manage its tokens.
async fn find_team_with_manageable_tokens(tx: &mut Tx<'_>, call: &ProjectsCall) -> WorkResult<(Member, Team)> {
    let (member, team) = team::find_visible(tx, &call.caller, call.param("team_id")).await?;
    ApiRejection::not_found_unless(team::may_manage_tokens(&call.caller, &member, &team))?;
    Ok((member, team))
}

/// Reads the body of a request that creates a token. Known clients send an empty type, or no body.
fn read_token_request(tx: &Tx<'_>, call: &ProjectsCall) -> WorkResult<ApiTokenRequest> {
    let resource = PrimaryResource::read(&call.document, TypeRule::Any, None)?;
    resource.read_attributes(|attributes| ApiTokenRequest::read(attributes, tx.now))
}

fn render_created((token, secret): (ApiToken, Secret)) -> RenderedResult {
    RenderedResult::created(document(&token, Some(&secret)))
}

fn render_list((list_request, listed): (ListRequest, ResultPage<ApiToken>)) -> RenderedResult {
    list_request.document(listed.items.iter().map(|token| document(token, None)), listed.matching, None)
}

fn render_one(token: ApiToken) -> RenderedResult {
    RenderedResult::resource(document(&token, None))
}

/// Renders a token. `secret` is the text of a token that was just created; without it, the document has `null` instead.
fn document(token: &ApiToken, secret: Option<&Secret>) -> Rendered {
    let maker = token.created_by.as_ref().map(|(kind, id)| identifier(kind, id));
    let mut relationships = json!({ "created-by": { "data": maker } });
    if let Some(team) = &token.team {
        relationships["team"] = to_one("teams", Some(team));
    }
    json!({
        "id": token.ext_id,
        "type": "authentication-tokens",
        "attributes": {
            "created-at": format_time(token.created_at),
            "last-used-at": token.last_used_at.map(format_time),
            "description": token.description,
            "token": secret.map(|secret| String::from_utf8_lossy(secret.expose())),
            // Formatted with the precision that the client sent.
            "expired-at": token.expired_at.map(clock::format_rfc3339),
        },
        "relationships": relationships,
        "links": { "self": format!("/api/v2/authentication-tokens/{}", token.ext_id) },
    })
    .into()
}
