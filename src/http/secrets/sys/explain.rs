//! Explains the permissions of a token: the verdict on one request (`sys/internal/explain`), and all rules of the
//! token's policies (`sys/internal/ui/resultant-acl`).
//!
//! A token may query itself; querying other tokens needs a permission. The mount and the route of a path are included
//! only if the token's policies grant the path, so that the response reveals no more than the request itself would. A
//! write may need `create` or `update`, depending on whether the resource exists. If the token has only one of them,
//! existence is revealed only to the token itself and to callers who may read the path. For other callers `allowed` is
//! null.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::super::handler_response::HandlerResponse;
use super::super::path;
use super::super::request::ParsedRequest;
use super::super::route::{Call, Operation, RouteAccess, operation_name};
use super::super::target::ResolvedRoute;
use crate::auth::explain::{ExplainedToken, TokenStatus};
use crate::auth::mounts::MountKind;
use crate::auth::policy::explain::{Explanation, MergedRule, WrittenRule};
use crate::auth::policy::{Capabilities, MAX_PATTERN_SEGMENTS_PER_CALLER, MAX_RULES_PER_CALLER};
use crate::clock::format_rfc3339;
use crate::error::{Error, Result};
use crate::fields::Fields;

pub(super) const FIELDS: &[&str] = &["accessor", "token", "method", "path", "address", "parameters"];
/// Maximum size of the body in bytes. It limits the parameters that are compared with policy rules.
pub(super) const MAX_BODY_BYTES: usize = 64 << 10;
pub(super) const SELF_FIELDS: &[&str] = &["method", "path", "parameters"];

/// Maximum length of the client address to be checked, in bytes.
const MAX_ADDRESS_BYTES: usize = 64;

/// Maximum number of rules that a response lists besides the deciding rule, and maximum number of expired rules that it
/// lists.
const MAX_OTHER_RULES: usize = 20;

/// `POST sys/internal/explain`: explains a request of another token, given by its accessor or its text. `address` is
/// the address from which the token would be used.
pub(super) async fn explain_other(call: Call) -> Result<HandlerResponse> {
    let auth = &call.state.auth;
    let text = |name: &str| call.fields.text(name).map(|text| text.filter(|t| !t.is_empty()));
    let subject = match (text("accessor")?, text("token")?) {
        (Some(accessor), None) => {
            auth.explained_token_by_accessor(&accessor).await?.ok_or_else(|| Error::invalid("invalid accessor"))?
        }
        (None, Some(token)) => {
            auth.explained_token_by_token(&token).await?.ok_or_else(|| Error::invalid("token: not known"))?
        }
        _ => return Err(Error::invalid("accessor, token: exactly one of them must be given")),
    };
    let address = call.fields.text_within("address", MAX_ADDRESS_BYTES)?.filter(|text| !text.is_empty());
    let unreadable = || Error::invalid("address: must be an IP address");
    let address = address.map(|text| text.parse::<IpAddr>().map_err(|_| unreadable())).transpose()?;
    explain(&call, &subject, address).await
}

/// `POST sys/internal/explain-self`: explains a request of the caller's own token.
pub(super) async fn explain_self(call: Call) -> Result<HandlerResponse> {
    let subject = ExplainedToken { caller: call.caller()?.clone(), state: TokenStatus::Live };
    explain(&call, &subject, call.address).await
}

/// `GET sys/internal/ui/resultant-acl`: the caller's rules by path. In glob patterns without `+`, the final `*` is
/// omitted.
pub(super) async fn resultant_acl(call: Call) -> Result<HandlerResponse> {
    let caller = call.caller()?;
    let by_kind = |rules: BTreeMap<String, MergedRule>| {
        let mut exact = Map::new();
        let mut globs = Map::new();
        for (path, merged) in rules {
            let terms = Value::Object(merged.render_terms());
            let has_plus = path.split('/').any(|segment| segment == "+");
            match path.strip_suffix('*') {
                Some(begin) if !has_plus => globs.insert(begin.to_owned(), terms),
                None if !has_plus => exact.insert(path, terms),
                _ => globs.insert(path, terms),
            };
        }
        (exact, globs)
    };
    let (exact, globs) = match caller.is_root() {
        true => Default::default(),
        false => call.state.auth.rules(caller, by_kind).await?,
    };
    Ok(HandlerResponse::data(json!({ "root": caller.is_root(), "exact_paths": exact, "glob_paths": globs })))
}

