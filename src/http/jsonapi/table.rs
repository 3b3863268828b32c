//! The index of all routes of the projects API, for dispatch, metrics and the tests that visit every route.

use std::collections::HashMap;
use std::sync::LazyLock;

use actix_web::http::Method;

use super::query;
use super::reply::{HandlerResult, render_empty};
use super::resources::{
    account, agent_pools, locks, memberships, organizations, projects, tags, team_projects, team_workspaces, teams,
    tokens, workspaces,
};
use super::route::ProjectsRoute;
use crate::error::Kind;
use crate::projects::rejection::ApiRejection;
use crate::telemetry::RouteMeter;

const ROUTES_WITHOUT_TOKEN: &[ProjectsRoute] = &[ProjectsRoute {
    method: &Method::GET,
    pattern: "ping",
    name: "ping",
    needs_no_token: true,
    handler: |_, _| Box::pin(std::future::ready(Ok(HandlerResult::of((), render_empty)))),
}];

const ROUTE_TABLES: &[&[ProjectsRoute]] = &[
    ROUTES_WITHOUT_TOKEN,
    projects::ROUTES,
    workspaces::ROUTES,
    locks::ROUTES,
    tags::ROUTES,
    agent_pools::ROUTES,
    organizations::ROUTES,
    account::ROUTES,
    tokens::ROUTES,
    memberships::ROUTES,
    teams::ROUTES,
    team_projects::ROUTES,
    team_workspaces::ROUTES,
];

/// Iterates over all routes, for tests.
pub fn all_routes() -> impl Iterator<Item = &'static ProjectsRoute> {
    ROUTE_TABLES.iter().flat_map(|table| table.iter())
}

