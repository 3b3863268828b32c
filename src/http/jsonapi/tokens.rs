//! Tokens of users, teams and organizations: made, shown, revoked.
//!
//! The answer to a create is the one place where a token's text is shown; every other document has `null`
//! there and is otherwise the same.

use serde_json::{Value, json};

use super::body::{Resource, TypeRule};
use super::list::{self, Extra};
use super::render::{self, Reply};
use super::route::{Call, Route, route};
use crate::clock;
use crate::error::Kind as Cause;
use crate::projects::attributes::Attributes;
use crate::projects::caller::{Member, Subject};
use crate::projects::page::Listed;
use crate::projects::refusal::{Fault, Outcome, Refusal, Source};
use crate::projects::team::{self, Team};
use crate::projects::token::stored::{self, Holder, Kind, Token, Wanted};
use crate::projects::{Tx, escalation, organization};
use crate::secret::Secret;

pub const ROUTES: &[Route] = &[
    route!(POST "users/:user_id/authentication-tokens", "user_token_create", create_of_user),
    route!(GET "users/:user_id/authentication-tokens", "user_token_list", list_of_user),
    route!(GET "authentication-tokens/:token_id", "token_show", show),
    route!(DELETE "authentication-tokens/:token_id", "token_delete", delete),
    route!(POST "organizations/:organization_name/authentication-token", "organization_token_create", create_of_organization),
    route!(GET "organizations/:organization_name/authentication-token", "organization_token_show", show_of_organization),
    route!(DELETE "organizations/:organization_name/authentication-token", "organization_token_delete", delete_of_organization),
    route!(POST "teams/:team_id/authentication-token", "team_token_replace", replace_of_team),
    route!(GET "teams/:team_id/authentication-token", "team_token_show", show_of_team),
    route!(DELETE "teams/:team_id/authentication-token", "team_token_delete", delete_of_team),
    route!(POST "teams/:team_id/authentication-tokens", "team_token_create", create_of_team),
    route!(GET "teams/:team_id/authentication-tokens", "team_token_list", list_of_team),
];

/// The type of token documents.
const TYPE: &str = "authentication-tokens";

async fn create_of_user(tx: &mut Tx<'_>, call: &Call) -> Outcome<Reply> {
    let user = own_row(call).ok_or_else(Refusal::not_found)?;
    let wanted = wanted(tx, call)?;
    created(stored::create(tx, &call.caller, Holder::User(user), wanted).await?)
}

/// Those of somebody else are an empty list, whether or not there is such a user.
async fn list_of_user(tx: &mut Tx<'_>, call: &Call) -> Outcome<Reply> {
    let page = call.query.page()?;
    let listed = match own_row(call) {
        Some(user) => stored::list(tx, Holder::User(user), page).await?,
        None => Listed { items: Vec::new(), matching: 0 },
    };
    let items = listed.items.iter().map(|token| document(token, None)).collect();
    Ok(list::document(call, page, &[], items, listed.matching, Extra::default()))
}

/// The caller's row, when the path names the caller.
fn own_row(call: &Call) -> Option<i64> {
    match &call.caller.subject {
        Subject::User { id, ext_id, .. } if ext_id == call.param("user_id") => Some(*id),
        _ => None,
    }
}

async fn show(tx: &mut Tx<'_>, call: &Call) -> Outcome<Reply> {
    let token = stored::manageable(tx, &call.caller, call.param("token_id")).await?;
    Ok(Reply::resource(document(&token, None)))
}

async fn delete(tx: &mut Tx<'_>, call: &Call) -> Outcome<Reply> {
    let token = stored::manageable(tx, &call.caller, call.param("token_id")).await?;
    stored::delete(tx, &token).await?;
    Ok(Reply::Empty)
}

async fn create_of_organization(tx: &mut Tx<'_>, call: &Call) -> Outcome<Reply> {
    let slot = organization_slot(tx, call).await?;
    let wanted = wanted(tx, call)?;
    created(stored::replace(tx, &call.caller, slot, wanted).await?)
}

async fn show_of_organization(tx: &mut Tx<'_>, call: &Call) -> Outcome<Reply> {
    let slot = organization_slot(tx, call).await?;
    show_slot(tx, slot).await
}

async fn delete_of_organization(tx: &mut Tx<'_>, call: &Call) -> Outcome<Reply> {
    let slot = organization_slot(tx, call).await?;
    delete_slot(tx, slot).await
}