fn parse_query(call: &Call) -> Result<ParsedRequest> {
    let method = call.fields.text("method")?.unwrap_or_default().to_ascii_uppercase();
    let operation = match method.as_str() {
        "GET" | "HEAD" => Operation::Read,
        "LIST" => Operation::List,
        "POST" | "PUT" => Operation::Update,
        "PATCH" => Operation::Patch,
        "DELETE" => Operation::Delete,
        _ => return Err(Error::invalid("method: must be GET, HEAD, LIST, POST, PUT, PATCH or DELETE")),
    };
    let given = call.fields.text("path")?.unwrap_or_default();
    let bare = given.trim_start_matches('/');
    let bare = bare.strip_prefix("v1/").unwrap_or(bare);
    if bare.is_empty() {
        return Err(Error::invalid("path: must be given"));
    }
    let mut path = path::validate(bare).map_err(|error| Error::invalid(error.text().to_owned()))?.into_owned();
    match operation {
        Operation::List if !path.ends_with('/') => path.push('/'),
        Operation::Update | Operation::Patch if path.ends_with('/') => {
            return Err(Error::invalid("path: must not end in '/' for writes"));
        }
        _ => {}
    }
    Ok(ParsedRequest { operation, path, query: Vec::new(), help: false, tail: None })
}

async fn explain(call: &Call, subject: &ExplainedToken, address: Option<IpAddr>) -> Result<HandlerResponse> {
    let mut parsed = parse_query(call)?;
    let requested_path = parsed.path.clone();
    let auth = &call.state.auth;
    let target = ResolvedRoute::resolve(&auth.mounts(), &mut parsed);
    let list = parsed.operation == Operation::List;
    let explanation = auth.explain(&subject.caller, target.request_path(&parsed), list).await?;
    let needed = required_capability(call, subject, &target, &parsed).await?;
    let parameters = check_parameters(call, &target, &explanation, needed.unwrap_or(parsed.operation))?;
    let verdict = AccessVerdict::new(subject, address, &explanation, target.access(), (needed, &parameters));
    let mut data = json!({
        "allowed": verdict.allowed,
        "reason": verdict.reason,
        "operation": operation_name(needed.unwrap_or(parsed.operation)),
        "path": requested_path,
        "token": token_json(subject),
        "needs": verdict.needs,
    });
    if verdict.passes_policies {
        data["path"] = parsed.path.as_str().into();
        data["mount"] = target.mount.as_ref().map(|mount| mount.path.clone()).into();
        data["route"] = target.pattern().into();
    }
    if let Some(decides) = explanation.decides.filter(|_| verdict.applies_rules) {
        data["decided_by"] = rule_json(&decides, None);
        let others = explanation.others.iter().take(MAX_OTHER_RULES);
        data["others"] = others.map(|(other, why)| rule_json(other, Some(*why))).collect();
    }
    if verdict.applies_rules && !explanation.expired.is_empty() {
        data["expired"] = explanation.expired.iter().take(MAX_OTHER_RULES).map(position_json).collect();
    }
    Ok(HandlerResponse::data(data))
}

/// Verdict on the parameters of the explained request.
enum ParameterVerdict {
    /// The query has no parameters: the result applies to all parameters that the rule permits.
    Unknown,
    /// The deciding rule permits the parameters.
    Permitted,
    /// The parameters violate the deciding rule, as the text explains.
    Violating(String),
}

