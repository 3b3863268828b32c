//! The vendor's API document, for organizations, people, teams, projects, workspaces, tags, tokens and agent pools:
//! each path is served, or listed here with a reason.

use std::collections::BTreeSet;

use actix_web::http::Method;
use signet::http::jsonapi::table::resolve_route;

/// Paths and methods in the document for go-tfe 2.6.
const PATHS: &[(&str, &str)] = &[
    ("account/details", "GET"),
    ("account/password", "PATCH"),
    ("account/update", "PATCH"),
    ("agent-pools/{id}", "GET PATCH DELETE"),
    ("agent-pools/{id}/agents", "GET"),
    ("agent-pools/{id}/authentication-tokens", "GET POST"),
    ("authentication-tokens/{id}", "GET DELETE"),
    ("organization-memberships", "GET"),
    ("organization-memberships/{id}", "GET DELETE"),
    ("organizations", "GET POST"),
    ("organizations/{name}", "GET PUT PATCH DELETE"),
    ("organizations/{name}/agent-pools", "GET POST"),
    ("organizations/{name}/authentication-token", "GET POST DELETE"),
    ("organizations/{name}/feature-sets", "GET"),
    ("organizations/{name}/metrics-tokens", "GET POST"),
    ("organizations/{name}/metrics-tokens/{id}", "DELETE"),
    ("organizations/{name}/organization-memberships", "GET POST"),
    ("organizations/{name}/projects", "GET POST"),
    ("organizations/{name}/recoverable-items", "GET"),
    ("organizations/{name}/relationships/data-retention-policy", "GET POST PATCH DELETE"),
    ("organizations/{name}/subscription", "PATCH"),
    ("organizations/{name}/team-tokens", "GET DELETE"),
    ("organizations/{name}/teams", "GET POST"),
    ("organizations/{name}/token-ttl-policies", "GET PATCH"),
    ("organizations/{name}/workspaces", "GET POST"),
    ("organizations/{name}/workspaces/{workspace}", "GET PATCH DELETE"),
    ("organizations/{name}/workspaces/{workspace}/actions/safe-delete", "POST"),
    ("projects/{id}", "GET PATCH DELETE"),
    ("projects/{id}/effective-tag-bindings", "GET"),
    ("projects/{id}/notification-configurations", "GET POST"),
    ("projects/{id}/provider-sets", "GET"),
    ("projects/{id}/relationships/tag-bindings", "GET POST PATCH"),
    ("projects/{id}/relationships/workspaces", "POST"),
    ("projects/{id}/varsets", "GET"),
    ("team-projects", "GET POST"),
    ("team-projects/{id}", "GET PATCH DELETE"),
    ("team-workspaces", "GET POST"),
    ("team-workspaces/{id}", "GET PATCH DELETE"),
    ("teams/{id}", "GET PATCH DELETE"),
    ("teams/{id}/authentication-token", "GET POST DELETE"),
    ("teams/{id}/notification-configurations", "GET POST"),
    ("teams/{id}/relationships/organization-memberships", "GET POST DELETE"),
    ("teams/{id}/relationships/users", "POST DELETE"),
    ("users/{id}", "GET"),
    ("users/{id}/authentication-tokens", "GET POST"),
    ("users/{id}/github-app-oauth-tokens", "GET"),
    ("workspace-transfers", "GET POST"),
    ("workspaces/{id}", "GET PATCH DELETE"),
    ("workspaces/{id}/actions/assess", "POST"),
    ("workspaces/{id}/actions/force-unlock", "POST"),
    ("workspaces/{id}/actions/lock", "POST"),
    ("workspaces/{id}/actions/safe-delete", "POST"),
    ("workspaces/{id}/actions/unlock", "POST"),
    ("workspaces/{id}/all-vars", "GET"),
    ("workspaces/{id}/applicable-varsets", "GET"),
    ("workspaces/{id}/change-requests", "GET"),
    ("workspaces/{id}/configuration-versions", "GET POST"),
    ("workspaces/{id}/current-assessment-result", "GET"),
    ("workspaces/{id}/current-state-version", "GET"),
    ("workspaces/{id}/current-state-version-outputs", "GET"),
    ("workspaces/{id}/effective-tag-bindings", "GET"),
    ("workspaces/{id}/notification-configurations", "GET POST"),
    ("workspaces/{id}/provider-sets", "GET"),
    ("workspaces/{id}/relationships/data-retention-policy", "GET PATCH DELETE"),
    ("workspaces/{id}/relationships/remote-state-consumers", "GET POST PATCH DELETE"),
    ("workspaces/{id}/relationships/ssh-key", "PATCH"),
    ("workspaces/{id}/relationships/tag-bindings", "GET POST PATCH"),
    ("workspaces/{id}/relationships/tags", "GET POST DELETE"),
    ("workspaces/{id}/relationships/vars", "PATCH"),
    ("workspaces/{id}/resources", "GET"),
    ("workspaces/{id}/run-triggers", "GET POST"),
    ("workspaces/{id}/runs", "GET"),
    ("workspaces/{id}/state-versions", "POST PATCH"),
    ("workspaces/{id}/tasks", "GET POST"),
    ("workspaces/{id}/vars", "GET POST"),
    ("workspaces/{id}/varsets", "GET"),
];

