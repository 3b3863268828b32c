//! What a query may hold: lists of values, patterns, names.

use serde_json::json;

use super::fixture::{World, assert_refused, on_both_stores};
use super::moves::workspace;

on_both_stores!(
    filter_tagged_with_a_thousand_terms_is_the_callers_mistake,
    every_list_of_a_query_has_a_limit,
    a_pattern_of_many_stars_is_the_callers_mistake,
    a_long_name_in_a_query_is_not_quoted_whole,
);

const PROJECTS: &str = "organizations/acme/projects";
const WORKSPACES: &str = "organizations/acme/workspaces";
const TEAMS: &str = "organizations/acme/teams";
const PEOPLE: &str = "organizations/acme/organization-memberships";

/// That many terms of `filter[tagged]`.
fn tagged(terms: usize) -> String {
    (0..terms)
        .map(|n| format!("filter[tagged][{n}][key]=k{n}&filter[tagged][{n}][value]=v"))
        .collect::<Vec<_>>()
        .join("&")
}

async fn filter_tagged_with_a_thousand_terms_is_the_callers_mistake(world: World) {
    for path in [PROJECTS, WORKSPACES] {
        let list = async |terms| world.owner.get(&format!("{path}?{}", tagged(terms))).await;
        for terms in [21, 400, 1000] {
            let answer = list(terms).await;
            assert_eq!(answer.status, 400, "{path} {terms}: {:.300}", answer.text);
        }
        assert_refused(&list(21).await, 400, &[("filter[tagged]", "at most 20 ")]);
        let most = list(20).await;
        assert_eq!((most.status, &most.body["data"]), (200, &json!([])), "{:.300}", most.text);
    }
    world.app.stop().await;
}

async fn every_list_of_a_query_has_a_limit(world: World) {
    let project = world.project("Net").await;
    let many = |n: usize| vec!["x"; n].join(",");
    for (path, parameter, most) in [
        (PROJECTS, "filter[names]", 1000),
        (TEAMS, "filter[names]", 1000),
        (PEOPLE, "filter[email]", 1000),
        (WORKSPACES, "search[tags]", 20),
        (WORKSPACES, "search[exclude-tags]", 20),
    ] {
        let list = async |n| world.owner.get(&format!("{path}?{parameter}={}", many(n))).await;
        assert_refused(&list(most + 1).await, 400, &[(parameter, &format!("at most {most} "))]);
        assert_eq!(list(most).await.status, 200, "{path} {parameter}");
    }
    let included = vec!["effective_tag_bindings"; 101].join(",");
    for path in [PROJECTS.to_owned(), WORKSPACES.to_owned(), format!("projects/{}", project)] {
        let answer = world.owner.get(&format!("{path}?include={included}")).await;
        assert_refused(&answer, 400, &[("include", "at most 100 ")]);
        let answer = world.owner.get(&format!("{path}?{}", vec!["a=b"; 1001].join("&"))).await;
        assert_refused(&answer, 400, &[("", "at most 1000 parameters")]);
        assert_eq!(world.owner.get(&format!("{path}?{}", vec!["a=b"; 1000].join("&"))).await.status, 200);
    }
    world.app.stop().await;
}

async fn a_pattern_of_many_stars_is_the_callers_mistake(world: World) {
    let project = world.project("Net").await;
    workspace(&world, &project, "w1").await;
    let list = async |pattern: &str| world.owner.get(&format!("{WORKSPACES}?search[wildcard-name]={pattern}")).await;
    let place = "search[wildcard-name]";
    assert_refused(&list(&"a*".repeat(30_000)).await, 400, &[(place, "search[wildcard-name] may have at most 256 ")]);
    assert_refused(&list(&"*".repeat(257)).await, 400, &[(place, "search[wildcard-name] may have at most 256 ")]);
    assert_eq!(list(&"a*".repeat(128)).await.body["data"], json!([]));
    let all = list(&"*".repeat(256)).await;
    assert_eq!((all.status, all.body["meta"]["pagination"]["total-count"].clone()), (200, json!(1)), "{}", all.text);
    world.app.stop().await;
}

async fn a_long_name_in_a_query_is_not_quoted_whole(world: World) {
    let word = "x".repeat(50_000);
    let include = world.owner.get(&format!("{PROJECTS}?include={word}")).await;
    assert_refused(&include, 400, &[("include", "the include parameter \"xxx")]);
    let unsound = world.owner.get(&format!("{PROJECTS}?{word}=%zz")).await;
    assert_eq!((unsound.status, &unsound.body["errors"][0]["status"]), (400, &json!("400")));
    for answer in [include, unsound] {
        assert!(answer.text.len() < 1000, "{}", answer.text.len());
    }
    world.app.stop().await;
}
