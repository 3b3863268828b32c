//! Tokens of users, teams and organizations: create, show, delete.
//!
//! The text of a token appears only in the response to its creation. All other documents have `null` instead.

use super::super::body::{self, Resource, TypeRule};
use super::super::documents::tokens::document;
use super::super::list::ListRequest;
use super::super::reply::{Reply, empty};
use super::super::request::Call;
use super::super::route::{Route, route};
use crate::error::Kind as Cause;
use crate::projects::api_token::{self, ApiTokenRequest, Expiry, Holder, Kind, TeamTokenFilter, Token};
use crate::projects::attributes::Attributes;
use crate::projects::caller::Subject;
use crate::projects::member::{self, Member};
use crate::projects::page::Listed;
use crate::projects::refusal::{Fault, Outcome, Refusal, Source};
use crate::projects::team::{self, Team};
use crate::projects::{Tx, escalation};
use crate::secret::Secret;

pub(crate) const ROUTES: &[Route] = &[
    route!(POST "users/:user_id/authentication-tokens", "user_token_create", create_of_user => created),
    route!(GET "users/:user_id/authentication-tokens", "user_token_list", list_of_user => listed),
    route!(GET "authentication-tokens/:token_id", "token_show", show => shown),
    route!(DELETE "authentication-tokens/:token_id", "token_delete", delete => empty),
    route!(POST "organizations/:organization_name/authentication-token", "organization_token_create", create_of_organization => created),
    route!(GET "organizations/:organization_name/authentication-token", "organization_token_show", show_of_organization => shown),
    route!(DELETE "organizations/:organization_name/authentication-token", "organization_token_delete", delete_of_organization => empty),
    route!(GET "organizations/:organization_name/team-tokens", "team_tokens_of_organization",
        list_of_all_teams => listed),
    route!(DELETE "organizations/:organization_name/team-tokens", "team_tokens_delete", delete_of_all_teams => empty),
    route!(POST "teams/:team_id/authentication-token", "team_token_replace", replace_of_team => created),
    route!(GET "teams/:team_id/authentication-token", "team_token_show", show_of_team => shown),
    route!(DELETE "teams/:team_id/authentication-token", "team_token_delete", delete_of_team => empty),
    route!(POST "teams/:team_id/authentication-tokens", "team_token_create", create_of_team => created),
    route!(GET "teams/:team_id/authentication-tokens", "team_token_list", list_of_team => listed),
];

async fn create_of_user(tx: &mut Tx<'_>, call: &Call) -> Outcome<(Token, Secret)> {
    let user = own_row(call).ok_or_else(Refusal::not_found)?;
    let wanted = wanted(tx, call)?;
    api_token::create(tx, &call.caller, Holder::User(user), wanted).await
}

/// The list for another user is empty, so that it does not reveal if that user exists.
async fn list_of_user(tx: &mut Tx<'_>, call: &Call) -> Outcome<(ListRequest, Listed<Token>)> {
    let asked = ListRequest::read(call, &[])?;
    let listed = match own_row(call) {
        Some(user) => api_token::list(tx, Holder::User(user), asked.page).await?,
        None => Listed::none(),
    };
    Ok((asked, listed))
}

fn own_row(call: &Call) -> Option<i64> {
    match &call.caller.subject {
        Subject::User { id, ext_id, .. } if ext_id == call.param("user_id") => Some(*id),
        _ => None,
    }
}

async fn show(tx: &mut Tx<'_>, call: &Call) -> Outcome<Token> {
    api_token::manageable(tx, &call.caller, call.param("token_id")).await
}

async fn delete(tx: &mut Tx<'_>, call: &Call) -> Outcome<()> {
    let token = api_token::manageable(tx, &call.caller, call.param("token_id")).await?;
    api_token::delete(tx, &token).await
}

async fn create_of_organization(tx: &mut Tx<'_>, call: &Call) -> Outcome<(Token, Secret)> {
    let slot = organization_slot(tx, call).await?;
    let wanted = wanted(tx, call)?;
    api_token::replace(tx, &call.caller, slot, wanted).await
}

async fn show_of_organization(tx: &mut Tx<'_>, call: &Call) -> Outcome<Token> {
    let slot = organization_slot(tx, call).await?;
    api_token::of_slot(tx, slot).await
}

async fn delete_of_organization(tx: &mut Tx<'_>, call: &Call) -> Outcome<()> {
    let slot = organization_slot(tx, call).await?;
    api_token::delete_of_slot(tx, slot).await
}

/// Returns the slot in `?token=` of an organization, which the caller must own.
async fn organization_slot(tx: &mut Tx<'_>, call: &Call) -> Outcome<Holder> {
    let member = member::named(tx, &call.caller, call.param("organization_name")).await?;
    member.must_own()?;
    let kind = match call.query.text("token") {
        None => Kind::Standard,
        Some(word) if word == Kind::AuditTrails.word() => Kind::AuditTrails,
        Some(_) => {
            let detail = "token must be audit-trails, or be left out".into();
            let fault = Fault { title: None, detail, source: Some(Source::Parameter("token".into())) };
            return Err(Refusal::of(Cause::Invalid, vec![fault]).into());
        }
    };
    Ok(Holder::Organization(member.organization.id, kind))
}

