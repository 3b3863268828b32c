//! An index of the route table of a kind of mount, which resolves paths to routes. It is built once.
//!
//! Patterns are grouped by their first segment and tried from the most to the least specific.

use std::collections::HashMap;

use super::route::{Operation, PathParams, Route, operation_name};
use crate::auth::policy::{NameSegments, Spelling};
use crate::telemetry::RouteMeter;
use crate::x509::serial::strip_hex_prefix;

pub use crate::fields::MAX_NAME_LEN;
use crate::fields::is_name;

/// The result of resolving a path and an operation.
pub enum RouteMatch<'i> {
    /// The path and the operation have a route.
    Route(&'i PathPattern, &'static Route, PathParams),
    /// A pattern matches the path, but has no route for the operation.
    OtherOperation(&'i PathPattern),
    /// No pattern matches the path.
    NoMatch,
}

/// A path pattern and its routes, one per operation.
pub struct PathPattern {
    segments: Vec<PatternSegment>,
    /// `true` if the pattern has a `*rest` or `**tail`, so that paths with more segments match too.
    open_ended: bool,
    /// The rule for alternative spellings of each parameter; `None` for parameters without any.
    spellings: Box<[Option<Spelling>]>,
    routes: [Option<(&'static Route, RouteMeter)>; OPERATION_COUNT],
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum PatternSegment {
    // The variants are in the order in which patterns are tried.
    Literal(&'static str),
    Serial(&'static str),
    Name(&'static str),
    Rest(&'static str),
    Tail(&'static str),
}

const OPERATION_COUNT: usize = 6;

/// A path below a mount with its names in canonical spelling.
pub struct CanonicalPath {
    /// The path in canonical spelling.
    pub path: String,
    /// The path parameters.
    pub params: PathParams,
    /// The path segments whose names have alternative spellings.
    pub spelt: Vec<NameSegments>,
    /// `true` if the client sent a name that was not in canonical spelling.
    pub was_normalized: bool,
    /// `true` if the client's path named a type of managed keys as a compatible server does. That name was replaced by
    /// this server's name.
    pub used_alias: bool,
}

/// The routes of a kind of mount, by path.
pub struct RouteIndex {
    by_first_literal: HashMap<&'static str, Vec<PathPattern>>,
    without_first_literal: Vec<PathPattern>,
}

impl RouteIndex {
    /// Builds the index of `routes`. `kind` is part of the route names in the metrics.
    pub fn new(kind: &'static str, routes: &[&'static [Route]]) -> Self {
        let mut patterns: HashMap<&'static str, PathPattern> = HashMap::new();
        for route in routes.iter().copied().flatten() {
            let entry = patterns.entry(route.pattern).or_insert_with(|| PathPattern::new(route.pattern));
            entry.routes[operation_index(route.operation)] = Some((route, route_meter(kind, route)));
        }
        let mut index = Self { by_first_literal: HashMap::new(), without_first_literal: Vec::new() };
        for entry in patterns.into_values() {
            match entry.segments.first() {
                Some(PatternSegment::Literal(first)) => index.by_first_literal.entry(first).or_default().push(entry),
                _ => index.without_first_literal.push(entry),
            }
        }
        for list in index.by_first_literal.values_mut().chain([&mut index.without_first_literal]) {
            list.sort_by(|a, b| compare_specificity(&a.segments, &b.segments));
        }
        index
    }

    /// Resolves a path below the mount. A trailing `/` is valid only for lists: policies distinguish paths with and
    /// without it, so for other operations the two paths must not resolve to the same route.
    pub fn find(&self, path: &str, operation: Operation) -> RouteMatch<'_> {
        let (path, slash) = path.strip_suffix('/').map_or((path, false), |path| (path, true));
        let mut other = None;
        for (entry, params) in self.matching(path) {
            let lists = entry.route(Operation::List).is_some();
            if slash && !lists {
                continue;
            }
            match entry.route(operation) {
                Some(route) if !slash || operation == Operation::List => {
                    return RouteMatch::Route(entry, route, params);
                }
                _ => other = other.or(Some(entry)),
            }
        }
        other.map_or(RouteMatch::NoMatch, RouteMatch::OtherOperation)
    }

    /// Returns the index in `raw` at which the `**tail` begins, after the preceding `/`, if a pattern with a tail
    /// matches.
    pub fn tail_start(&self, raw: &str) -> Option<usize> {
        let first = raw.split('/').next().unwrap_or_default();
        self.by_first_literal.get(first)?.iter().find_map(|entry| entry.tail_start(raw))
    }

    /// Resolves a path from which the part that matches `**tail` was removed.
    pub fn find_tail_route(&self, path: &str, operation: Operation) -> RouteMatch<'_> {
        let first = path.split('/').next().unwrap_or_default();
        let mut entries = self.by_first_literal.get(first).into_iter().flatten();
        let slashed = [path, "/"].concat();
        match entries.find(|entry| entry.tail_start(&slashed) == Some(slashed.len())) {
            Some(entry) => match entry.route(operation) {
                Some(route) => RouteMatch::Route(entry, route, PathParams::default()),
                None => RouteMatch::OtherOperation(entry),
            },
            None => RouteMatch::NoMatch,
        }
    }

    /// Returns a path in canonical spelling, for any operation; `None` if no name in it has alternative spellings.
    pub fn canonical(&self, path: &str) -> Option<CanonicalPath> {
        let bare = path.strip_suffix('/').unwrap_or(path);
        self.matching(bare).find_map(|(entry, params)| entry.canonical(path, &params))
    }

    fn matching<'i, 'p>(&'i self, path: &'p str) -> impl Iterator<Item = (&'i PathPattern, PathParams)> + use<'i, 'p> {
        let first = path.split('/').next().unwrap_or_default();
        let count = path.bytes().filter(|b| *b == b'/').count() + 1;
        let literal = self.by_first_literal.get(first).map(Vec::as_slice).unwrap_or_default();
        literal
            .iter()
            .chain(&self.without_first_literal)
            .filter_map(move |entry| Some((entry, entry.match_path(path, count)?)))
    }
}

impl PathPattern {
    fn new(pattern: &'static str) -> Self {
        let segments: Vec<_> = pattern.split('/').map(PatternSegment::of).collect();
        let open_ended = segments.iter().any(|s| matches!(s, PatternSegment::Rest(_) | PatternSegment::Tail(_)));
        let spellings =
            segments.iter().filter(|s| !matches!(s, PatternSegment::Literal(_))).map(|s| s.spelling()).collect();
        Self { segments, open_ended, spellings, routes: [const { None }; OPERATION_COUNT] }
    }

    /// Returns the canonical spelling of a path that this pattern matches; `None` if no name in it has alternative
    /// spellings.
    pub fn canonical(&self, path: &str, params: &PathParams) -> Option<CanonicalPath> {
        let names = || self.spellings.iter().zip(params.iter(path)).zip(params.ranges());
        if !names()
            .any(|((spelling, (_, value)), _)| spelling.is_some_and(|spelling| spelling.has_other_spellings(value)))
        {
            return None;
        }
        let mut canonical = CanonicalPath {
            path: String::with_capacity(path.len()),
            params: PathParams::default(),
            spelt: Vec::new(),
            was_normalized: false,
            used_alias: false,
        };
        let mut at = 0;
        for ((spelling, (name, value)), range) in names() {
            canonical.path.push_str(&path[at..range.start]);
            let from = canonical.path.len();
            match spelling.filter(|spelling| spelling.has_other_spellings(value)) {
                None => canonical.path.push_str(value),
                Some(spelling) => {
                    let segments = canonical.path.matches('/').count();
                    canonical.spelt.push(NameSegments::of(spelling, segments));
                    let name = spelling.canonical(value);
                    match spelling {
                        Spelling::KeyBackend => canonical.used_alias |= *name != *value,
                        _ => canonical.was_normalized |= *name != *value,
                    }
                    canonical.path.push_str(&name);
                }
            }
            canonical.params.push(name, from, canonical.path.len());
            at = range.end;
        }
        canonical.path.push_str(&path[at..]);
        Some(canonical)
    }

    /// Returns the route of an operation.
    pub fn route(&self, operation: Operation) -> Option<&'static Route> {
        self.routes[operation_index(operation)].as_ref().map(|(route, _)| *route)
    }

    /// Iterates over the routes of the pattern.
    pub fn routes(&self) -> impl Iterator<Item = &'static Route> {
        self.routes.iter().flatten().map(|(route, _)| *route)
    }

    /// Returns the access metrics of an operation's route.
    pub fn meter(&self, operation: Operation) -> Option<&RouteMeter> {
        self.routes[operation_index(operation)].as_ref().map(|(_, meter)| meter)
    }

    fn tail_start(&self, raw: &str) -> Option<usize> {
        let (PatternSegment::Tail(_), literals) = self.segments.split_last()? else { return None };
        let mut at = 0;
        for literal in literals {
            let PatternSegment::Literal(literal) = literal else { return None };
            at += raw.get(at..)?.strip_prefix(literal)?.starts_with('/').then_some(literal.len() + 1)?;
        }
        Some(at)
    }

    fn match_path(&self, path: &str, count: usize) -> Option<PathParams> {
        if count < self.segments.len() || (count > self.segments.len() && !self.open_ended) {
            return None;
        }
        // Number of segments that `*rest` or `**tail` matches after its first one.
        let mut extra = count - self.segments.len();
        let mut params = PathParams::default();
        let mut at = 0;
        for segment in &self.segments {
            let mut end = at + path.get(at..)?.split('/').next()?.len();
            if let PatternSegment::Rest(_) | PatternSegment::Tail(_) = segment {
                while extra > 0 {
                    end += 1 + path.get(end + 1..)?.split('/').next()?.len();
                    extra -= 1;
                }
            }
            segment.accepts(path.get(at..end)?, at..end, &mut params).then_some(())?;
            at = end + 1;
        }
        Some(params)
    }
}

impl PatternSegment {
    fn of(text: &'static str) -> Self {
        match text.as_bytes().first() {
            Some(b':') if text == ":serial" => Self::Serial(&text[1..]),
            Some(b':') => Self::Name(&text[1..]),
            Some(b'*') if text.starts_with("**") => Self::Tail(&text[2..]),
            Some(b'*') => Self::Rest(&text[1..]),
            _ => Self::Literal(text),
        }
    }

    /// Returns the rule for alternative spellings of the parameter in this segment.
    fn spelling(self) -> Option<Spelling> {
        match self {
            Self::Serial(_) => Some(Spelling::Serial),
            Self::Name(name) if name.ends_with("_ref") => Some(Spelling::Reference),
            Self::Name("managed_key" | "login_role") => Some(Spelling::KeyName),
            Self::Name("backend") => Some(Spelling::KeyBackend),
            Self::Rest("name") => Some(Spelling::PolicyName),
            _ => None,
        }
    }

    fn accepts(self, text: &str, range: std::ops::Range<usize>, params: &mut PathParams) -> bool {
        let (name, taken) = match self {
            Self::Literal(literal) => return literal == text,
            Self::Serial(name) => (name, is_serial(text)),
            Self::Name(name) => (name, is_name(text)),
            Self::Rest(name) | Self::Tail(name) => (name, !text.is_empty()),
        };
        params.push(name, range.start, range.end);
        taken
    }
}

fn is_serial(text: &str) -> bool {
    let digits = strip_hex_prefix(text);
    !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_hexdigit() || matches!(b, b':' | b'-'))
}

/// Orders patterns from specific to general. The first segments that differ decide; a longer pattern precedes its own
/// prefix.
fn compare_specificity(a: &[PatternSegment], b: &[PatternSegment]) -> std::cmp::Ordering {
    let difference = a.iter().zip(b).map(|(a, b)| a.cmp(b)).find(|order| order.is_ne());
    difference.unwrap_or_else(|| b.len().cmp(&a.len()))
}

fn route_meter(kind: &str, route: &Route) -> RouteMeter {
    RouteMeter::new("secrets", operation_name(route.operation), format!("{kind}/{}", route.pattern))
}

fn operation_index(operation: Operation) -> usize {
    match operation {
        Operation::Read => 0,
        Operation::List => 1,
        Operation::Create => 2,
        Operation::Update => 3,
        Operation::Patch => 4,
        Operation::Delete => 5,
    }
}

#[cfg(test)]
mod tests {
    use super::super::handler_response::HandlerResponse;
    use super::*;
    use proptest::prelude::*;

    static ROUTES: &[Route] = &[
        Route::token(Operation::List, "roles", &[], |_| Box::pin(async { Ok(HandlerResponse::empty()) })),
        Route::token(Operation::Read, "roles/:name", &[], |_| Box::pin(async { Ok(HandlerResponse::empty()) })),
        Route::token(Operation::Read, "cert/:serial", &[], |_| Box::pin(async { Ok(HandlerResponse::empty()) })),
        Route::token(Operation::Read, "cert/ca", &[], |_| Box::pin(async { Ok(HandlerResponse::empty()) })),
        Route::token(Operation::Read, "mounts/*path", &[], |_| Box::pin(async { Ok(HandlerResponse::empty()) })),
        Route::token(Operation::Update, "mounts/*path/tune", &[], |_| Box::pin(async { Ok(HandlerResponse::empty()) })),
        Route::token(Operation::Read, "mounts/*path/tune", &[], |_| Box::pin(async { Ok(HandlerResponse::empty()) })),
        Route::token(Operation::Read, "issuer/:ref/crl/:kind", &[], |_| {
            Box::pin(async { Ok(HandlerResponse::empty()) })
        }),
    ];

    static TAILED_ROUTES: &[Route] = &[
        Route::open(Operation::Read, "ocsp/**text", &[], |_| Box::pin(async { Ok(HandlerResponse::empty()) })),
        Route::open(Operation::Update, "ocsp", &[], |_| Box::pin(async { Ok(HandlerResponse::empty()) })),
        Route::open(Operation::Read, "a/b/**text", &[], |_| Box::pin(async { Ok(HandlerResponse::empty()) })),
    ];

    fn match_text(path: &str, operation: Operation) -> String {
        let index = RouteIndex::new("pki", &[ROUTES]);
        match index.find(path, operation) {
            RouteMatch::Route(_, route, params) => {
                let values: Vec<_> = params.iter(path).map(|(n, v)| format!("{n}={v}")).collect();
                format!("{} {}", route.pattern, values.join(" ")).trim().to_owned()
            }
            RouteMatch::OtherOperation(_) => "405".into(),
            RouteMatch::NoMatch => "404".into(),
        }
    }

    #[test]
    fn most_specific_pattern_wins() {
        for (path, expected) in [
            ("roles/web", "roles/:name name=web"),
            ("roles/a.b-c_d", "roles/:name name=a.b-c_d"),
            ("cert/ca", "cert/ca"),
            ("cert/0A:0b-cc", "cert/:serial serial=0A:0b-cc"),
            ("mounts/pki", "mounts/*path path=pki"),
            ("mounts/a/b/c", "mounts/*path path=a/b/c"),
            ("mounts/a/b/tune", "mounts/*path/tune path=a/b"),
            ("mounts/tune", "mounts/*path path=tune"),
            ("issuer/x/crl/pem", "issuer/:ref/crl/:kind ref=x kind=pem"),
            ("roles", "405"),
            ("roles/", "405"),
            ("roles/web/", "404"),
            ("roles/-web", "404"),
            ("roles/web.", "404"),
            ("roles/ä", "404"),
            ("cert/xyz", "404"),
            ("mounts", "404"),
            ("", "404"),
            ("nothing/at/all", "404"),
        ] {
            assert_eq!(match_text(path, Operation::Read), expected, "{path}");
        }
    }

    #[test]
    fn tail_matches_everything_after_its_literals() {
        let index = RouteIndex::new("pki", &[TAILED_ROUTES]);
        for (raw, at) in [
            ("ocsp/a//b%2f/../c/", Some(5)),
            ("ocsp/", Some(5)),
            ("a/b/%", Some(4)),
            ("ocsp", None),
            ("ocspx/a", None),
            ("a/bc/d", None),
            ("a//b/c", None),
            ("%6fcsp/a", None),
            ("x/ocsp/a", None),
        ] {
            assert_eq!(index.tail_start(raw), at, "{raw}");
        }
        let found = |path, operation| match index.find_tail_route(path, operation) {
            RouteMatch::Route(_, route, _) => route.pattern,
            RouteMatch::OtherOperation(_) => "405",
            RouteMatch::NoMatch => "404",
        };
        assert_eq!(found("ocsp", Operation::Read), "ocsp/**text");
        assert_eq!((found("ocsp", Operation::List), found("ocs", Operation::Read)), ("405", "404"));
        assert_eq!(found("a/b", Operation::Read), "a/b/**text");
        assert!(matches!(index.find("ocsp/a/b", Operation::Update), RouteMatch::OtherOperation(_)));
    }

    #[test]
    fn list_route_matches_with_and_without_its_slash() {
        assert_eq!(match_text("roles", Operation::List), "roles");
        assert_eq!(match_text("roles/", Operation::List), "roles");
        assert_eq!(match_text("roles/web", Operation::List), "405");
        assert_eq!(match_text("mounts/a/tune", Operation::Update), "mounts/*path/tune path=a");
    }

    #[test]
    fn names_with_several_spellings_are_put_into_the_canonical_one() {
        static NORMALIZED_ROUTES: &[Route] = &[
            Route::token(Operation::Read, "acl/*name", &[], |_| Box::pin(async { Ok(HandlerResponse::empty()) })),
            Route::token(Operation::Read, "cert/:serial/raw", &[], |_| {
                Box::pin(async { Ok(HandlerResponse::empty()) })
            }),
            Route::token(Operation::Read, "issuer/:issuer_ref/crl/:name", &[], |_| {
                Box::pin(async { Ok(HandlerResponse::empty()) })
            }),
        ];
        let index = RouteIndex::new("pki", &[NORMALIZED_ROUTES]);
        for (path, canonical, values, spelt) in [
            ("acl/Team/App", "acl/team/app", "name=team/app", Spelling::PolicyName),
            ("acl/Team/App/", "acl/team/app/", "name=team/app", Spelling::PolicyName),
            ("acl/ ADMIN ", "acl/admin", "name=admin", Spelling::PolicyName),
            ("acl/admin", "acl/admin", "name=admin", Spelling::PolicyName),
            ("cert/00-0A/raw", "cert/0a/raw", "serial=0a", Spelling::Serial),
            ("cert/0x0A0B/raw", "cert/0a:0b/raw", "serial=0a:0b", Spelling::Serial),
            ("issuer/Default/crl/PEM", "issuer/default/crl/PEM", "issuer_ref=default name=PEM", Spelling::Reference),
        ] {
            let found = index.canonical(path).unwrap();
            let named: Vec<_> = found.params.iter(&found.path).map(|(n, v)| format!("{n}={v}")).collect();
            assert_eq!((found.path.as_str(), named.join(" ").as_str()), (canonical, values));
            assert_eq!(found.spelt, [NameSegments::of(spelt, 1)], "{path}");
        }
        for path in ["issuer/Web/crl/PEM", "cert/web/raw", "ACL/x", ""] {
            assert!(index.canonical(path).is_none(), "{path}");
        }
    }

    proptest! {
        #[test]
        fn tail_of_any_text_does_not_panic(raw in "(ocsp|a|b|[%/ä.]{0,3}){0,8}") {
            let index = RouteIndex::new("pki", &[TAILED_ROUTES]);
            if let Some(at) = index.tail_start(&raw) {
                prop_assert!(raw[..at].ends_with('/'));
                prop_assert!(matches!(index.find_tail_route(&raw[..at - 1], Operation::Read), RouteMatch::Route(..)));
            }
        }

        #[test]
        fn route_matching_never_panics_and_parameters_lie_in_the_path(path in "(roles|cert|mounts|issuer|[a-z:/.ä-]{0,3}|/){0,8}") {
            let index = RouteIndex::new("pki", &[ROUTES]);
            if let RouteMatch::Route(_, _, params) = index.find(&path, Operation::Read) {
                for (_, value) in params.iter(&path) {
                    prop_assert!(!value.is_empty() && path.contains(value));
                }
            }
        }
    }
}