/// Checks the query's `parameters`, an object like the body of the explained request, against the deciding rule.
fn check_parameters(
    call: &Call,
    target: &ResolvedRoute,
    explanation: &Explanation,
    operation: Operation,
) -> Result<ParameterVerdict> {
    let fields = match call.fields.value("parameters").filter(|value| !value.is_null()) {
        None => return Ok(ParameterVerdict::Unknown),
        Some(Value::Object(members)) => {
            let mut fields = Fields::default();
            members.iter().for_each(|(name, value)| fields.set(name, value.clone()));
            fields
        }
        Some(_) => {
            return Err(Error::invalid(
                "parameters: must be a JSON object whose members are the fields of the request",
            ));
        }
    };
    let rules = explanation.decides.as_ref().map(|rule| &rule.terms.parameters);
    let violation = target.with_parameters(&fields, |parameters| rules?.violation(operation, &parameters?));
    Ok(violation.map_or(ParameterVerdict::Permitted, ParameterVerdict::Violating))
}

/// Returns the capability that the explained request needs; `None` if it depends on the existence of a resource that
/// must not be revealed. Existence in a cubbyhole is revealed only to the token that owns it.
async fn required_capability(
    call: &Call,
    subject: &ExplainedToken,
    target: &ResolvedRoute,
    parsed: &ParsedRequest,
) -> Result<Option<Operation>> {
    let state = &call.state;
    let caller = call.caller()?;
    let is_own = Arc::ptr_eq(caller, &subject.caller);
    let is_kept_by_token = target.mount.as_ref().is_some_and(|mount| mount.kind == MountKind::Cubbyhole);
    let may_read = || state.auth.decide(caller, Operation::Read, target.request_path(parsed), None).allowed;
    if is_own || !is_kept_by_token && may_read() {
        return target.needed_operation(state, &subject.caller, parsed).await.map(Some);
    }
    Ok((!target.depends_on_existence(state, &subject.caller, parsed)).then_some(parsed.operation))
}

/// Renders the explained token, without its text or accessor.
fn token_json(subject: &ExplainedToken) -> Value {
    let caller = &subject.caller;
    json!({
        "state": subject.state.name(),
        "display_name": caller.display_name,
        "policies": caller.policies,
        "identity_policies": caller.identity_policies(),
        "expire_time": caller.expires_at.map(format_rfc3339),
        "uses_left": caller.uses_left(),
        "bound_cidrs": caller.bound_cidrs,
    })
}

/// Renders a rule with its positions in the policies, and the reason `why` it does not decide.
fn rule_json(rule: &MergedRule, why: Option<&str>) -> Value {
    let mut terms = rule.render_terms();
    terms.insert("written".to_owned(), rule.written.iter().map(position_json).collect());
    if let Some(why) = why {
        terms.insert("why_not".to_owned(), why.into());
    }
    Value::Object(terms)
}

fn position_json(written: &WrittenRule) -> Value {
    let mut position = json!({ "policy": written.policy, "path": written.path });
    if let Some(comment) = &written.comment {
        position["comment"] = comment.as_str().into();
    }
    position
}

struct AccessVerdict {
    /// `None` if the verdict depends on the existence of the resource.
    allowed: Option<bool>,
    reason: String,
    /// The capabilities that the request needs; empty if policies do not decide.
    needs: Vec<&'static str>,
    /// `true` if policy rules decide; `false` for root tokens, and on routes that need no permission.
    applies_rules: bool,
    /// `true` if the policies allow the request, so that its own response would reveal the mount and the route.
    passes_policies: bool,
}

