//! Tokens.

use serde_json::json;

use super::super::reply::Rendered;
use super::pieces::{identifier, time, to_one};
use crate::clock;
use crate::projects::api_token::Token;
use crate::secret::Secret;

/// A token; its text where that was just made, and `null` ever after.
pub(crate) fn document(token: &Token, secret: Option<&Secret>) -> Rendered {
    let maker = token.created_by.as_ref().map(|(kind, id)| identifier(kind, id));
    let mut relationships = json!({ "created-by": { "data": maker } });
    if let Some(team) = &token.team {
        relationships["team"] = to_one("teams", Some(team));
    }
    json!({
        "id": token.ext_id,
        "type": "authentication-tokens",
        "attributes": {
            "created-at": time(token.created_at),
            "last-used-at": token.last_used_at.map(time),
            "description": token.description,
            "token": secret.map(|secret| String::from_utf8_lossy(secret.expose())),
            // As precise as it was given.
            "expired-at": token.expired_at.map(clock::rfc3339),
        },
        "relationships": relationships,
        "links": { "self": format!("/api/v2/authentication-tokens/{}", token.ext_id) },
    })
    .into()
}
