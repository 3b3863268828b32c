//! The claims of a verified token of the cloud provider's directory.

use serde_json::{Map, Value};

use super::arm_id::ArmId;
use super::bounds::{CloudbRoleBounds, contains_ignore_case};
use crate::auth::login::verifier::forbidden;
use crate::error::Result;

/// Maximum number of groups accepted in a token; the directory includes at most 200.
const MAX_TOKEN_GROUPS: usize = 1000;

/// The claims of a token that identify the client, signed by the directory.
#[derive(Debug, Default)]
pub(super) struct CloudbClaims {
    /// Object id of the principal for which the token was issued; never empty.
    pub(super) oid: String,
    /// Application id of the client, in version 1 tokens; `""` for none.
    pub(super) appid: String,
    pub(super) groups: Vec<String>,
    /// `true` if the directory omitted the groups from the token because there are too many.
    overage: bool,
    /// Claim `xms_az_rid`: the resource that holds the identity; `None` if the claim is absent or not a valid id.
    pub(super) az_rid: Option<ArmId>,
    /// Claim `xms_mirid`: the identity itself, or the resource that it belongs to; `None` if the claim is absent or not
    /// a valid id.
    pub(super) mirid: Option<ArmId>,
    /// `true` if the claim `xms_az_rid` or `xms_mirid` is present, valid or not.
    pub(super) names_resource: bool,
}

impl CloudbClaims {
    /// Parses the claims of a verified token.
    ///
    /// # Errors
    /// `Forbidden` for a claim of the wrong type, and for a token without `oid`.
    pub(super) fn parse(claims: &Map<String, Value>) -> Result<Self> {
        let oid = string_claim(claims, "oid")?;
        if oid.is_empty() {
            return Err(forbidden("token has no oid"));
        }
        let groups = match claims.get("groups") {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::Array(groups)) if groups.len() <= MAX_TOKEN_GROUPS => {
                let groups: Option<Vec<String>> =
                    groups.iter().map(|group| group.as_str().map(str::to_owned)).collect();
                groups.ok_or_else(|| forbidden("token claim groups: must be a list of strings"))?
            }
            Some(_) => {
                return Err(forbidden(format!(
                    "token claim groups: must be a list of at most {MAX_TOKEN_GROUPS} strings"
                )));
            }
        };
        let left_out = claims.get("_claim_names").and_then(|names| names.get("groups")).is_some();
        let overage = left_out || claims.get("hasgroups").is_some_and(|has| *has != Value::Bool(false));
        let ids = [string_claim(claims, "xms_az_rid")?, string_claim(claims, "xms_mirid")?];
        let names_resource = ids.iter().any(|id| !id.is_empty());
        let [az_rid, mirid] = ids.map(|id| ArmId::parse(id).ok());
        let oid = oid.to_owned();
        let appid = string_claim(claims, "appid")?.to_owned();
        Ok(Self { oid, appid, groups, overage, az_rid, mirid, names_resource })
    }

    /// Validates the principal and its groups against the lists of a role.
    ///
    /// # Errors
    /// `Forbidden`, naming the violated restriction.
    pub(super) fn check_bounds(&self, bounds: &CloudbRoleBounds) -> Result<()> {
        if bounds.restricts_principals() && !contains_ignore_case(&bounds.bound_service_principal_ids, &self.oid) {
            return Err(forbidden("service principal not authorized"));
        }
        if bounds.restricts_groups()
            && !self.groups.iter().any(|group| contains_ignore_case(&bounds.bound_group_ids, group))
        {
            return Err(if self.groups.is_empty() && self.overage {
                forbidden("token claim groups: omitted by the directory, because there are too many (groups overage)")
            } else {
                forbidden("groups not authorized")
            });
        }
        Ok(())
    }
}

fn string_claim<'c>(claims: &'c Map<String, Value>, name: &str) -> Result<&'c str> {
    match claims.get(name) {
        None | Some(Value::Null) => Ok(""),
        Some(Value::String(text)) => Ok(text),
        Some(_) => Err(forbidden(format!("token claim {name}: must be a string"))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::error::Kind;

    fn read(claims: Value) -> Result<CloudbClaims> {
        let Value::Object(claims) = claims else { panic!("an object") };
        CloudbClaims::parse(&claims)
    }

    fn bounds(principals: &[&str], groups: &[&str]) -> CloudbRoleBounds {
        let list = |items: &[&str]| items.iter().map(|item| (*item).to_owned()).collect();
        CloudbRoleBounds {
            bound_service_principal_ids: list(principals),
            bound_group_ids: list(groups),
            ..CloudbRoleBounds::default()
        }
    }

    fn check_role_bounds(claims: Value, principals: &[&str], groups: &[&str]) -> Result<()> {
        read(claims)?.check_bounds(&bounds(principals, groups))
    }

    #[test]
    fn token_without_a_principal_is_refused() {
        for claims in [json!({}), json!({"oid": ""}), json!({"oid": null})] {
            assert_eq!(read(claims).unwrap_err().text(), "token has no oid");
        }
        for claims in [json!({"oid": 7}), json!({"oid": ["a"]})] {
            assert_eq!(read(claims).unwrap_err().text(), "token claim oid: must be a string");
        }
        for (name, value) in
            [("groups", json!("g")), ("groups", json!([7])), ("appid", json!(7)), ("xms_mirid", json!({}))]
        {
            assert_eq!(read(json!({"oid": "o", name: value})).unwrap_err().kind(), Kind::Forbidden, "{name}");
        }
    }

    #[test]
    fn principals_and_groups_match_in_any_letter_case() {
        let claims = || json!({"oid": "aa-11", "groups": ["bb-22", "cc-33"]});
        check_role_bounds(claims(), &["AA-11"], &[]).unwrap();
        check_role_bounds(claims(), &["aa-11"], &["CC-33"]).unwrap();
        check_role_bounds(claims(), &["*"], &["bb-22"]).unwrap();
        check_role_bounds(claims(), &["aa-11"], &["*"]).unwrap();
        assert_eq!(check_role_bounds(claims(), &["aa-1"], &[]).unwrap_err().text(), "service principal not authorized");
        // `*` among other entries has no special meaning.
        assert!(check_role_bounds(claims(), &["*", "aa-1"], &[]).is_err());
        assert!(check_role_bounds(claims(), &[], &["*", "dd"]).is_err());
        assert_eq!(check_role_bounds(claims(), &[], &["bb"]).unwrap_err().text(), "groups not authorized");
    }

    #[test]
    fn token_with_group_overage_is_refused_with_that_reason() {
        for claims in [
            json!({"oid": "o", "_claim_names": {"groups": "src1"}}),
            json!({"oid": "o", "hasgroups": true}),
            json!({"oid": "o", "hasgroups": "true"}),
        ] {
            assert!(check_role_bounds(claims.clone(), &[], &["g"]).unwrap_err().text().contains("overage"));
            check_role_bounds(claims, &["o"], &[]).unwrap();
        }
        assert_eq!(check_role_bounds(json!({"oid": "o"}), &[], &["g"]).unwrap_err().text(), "groups not authorized");
    }

    #[test]
    fn malformed_resource_id_claim_is_not_an_id() {
        let claims = read(json!({"oid": "o", "xms_mirid": "/not/an/id"})).unwrap();
        assert!(claims.names_resource && claims.mirid.is_none() && claims.az_rid.is_none());
        assert!(!read(json!({"oid": "o", "xms_mirid": ""})).unwrap().names_resource);
    }
}