impl AccessVerdict {
    fn new(
        subject: &ExplainedToken,
        address: Option<IpAddr>,
        explanation: &Explanation,
        access: RouteAccess,
        (needed, parameters): (Option<Operation>, &ParameterVerdict),
    ) -> Self {
        let open = |reason: &str| Self {
            allowed: Some(true),
            reason: reason.to_owned(),
            needs: Vec::new(),
            applies_rules: false,
            passes_policies: true,
        };
        if access == RouteAccess::Open {
            return open("the route is open: no token is required");
        }
        let by_policies = match access {
            _ if subject.caller.is_root() => open("the token holds the policy root, which grants everything"),
            RouteAccess::Caller => open("any valid token may call this route; the response depends on its policies"),
            access => match (needed, parameters) {
                (Some(operation), _) => Self::of_rules(explanation, access == RouteAccess::Sudo, operation, parameters),
                (None, ParameterVerdict::Violating(violation)) => Self {
                    allowed: Some(false),
                    reason: format!("the rule does not permit these parameters: {violation}"),
                    ..Self::existence_dependent(explanation)
                },
                (None, _) => Self::existence_dependent(explanation),
            },
        };
        let unusable = match subject.state {
            TokenStatus::Live if address.is_none() || subject.caller.allows_address(address) => return by_policies,
            TokenStatus::Live => "the token's bound_cidrs do not contain the address".to_owned(),
            TokenStatus::EntityDisabled => "the token cannot be used: its entity is disabled".to_owned(),
            state => format!("the token cannot be used any more: it is {}", state.name()),
        };
        Self { allowed: Some(false), reason: unusable, ..by_policies }
    }

    /// Returns the verdict on a write that needs either `create` or `update`, if the rule grants only one of the two.
    fn existence_dependent(explanation: &Explanation) -> Self {
        let makes = explanation.decides.as_ref().is_some_and(|rule| rule.terms.capabilities.has(Capabilities::CREATE));
        let (granted, other) = if makes { ("create", "update") } else { ("update", "create") };
        Self {
            allowed: None,
            reason: format!(
                "needs create if the resource does not exist, and update if it does: the rule grants {granted}, and \
                 does not grant {other}"
            ),
            needs: vec!["create", "update"],
            applies_rules: true,
            passes_policies: true,
        }
    }

    fn of_rules(explanation: &Explanation, sudo: bool, operation: Operation, parameters: &ParameterVerdict) -> Self {
        let needed = Capabilities::required_for(operation);
        let granted = explanation.decides.as_ref().map(|rule| rule.terms.capabilities).unwrap_or_default();
        let passes = granted.has(needed);
        let mut needs = needed.names();
        let word = needed.names().concat();
        // The response reveals that the path needs `sudo` only if the rule grants the other capability that the path
        // needs.
        if passes && sudo {
            needs.push("sudo");
        }
        let (allowed, reason) = match &explanation.decides {
            _ if explanation.too_many => (
                false,
                format!(
                    "the token's policies together have more than {MAX_RULES_PER_CALLER} rules, or more than \
                     {MAX_PATTERN_SEGMENTS_PER_CALLER} pattern segments: nothing is granted"
                ),
            ),
            None => (false, "no rule of the token's policies matches the path".to_owned()),
            Some(_) if granted.has(Capabilities::DENY) => (false, "the rule denies everything".to_owned()),
            Some(_) if !passes => (false, format!("the rule does not grant {word}")),
            Some(_) if sudo && !granted.has(Capabilities::SUDO) => {
                (false, format!("the rule grants {word}, but this path needs sudo too"))
            }
            Some(_) if let ParameterVerdict::Violating(violation) = parameters => {
                (false, format!("the rule grants {word}, but not with these parameters: {violation}"))
            }
            Some(rule) if !(rule.terms.min_wrapping.is_zero() && rule.terms.max_wrapping.is_zero()) => {
                (true, format!("the rule grants {word}, if the response is wrapped as the rule requires"))
            }
            Some(rule) if !rule.terms.parameters.is_empty() && matches!(parameters, ParameterVerdict::Unknown) => {
                (true, format!("the rule grants {word}, if the request's parameters satisfy the rule"))
            }
            Some(_) => (true, format!("the rule grants {word}")),
        };
        Self { allowed: Some(allowed), reason, needs, applies_rules: true, passes_policies: passes }
    }
}
