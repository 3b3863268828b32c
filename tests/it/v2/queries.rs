//! Limits and syntax of queries: lists of values, patterns, names.

use serde_json::json;

use super::fixture::{
    PEOPLE, PROJECTS, TEAMS, WORKSPACES, World, assert_refused, items, names, on_both_stores, tags, total,
};

on_both_stores!(
    tag_filter_with_a_thousand_terms_is_rejected,
    every_list_of_a_query_has_a_limit,
    pattern_with_many_stars_is_rejected,
    a_long_name_in_a_query_is_not_quoted_whole,
    a_project_that_is_named_twice_is_one_of_two,
    blanks_at_the_ends_of_tags_are_preserved,
    members_of_too_many_teams_need_smaller_pages,
);

fn tagged(terms: usize) -> String {
    let term = |n| format!("filter[tagged][{n}][key]=k{n}&filter[tagged][{n}][value]=v");
    (0..terms).map(term).collect::<Vec<_>>().join("&")
}

async fn tag_filter_with_a_thousand_terms_is_rejected(world: &World) {
    for path in [PROJECTS, WORKSPACES] {
        let list = async |terms| world.owner.get(&format!("{path}?{}", tagged(terms))).await;
        for terms in [21, 400, 1000] {
            let answer = list(terms).await;
            assert_eq!(answer.status, 400, "{path} {terms}: {:.300}", answer.text);
        }
        assert_refused(&list(21).await, 400, &[("filter[tagged]", "filter[tagged]: at most 20 ")]);
        let most = list(20).await;
        assert_eq!((most.status, &most.body["data"]), (200, &json!([])), "{:.300}", most.text);
    }
}

async fn every_list_of_a_query_has_a_limit(world: &World) {
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
        assert_refused(&list(most + 1).await, 400, &[(parameter, &format!("{parameter}: at most {most} "))]);
        assert_eq!(list(most).await.status, 200, "{path} {parameter}");
    }
    let included = vec!["effective_tag_bindings"; 101].join(",");
    for path in [PROJECTS.to_owned(), WORKSPACES.to_owned(), format!("projects/{}", project)] {
        let answer = world.owner.get(&format!("{path}?include={included}")).await;
        assert_refused(&answer, 400, &[("include", "include: at most 100 ")]);
        let answer = world.owner.get(&format!("{path}?{}", vec!["a=b"; 1001].join("&"))).await;
        assert_refused(&answer, 400, &[("", "query: at most 1000 parameters")]);
        assert_eq!(world.owner.get(&format!("{path}?{}", vec!["a=b"; 1000].join("&"))).await.status, 200);
    }
}

async fn pattern_with_many_stars_is_rejected(world: &World) {
    let project = world.project("Net").await;
    world.workspace(&project, "w1").await;
    let list = async |pattern: &str| world.owner.get(&format!("{WORKSPACES}?search[wildcard-name]={pattern}")).await;
    for long in ["a*".repeat(30_000), "*".repeat(257)] {
        let rule = "search[wildcard-name] may have at most 256 ";
        assert_refused(&list(&long).await, 400, &[("search[wildcard-name]", rule)]);
    }
    assert_eq!(list(&"a*".repeat(128)).await.body["data"], json!([]));
    let all = list(&"*".repeat(256)).await;
    assert_eq!((all.status, total(&all)), (200, &json!(1)), "{}", all.text);
}

async fn a_long_name_in_a_query_is_not_quoted_whole(world: &World) {
    let word = "x".repeat(50_000);
    let include = world.owner.get(&format!("{PROJECTS}?include={word}")).await;
    assert_refused(&include, 400, &[("include", "the include parameter \"xxx")]);
    let unsound = world.owner.get(&format!("{PROJECTS}?{word}=%zz")).await;
    assert_eq!((unsound.status, &unsound.body["errors"][0]["status"]), (400, &json!("400")));
    for answer in [include, unsound] {
        assert!(answer.text.len() < 1000, "{}", answer.text.len());
    }
}

async fn found(world: &World, query: &str) -> Vec<String> {
    let list = world.owner.get(&format!("{WORKSPACES}?{query}")).await;
    assert_eq!(total(&list), items(&list).len(), "{}", list.text);
    names(&list)
}

async fn a_project_that_is_named_twice_is_one_of_two(world: &World) {
    let one = world.project("One").await;
    let two = world.project("Two").await;
    for (project, name) in [(&one, "w1"), (&two, "w2"), (&world.project("Three").await, "w3")] {
        world.workspace(project, name).await;
    }
    let name = "filter[project][id]";
    assert_eq!(found(world, &format!("{name}={one}")).await, ["w1"]);
    for both in [format!("{name}={one}&{name}={two}"), format!("{name}={two},{one},prj-none")] {
        assert_eq!(found(world, &both).await, ["w1", "w2"], "{both}");
    }
    assert!(found(world, &format!("{name}=prj-none")).await.is_empty());
}

async fn blanks_at_the_ends_of_tags_are_preserved(world: &World) {
    let project = world.project("Net").await;
    let tagged = world.workspace(&project, "w1").await;
    let bindings = format!("workspaces/{tagged}/tag-bindings");
    assert_eq!(world.owner.patch(&bindings, tags(&[(" sp ", " v ")])).await.status, 200);
    let query = |key: &str, value: &str| format!("filter[tagged][0][key]={key}&filter[tagged][0][value]={value}");
    assert_eq!(found(world, &query("%20sp%20", "%20v%20")).await, ["w1"]);
    assert_eq!(found(world, &query("%20sp%20", "")).await, ["w1"]);
    assert!(found(world, &query("sp", "")).await.is_empty());
    assert!(found(world, &query("%20sp%20", "v")).await.is_empty());
}

async fn members_of_too_many_teams_need_smaller_pages(world: &World) {
    world.people(0..11).await;
    world
        .execute(
            "INSERT INTO teams (ext_id, org_id, name, name_lc, user_count)
             WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 1999)
             SELECT 'team-many-' || i, o.id, 't' || i, 't' || i, 11 FROM n, organizations o",
        )
        .await;
    world
        .execute(
            "INSERT INTO team_memberships (team_id, user_id) SELECT t.id, u.id FROM teams t, users u
             WHERE t.is_owners = FALSE AND u.username_lc LIKE 'person-%'",
        )
        .await;
    let refused = world.owner.get(PEOPLE).await;
    assert_refused(&refused, 400, &[("page[size]", "the members are in more than 20000 teams in total")]);
    let list = world.owner.get(&format!("{PEOPLE}?page[size]=10")).await;
    assert_eq!(list.body["data"][9]["relationships"]["teams"]["data"].as_array().map(Vec::len), Some(2000));
    let beside = world.owner.get(&format!("{TEAMS}?filter[names]=t0&include=organization-memberships")).await;
    assert_refused(&beside, 400, &[("include", "the members are in more than ")]);
    let users = world.owner.get(&format!("{TEAMS}?filter[names]=t0&include=users")).await;
    assert_eq!(users.body["included"].as_array().map(Vec::len), Some(11), "{:.300}", users.text);
    let one = items(&list)[9]["links"]["self"].as_str().unwrap().trim_start_matches("/api/v2/");
    assert_eq!(world.owner.get(one).await.status, 200);
}