/// Path prefixes and methods that are not served, with the reason.
const NOT_SERVED: &[(&str, &str, &str)] = &[
    ("account/password", "PATCH", "users have no passwords"),
    ("agent-pools/{id}/agents", "GET", "no agents join pools"),
    ("agent-pools/{id}/authentication-tokens", "GET POST", "no agents join pools"),
    ("organizations/{name}", "PUT", "PATCH does the same, and replaces nothing by what is left out"),
    ("organizations/{name}/feature-sets", "GET", "there are no plans to buy"),
    ("organizations/{name}/metrics-tokens", "GET POST", "metrics have an exporter of their own"),
    ("organizations/{name}/metrics-tokens/{id}", "DELETE", "metrics have an exporter of their own"),
    ("organizations/{name}/recoverable-items", "GET", "what is deleted is gone"),
    ("organizations/{name}/relationships/data-retention-policy", "GET POST PATCH DELETE", "there is no state"),
    ("organizations/{name}/subscription", "PATCH", "there are no plans to buy"),
    ("organizations/{name}/token-ttl-policies", "GET PATCH", "the life of a token is given when it is made"),
    ("projects/{id}/notification-configurations", "GET POST", "nothing is notified"),
    ("projects/{id}/provider-sets", "GET", "nothing is run"),
    ("projects/{id}/varsets", "GET", "there are no variables"),
    ("teams/{id}/notification-configurations", "GET POST", "nothing is notified"),
    ("users/{id}/github-app-oauth-tokens", "GET", "there is no version control"),
    ("workspace-transfers", "GET POST", "workspaces stay in their organization"),
    ("workspaces/{id}/actions/assess", "POST", "nothing is run"),
    ("workspaces/{id}/all-vars", "GET", "there are no variables"),
    ("workspaces/{id}/applicable-varsets", "GET", "there are no variables"),
    ("workspaces/{id}/change-requests", "GET", "nothing is run"),
    ("workspaces/{id}/configuration-versions", "GET", "nothing is run"),
    ("workspaces/{id}/current-assessment-result", "GET", "nothing is run"),
    ("workspaces/{id}/current-state-version-outputs", "GET", "there is no state"),
    ("workspaces/{id}/notification-configurations", "GET POST", "nothing is notified"),
    ("workspaces/{id}/provider-sets", "GET", "nothing is run"),
    ("workspaces/{id}/relationships/data-retention-policy", "GET PATCH DELETE", "there is no state"),
    ("workspaces/{id}/relationships/remote-state-consumers", "GET POST PATCH DELETE", "there is no state"),
    ("workspaces/{id}/relationships/ssh-key", "PATCH", "there is no version control"),
    ("workspaces/{id}/relationships/vars", "PATCH", "there are no variables"),
    ("workspaces/{id}/resources", "GET", "there is no state"),
    ("workspaces/{id}/run-triggers", "GET POST", "nothing is run"),
    ("workspaces/{id}/runs", "GET", "nothing is run"),
    ("workspaces/{id}/state-versions", "POST PATCH", "there is no state"),
    ("workspaces/{id}/tasks", "GET POST", "nothing is run"),
    ("workspaces/{id}/vars", "GET POST", "there are no variables"),
    ("workspaces/{id}/varsets", "GET", "there are no variables"),
];

fn each<'p>(paths: impl IntoIterator<Item = (&'p str, &'p str)>) -> BTreeSet<(&'p str, &'p str)> {
    paths.into_iter().flat_map(|(path, methods)| methods.split(' ').map(move |method| (path, method))).collect()
}

#[test]
fn every_path_of_the_vendor_is_served_or_named_with_a_reason() {
    let all = each(PATHS.iter().copied());
    let is_served = |(path, method): &(&str, &str)| {
        let method: Method = method.parse().unwrap();
        // A parameter matches any text.
        resolve_route(&path.replace(['{', '}'], ""), &method).is_ok()
    };
    let not_served: BTreeSet<_> = all.iter().copied().filter(|one| !is_served(one)).collect();
    let named = each(NOT_SERVED.iter().map(|(path, methods, _)| (*path, *methods)));
    assert_eq!(not_served, named);
    assert!(NOT_SERVED.iter().all(|(.., reason)| !reason.is_empty()));
}
