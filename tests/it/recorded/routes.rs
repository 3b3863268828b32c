//! Finds the route of a request, and routes without requests.

use std::collections::BTreeSet;

use reqwest::{Method, Request};
use signet::http::jsonapi::table::all_routes as projects_routes;
use signet::http::secrets::all_routes as secrets_routes;
use signet::http::secrets::route::{Operation, operation_name};

use crate::support::METHODS;

/// A route: mount type (or `projects`), operation or method, pattern.
pub type Name = (&'static str, String, &'static str);

#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub struct Asked {
    pub route: Name,
    pub answered: bool,
}

pub fn all() -> Vec<Name> {
    let secrets =
        secrets_routes().map(|(kind, route)| (kind, operation_name(route.operation).to_owned(), route.pattern));
    let projects = projects_routes().map(|route| ("projects", route.method.to_string(), route.pattern));
    secrets.chain(projects).collect()
}

/// The route of a request; `None` if the path has none.
pub fn of(request: &Request) -> Option<Name> {
    let path = request.url().path();
    if let Some(path) = path.strip_prefix("/api/v2/") {
        let candidates =
            all().into_iter().filter(|(kind, method, _)| *kind == "projects" && method == request.method().as_str());
        return best(candidates, path);
    }
    let path = path.strip_prefix("/v1/")?;
    let (kind, below) = match path.split_once('/')? {
        ("sys", below) => ("system", below),
        ("cubbyhole", below) => ("cubbyhole", below),
        ("identity", below) => ("identity", below),
        ("auth", below) => {
            let (method, below) = below.split_once('/')?;
            (METHODS.into_iter().chain(["token"]).find(|kind| *kind == method)?, below)
        }
        (_, below) => ("pki", below),
    };
    let operation = operation(request)?;
    let word = operation_name(operation);
    best(all().into_iter().filter(|(k, o, _)| *k == kind && o == word), below.trim_end_matches('/'))
}

fn operation(request: &Request) -> Option<Operation> {
    let lists = request.url().query_pairs().any(|(name, value)| name == "list" && value == "true");
    Some(match *request.method() {
        Method::GET if lists => Operation::List,
        Method::GET | Method::HEAD => Operation::Read,
        Method::POST | Method::PUT => Operation::Update,
        Method::PATCH => Operation::Patch,
        Method::DELETE => Operation::Delete,
        _ if request.method().as_str() == "LIST" => Operation::List,
        _ => return None,
    })
}

fn best(candidates: impl Iterator<Item = Name>, path: &str) -> Option<Name> {
    let segments: Vec<&str> = path.split('/').collect();
    let ranked =
        candidates.filter_map(|route| Some((rank(&route.2.split('/').collect::<Vec<_>>(), &segments)?, route)));
    ranked.min_by(|(one, _), (other, _)| one.cmp(other)).map(|(_, route)| route)
}

/// The rank of a matching pattern, by segment; 0 is a literal match.
fn rank(pattern: &[&str], path: &[&str]) -> Option<Vec<u8>> {
    let Some((first, pattern)) = pattern.split_first() else {
        // A pattern that ends here ranks behind a longer one.
        return path.is_empty().then(|| vec![u8::MAX]);
    };
    let (segment, rest) = path.split_first()?;
    let then = |rank: u8, rest: &[&str]| {
        let mut ranks = self::rank(pattern, rest)?;
        ranks.insert(0, rank);
        Some(ranks)
    };
    let is_serial = |text: &str| text.chars().all(|c| c.is_ascii_hexdigit() || matches!(c, ':' | '-'));
    match *first {
        ":serial" => is_serial(segment).then(|| then(1, rest)).flatten(),
        first if first.starts_with(':') => then(2, rest),
        first if first.starts_with('*') => (0..path.len()).filter_map(|taken| then(3, &path[taken + 1..])).min(),
        first => (first == *segment).then(|| then(0, rest)).flatten(),
    }
}

/// The routes that were not called, and those that never succeeded although they could.
pub fn missing(of: impl Fn(&Name) -> bool, asked: &BTreeSet<Asked>, refuses: &[(&str, &str, &str)]) -> Vec<String> {
    let was =
        |route: &Name, answered: bool| asked.iter().any(|asked| asked.route == *route && (asked.answered || !answered));
    let refuses = |(kind, word, pattern): &Name| refuses.iter().any(|(k, w, p)| k == kind && w == word && p == pattern);
    let told = |route: Name| {
        let never = match (was(&route, false), was(&route, true) || refuses(&route)) {
            (false, _) => "is never asked",
            (true, false) => "never answers with success",
            (true, true) => return None,
        };
        Some(format!("{} {} {} {never}", route.0, route.1, route.2))
    };
    all().into_iter().filter(of).filter_map(told).collect()
}
