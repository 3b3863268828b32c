//! Tokens.

use serde_json::json;

use super::super::reply::Rendered;
use super::pieces::{identifier, time, to_one};
use crate::clock;
use crate::projects::api_token::ApiToken;
use crate::secret::Secret;

/// A token. `secret` is its text, known only when the token was just created; otherwise the text is `null`.
pub(crate) fn document(token: &ApiToken, secret: Option<&Secret>) -> Rendered {
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
            // With the precision that the client sent.
            "expired-at": token.expired_at.map(clock::format_rfc3339),
        },
        "relationships": relationships,
        "links": { "self": format!("/api/v2/authentication-tokens/{}", token.ext_id) },
    })
    .into()
}
