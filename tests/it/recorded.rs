//! Recorded responses of every route of both APIs, to valid and invalid requests, on a new store with a fixed clock.
//! They must equal the files next to this module, except for random values ([`names`]).
//!
//! `SIGNET_ACCEPT=1 cargo test --test it -- recorded` rewrites the files. Requests for a new route are added to
//! `faults::requests` (secrets service) or [`projects`] (projects API).

mod authority;
mod der;
mod describe;
mod golden;
mod json;
mod names;
mod projects;
mod recorder;
mod routes;
mod secrets;

use self::golden::assert_same;
use self::recorder::Recorder;

/// Asserts that a recording equals its file and contains every route that `of` selects.
fn assert_complete(name: &str, recorder: Recorder, of: impl Fn(&routes::Name) -> bool, refuses: &[(&str, &str, &str)]) {
    let (text, asked) = recorder.finish();
    assert_same(name, &text);
    let missing = routes::missing(of, &asked, refuses);
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

/// Defines a test for each area of the secrets service.
macro_rules! areas {
    ($($test:ident: $area:literal,)*) => {
        $(#[actix_web::test] async fn $test() {
            let recorder = secrets::walk($area).await;
            let of = |route: &routes::Name| secrets::area(route.0, route.2) == $area;
            assert_complete($area, recorder, of, secrets::REFUSES);
        })*

        #[test]
        fn every_route_of_the_secrets_service_is_in_an_area() {
            let areas = [$($area),*];
            for (kind, _, pattern) in routes::all().into_iter().filter(|(kind, ..)| *kind != "projects") {
                assert!(areas.contains(&secrets::area(kind, pattern)), "{kind} {pattern}");
            }
        }
    };
}

areas! {
    the_server_answers_about_itself_as_recorded: "system",
    policies_and_leases_answer_as_recorded: "policies",
    quotas_answer_as_recorded: "quotas",
    explanations_answer_as_recorded: "explain",
    managed_keys_answer_as_recorded: "managed-keys",
    tokens_answer_as_recorded: "token",
    approle_answers_as_recorded: "approle",
    jwt_answers_as_recorded: "jwt",
    cloudb_answers_as_recorded: "cloudb",
    wrapped_answers_and_cubbyholes_are_as_recorded: "wrapping",
    identities_answer_as_recorded: "identity",
    roles_and_leaves_answer_as_recorded: "pki-leaves",
    external_policy_answers_as_recorded: "pki-external-policy",
    authorities_are_made_as_recorded: "pki-authorities",
    issuers_and_keys_answer_as_recorded: "pki-issuers",
    certificates_are_shown_as_recorded: "pki-certificates",
    revocation_answers_as_recorded: "pki-revocation",
    acme_answers_as_recorded: "pki-acme",
}

#[actix_web::test]
async fn the_life_of_an_authority_is_as_recorded() {
    let mut recorder = Recorder::default();
    authority::walk(&mut recorder).await;
    assert_complete("authority", recorder, |_| false, &[]);
}

#[actix_web::test]
async fn the_projects_api_answers_as_recorded() {
    let mut recorder = Recorder::default();
    let refused = projects::walk(&mut recorder).await;
    assert_same("projects-refused", &refused);
    assert_complete("projects", recorder, |(kind, ..)| *kind == "projects", projects::REFUSES);
}