/// The slot that `?token=` names, of an organization whose owner the caller is.
async fn organization_slot(tx: &mut Tx<'_>, call: &Call) -> Outcome<Holder> {
    let member = organization::named(tx, &call.caller, call.param("organization_name")).await?;
    stored::may_manage_organizations(&member)?;
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

async fn replace_of_team(tx: &mut Tx<'_>, call: &Call) -> Outcome<Reply> {
    let team = acted_for(tx, call).await?;
    let wanted = Wanted { description: None, ..wanted(tx, call)? };
    created(stored::replace(tx, &call.caller, Holder::Team(team.id), wanted).await?)
}

async fn show_of_team(tx: &mut Tx<'_>, call: &Call) -> Outcome<Reply> {
    let team = team_of(tx, call).await?;
    show_slot(tx, Holder::Team(team.id)).await
}

async fn delete_of_team(tx: &mut Tx<'_>, call: &Call) -> Outcome<Reply> {
    let team = team_of(tx, call).await?;
    delete_slot(tx, Holder::Team(team.id)).await
}

/// One more token of a team, by its description; without one it is the one of the team's slot.
async fn create_of_team(tx: &mut Tx<'_>, call: &Call) -> Outcome<Reply> {
    let team = acted_for(tx, call).await?;
    let (wanted, holder) = (wanted(tx, call)?, Holder::Team(team.id));
    created(match wanted.description {
        Some(_) => stored::create(tx, &call.caller, holder, wanted).await?,
        None => stored::replace(tx, &call.caller, holder, wanted).await?,
    })
}

async fn list_of_team(tx: &mut Tx<'_>, call: &Call) -> Outcome<Reply> {
    let team = team_of(tx, call).await?;
    let page = call.query.page()?;
    let listed = stored::list(tx, Holder::Team(team.id), page).await?;
    let items = listed.items.iter().map(|token| document(token, None)).collect();
    Ok(list::document(call, page, &[], items, listed.matching, Extra::default()))
}

/// The team of the path, whose tokens the caller may manage.
async fn team_of(tx: &mut Tx<'_>, call: &Call) -> Outcome<Team> {
    Ok(managed(tx, call).await?.1)
}

/// The team of the path, of which the caller may make tokens: whoever has one acts with the team's rights.
async fn acted_for(tx: &mut Tx<'_>, call: &Call) -> Outcome<Team> {
    let (member, team) = managed(tx, call).await?;
    escalation::refuse_stronger(tx, &member, &team).await?;
    Ok(team)
}

async fn managed(tx: &mut Tx<'_>, call: &Call) -> Outcome<(Member, Team)> {
    let (member, team) = team::visible(tx, &call.caller, call.param("team_id")).await?;
    match team::may_manage_tokens(&call.caller, &member, &team) {
        true => Ok((member, team)),
        false => Err(Refusal::not_found().into()),
    }
}

async fn show_slot(tx: &mut Tx<'_>, slot: Holder) -> Outcome<Reply> {
    let token = stored::of_slot(tx, slot).await?.ok_or_else(Refusal::not_found)?;
    Ok(Reply::resource(document(&token, None)))
}

async fn delete_slot(tx: &mut Tx<'_>, slot: Holder) -> Outcome<Reply> {
    let token = stored::of_slot(tx, slot).await?.ok_or_else(Refusal::not_found)?;
    stored::delete(tx, &token).await?;
    Ok(Reply::Empty)
}

/// What a create asks for. Known clients send an empty type, or nothing at all.
fn wanted(tx: &Tx<'_>, call: &Call) -> Outcome<Wanted> {
    let resource = Resource::read(call, TypeRule::Any, None)?;
    let mut attributes = Attributes::new(resource.attributes());
    let wanted = Wanted::read(&mut attributes, tx.now);
    attributes.finish()?;
    Ok(wanted)
}

fn created((token, secret): (Token, Secret)) -> Outcome<Reply> {
    Ok(Reply::created(document(&token, Some(&secret))))
}

/// A token's document, the same wherever it is shown but for its text.
fn document(token: &Token, secret: Option<&Secret>) -> Value {
    let (kind, maker) = &token.created_by;
    let mut relationships = json!({ "created-by": { "data": { "id": maker, "type": kind } } });
    if let Some(team) = &token.team {
        relationships["team"] = json!({ "data": { "id": team, "type": "teams" } });
    }
    json!({
        "id": token.ext_id,
        "type": TYPE,
        "attributes": {
            "created-at": render::time(token.created_at),
            "last-used-at": token.last_used_at.map(render::time),
            "description": token.description,
            "token": secret.map(|secret| String::from_utf8_lossy(secret.expose())),
            // As precise as it was given.
            "expired-at": token.expired_at.map(clock::rfc3339),
        },
        "relationships": relationships,
        "links": { "self": format!("/api/v2/authentication-tokens/{}", token.ext_id) },
    })
}