async fn replace_of_team(tx: &mut Tx<'_>, call: &Call) -> Outcome<(Token, Secret)> {
    let team = acted_for(tx, call).await?;
    let wanted = ApiTokenRequest { description: None, ..wanted(tx, call)? };
    api_token::replace(tx, &call.caller, Holder::Team(team.id), wanted).await
}

async fn show_of_team(tx: &mut Tx<'_>, call: &Call) -> Outcome<Token> {
    let (member, team) = managed(tx, call).await?;
    let mut token = api_token::of_slot(tx, Holder::Team(team.id)).await?;
    api_token::hide_makers(tx, &member, std::slice::from_mut(&mut token)).await?;
    Ok(token)
}

async fn delete_of_team(tx: &mut Tx<'_>, call: &Call) -> Outcome<()> {
    let (_, team) = managed(tx, call).await?;
    api_token::delete_of_slot(tx, Holder::Team(team.id)).await
}

/// Creates a token of a team. Without a description it replaces the token in the team's slot.
async fn create_of_team(tx: &mut Tx<'_>, call: &Call) -> Outcome<(Token, Secret)> {
    let team = acted_for(tx, call).await?;
    let (wanted, holder) = (wanted(tx, call)?, Holder::Team(team.id));
    match wanted.description {
        Some(_) => api_token::create(tx, &call.caller, holder, wanted).await,
        None => api_token::replace(tx, &call.caller, holder, wanted).await,
    }
}

async fn list_of_team(tx: &mut Tx<'_>, call: &Call) -> Outcome<(ListRequest, Listed<Token>)> {
    let (member, team) = managed(tx, call).await?;
    let asked = ListRequest::read(call, &[])?;
    let mut listed = api_token::list(tx, Holder::Team(team.id), asked.page).await?;
    api_token::hide_makers(tx, &member, &mut listed.items).await?;
    Ok((asked, listed))
}

async fn list_of_all_teams(tx: &mut Tx<'_>, call: &Call) -> Outcome<(ListRequest, Listed<Token>)> {
    const ENDS: &str = "filter[expiry_status]";
    let member = member::named(tx, &call.caller, call.param("organization_name")).await?;
    let asked = ListRequest::read(call, &["q", ENDS])?;
    let mut wanted = TeamTokenFilter { q: call.query.text("q").map(str::to_owned), ends: Vec::new() };
    for word in call.query.list(ENDS, 5)? {
        let unknown = || {
            let words = "active, expiring_in_7_days, expiring_in_30_days, expired, no_expiration";
            Refusal::parameter(ENDS, format!("{ENDS} must be some of {words}"))
        };
        wanted.ends.push(Expiry::of(&word).ok_or_else(unknown)?);
    }
    let listed = api_token::list_of_teams(tx, &member, &wanted, asked.page).await?;
    Ok((asked, listed))
}

async fn delete_of_all_teams(tx: &mut Tx<'_>, call: &Call) -> Outcome<()> {
    let member = member::named(tx, &call.caller, call.param("organization_name")).await?;
    let ids = body::identifiers(&call.document, "authentication-tokens")?;
    api_token::delete_of_teams(tx, &call.caller, &member, ids).await
}

/// Returns the team in the path, if the caller may create its tokens: a token acts with the team's rights.
async fn acted_for(tx: &mut Tx<'_>, call: &Call) -> Outcome<Team> {
    let (member, team) = managed(tx, call).await?;
    escalation::refuse_stronger(tx, &member, &team).await?;
    Ok(team)
}

/// Returns the team in the path, if the caller may manage its tokens.
async fn managed(tx: &mut Tx<'_>, call: &Call) -> Outcome<(Member, Team)> {
    let (member, team) = team::visible(tx, &call.caller, call.param("team_id")).await?;
    Refusal::hidden_unless(team::may_manage_tokens(&call.caller, &member, &team))?;
    Ok((member, team))
}

/// Reads the body of a create. Known clients send an empty type, or no body.
fn wanted(tx: &Tx<'_>, call: &Call) -> Outcome<ApiTokenRequest> {
    let resource = Resource::read(&call.document, TypeRule::Any, None)?;
    let mut attributes = Attributes::new(resource.attributes());
    let wanted = ApiTokenRequest::read(&mut attributes, tx.now);
    attributes.finish()?;
    Ok(wanted)
}

fn created((token, secret): (Token, Secret)) -> Reply {
    Reply::created(document(&token, Some(&secret)))
}

fn listed((asked, listed): (ListRequest, Listed<Token>)) -> Reply {
    asked.document(listed.items.iter().map(|token| document(token, None)), listed.matching, None)
}

fn shown(token: Token) -> Reply {
    Reply::resource(document(&token, None))
}