/// A resolved route.
pub struct ResolvedProjectsRoute {
    /// The route.
    pub route: &'static ProjectsRoute,
    /// The path parameters.
    pub params: Vec<(&'static str, String)>,
    /// The absolute path of the request, for links.
    pub path: String,
    /// The access metrics of the route.
    pub meter: &'static RouteMeter,
}

struct ProjectsRouteEntry {
    route: &'static ProjectsRoute,
    segments: Vec<&'static str>,
    meter: RouteMeter,
}

static ROUTE_INDEX: LazyLock<HashMap<usize, Vec<ProjectsRouteEntry>>> = LazyLock::new(|| {
    let mut index: HashMap<usize, Vec<ProjectsRouteEntry>> = HashMap::new();
    for route in all_routes() {
        let segments: Vec<_> = route.pattern.split('/').collect();
        let operation = match *route.method {
            Method::GET => "read",
            Method::DELETE => "delete",
            Method::PATCH => "update",
            _ => "create",
        };
        let meter = RouteMeter::new("projects", operation, route.pattern.to_owned());
        index.entry(segments.len()).or_default().push(ProjectsRouteEntry { route, segments, meter });
    }
    index
});

/// Resolves an encoded path below `/api/v2/` to its route. A trailing `/` is ignored.
///
/// # Errors
/// `NotFound` when no pattern matches; `UnsupportedMethod` when patterns match with other methods only.
pub fn resolve_route(raw_path: &str, method: &Method) -> Result<ResolvedProjectsRoute, ApiRejection> {
    let unknown = || ApiRejection::new(Kind::NotFound, "no such path");
    let raw_path = raw_path.strip_suffix('/').unwrap_or(raw_path);
    let segments: Vec<String> = raw_path.split('/').map(decode_segment).collect::<Option<_>>().ok_or_else(unknown)?;
    let method = if *method == Method::HEAD { &Method::GET } else { method };
    let mut is_known_path = false;
    // Literals take precedence over parameters, so the match with the fewest parameters is best.
    let mut best: Option<(&ProjectsRouteEntry, Vec<(&'static str, String)>)> = None;
    for entry in ROUTE_INDEX.get(&segments.len()).into_iter().flatten() {
        let Some(params) = match_segments(&entry.segments, &segments) else { continue };
        is_known_path = true;
        if entry.route.method == method && best.as_ref().is_none_or(|(_, fewest)| params.len() < fewest.len()) {
            best = Some((entry, params));
        }
    }
    match best {
        Some((entry, params)) => Ok(ResolvedProjectsRoute {
            route: entry.route,
            params,
            path: format!("/api/v2/{raw_path}"),
            meter: &entry.meter,
        }),
        None if is_known_path => {
            Err(ApiRejection::new(Kind::UnsupportedMethod, "the path does not support this method"))
        }
        None => Err(unknown()),
    }
}

/// Returns the allowed methods of a path for the `Allow` header (RFC 9110, 10.2.1).
pub fn allowed_methods(raw_path: &str) -> String {
    const METHODS: [Method; 5] = [Method::GET, Method::HEAD, Method::POST, Method::PATCH, Method::DELETE];
    let supported = METHODS.iter().filter(|method| resolve_route(raw_path, method).is_ok()).map(Method::as_str);
    supported.collect::<Vec<_>>().join(", ")
}

fn match_segments(pattern: &[&'static str], segments: &[String]) -> Option<Vec<(&'static str, String)>> {
    let mut params = Vec::new();
    for (part, segment) in pattern.iter().zip(segments) {
        match part.strip_prefix(':') {
            Some(name) if !segment.is_empty() => params.push((name, segment.clone())),
            None if part == segment => {}
            _ => return None,
        }
    }
    Some(params)
}

fn decode_segment(segment: &str) -> Option<String> {
    query::percent_decode(segment, false)
}

/// Returns the GET route of the resource that `route` changes: the route with the same path, or with the path before
/// `/relationships/` or `/actions/`. `None` if the route creates a resource in a list.
pub fn read_route_of(route: &ProjectsRoute) -> Option<&'static ProjectsRoute> {
    let of = |pattern: &str, methods: &[Method]| {
        all_routes().find(|other| other.pattern == pattern && methods.contains(other.method))
    };
    // Changing a relationship changes its resource, even if the relationship has its own GET route.
    let resource_and_rest =
        ["/relationships/", "/actions/"].into_iter().find_map(|word| route.pattern.split_once(word));
    if let Some((resource, relationship)) = resource_and_rest {
        // Tag bindings are not rendered in the document of their resource, so they have an entity tag of their own.
        let is_apart = relationship == "tag-bindings";
        return of(if is_apart { route.pattern } else { resource }, &[Method::GET]);
    }
    if route.pattern == "account/update" {
        return of("account/details", &[Method::GET]);
    }
    // A path that supports PATCH or DELETE names a single resource and not a list.
    match (of(route.pattern, &[Method::PATCH, Method::DELETE]), of(route.pattern, &[Method::GET])) {
        (Some(_), show) => show,
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_and_their_names_are_unique() {
        let mut seen = std::collections::HashSet::new();
        for route in all_routes() {
            assert!(seen.insert(format!("{} {}", route.method, route.pattern)), "{}", route.pattern);
            assert!(seen.insert(route.name.to_owned()), "{}", route.name);
        }
    }

    #[test]
    fn every_change_route_except_creation_has_a_read_route() {
        let read_of = |route: &ProjectsRoute| read_route_of(route).map(|show| show.pattern);
        for route in all_routes().filter(|route| *route.method != Method::GET) {
            let expected = match (route.method, route.pattern.rsplit('/').nth(1)) {
                (_, Some("relationships")) if route.pattern.ends_with("/tag-bindings") => Some(route.pattern),
                (_, Some("relationships" | "actions")) => route.pattern.rsplitn(3, '/').nth(2),
                (&Method::POST, _) if route.pattern.ends_with("/authentication-token") => Some(route.pattern),
                (&Method::POST, _) => None,
                _ if route.pattern == "account/update" => Some("account/details"),
                _ => Some(route.pattern),
            };
            assert_eq!(read_of(route), expected, "{} {}", route.method, route.pattern);
        }
    }

    #[test]
    fn projects_path_resolves_to_its_route() {
        let found = resolve_route("organizations/ac%6De/projects/", &Method::GET).ok().unwrap();
        assert_eq!(
            (found.route.name, found.params.as_slice()),
            ("project_list", &[("organization_name", "acme".to_owned())][..])
        );
        assert_eq!(resolve_route("projects/x", &Method::PUT).err().unwrap().kind, Kind::UnsupportedMethod);
        for path in ["", "projects", "projects/", "projects//", "nothing", "projects/%zz", "projects/x/y/z/a/b"] {
            assert_eq!(resolve_route(path, &Method::GET).err().unwrap().kind, Kind::NotFound, "{path}");
        }
    }
}
