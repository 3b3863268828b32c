//! `sys/managed-keys`: configuration (`config`), rights (`rights`), grants to mounts (`grants`), SoftHSM and signing
//! (`device`), cloud services (`cloud`).
//!
//! The numbered requirements and their tests; `every_vector_names_tests_that_there_are` reads this table.
//!
//! | number | tests |
//! |---|---|
//! | K1 | `k1_a_key_of_the_least_parameters_is_shown_with_all_of_them_and_keeps_its_uuid` |
//! | K2, K3, K4 | `k2_to_k6_and_k19_parameters_against_the_rules_are_refused_by_name_and_nothing_is_stored` |
//! | K5, K6, K19 | `k2_to_k6_and_k19_parameters_against_the_rules_are_refused_by_name_and_nothing_is_stored` |
//! | K4 | `k4_and_k9_every_hash_word_signs_with_rsa_and_ec_and_no_other` |
//! | K7 | `k7_and_k8_names_are_unique_over_all_types_and_types_are_words` |
//! | K7 | `k7_names_are_unique_over_types_and_parameters_are_shown_without_secrets` |
//! | K8 | `k7_and_k8_names_are_unique_over_all_types_and_types_are_words` |
//! | K9 | `k4_and_k9_every_hash_word_signs_with_rsa_and_ec_and_no_other` |
//! | K10, K11 | `k10_and_k11_a_missing_key_is_made_once_where_that_is_allowed` |
//! | K12, K40 | `k12_and_k40_a_wrong_pin_is_tried_once_for_each_writing_and_a_pin_that_is_shown_is_kept` |
//! | K13, K15 | `k13_and_k15_a_key_that_mounts_list_is_not_deleted` |
//! | K14 | `k14_what_a_mount_may_not_use_looks_to_it_like_what_is_not_there` |
//! | K14 | `k14_to_k16_what_a_key_may_be_used_for_is_looked_at_for_every_signature` |
//! | K14 | `vector_k14_a_mount_without_the_grant_uses_no_key_and_cannot_tell_whether_it_exists` |
//! | K16 | `k14_to_k16_what_a_key_may_be_used_for_is_looked_at_for_every_signature` |
//! | K17 | `no_secret_leaves_but_in_the_answer_whose_purpose_it_is`, `no_secret_is_in_the_database_in_clear` |
//! | K18 | `never_more_calls_are_inside_than_the_cap_and_all_of_it_is_used` |
//! | K18 | `a_cap_that_is_changed_holds_from_then_on` |
//! | K18 | `a_flood_of_requests_fills_the_places_of_the_key_and_no_more` |
//! | K20 | `sessions_closed_behind_our_back_are_opened_again` |
//! | K21 | `k21_a_token_that_is_pulled_and_put_back_issues_again_also_after_a_restart` |
//! | K22 | `a_call_that_hangs_is_answered_in_time_and_keeps_its_place` |
//! | K22 | `a_module_that_hangs_holds_up_its_own_key_alone` |
//! | K23 | `a_wrong_signature_of_a_module_is_given_to_nobody` |
//! | K23 | `what_is_not_signed_right_is_refused_and_not_stored` |
//! | K23 | `every_metric_of_a_managed_key_is_there_with_its_name` |
//! | K24 | `k24_a_key_that_was_replaced_signs_no_certificate` |
//! | K25 | `k25_two_keys_of_one_token_share_its_login_and_another_pin_is_not_tried` |
//! | K26, K27 | `ec_keys_of_softhsm_hold_the_contract` |
//! | K26, K27 | `many_sign_at_a_time` |
//! | K26, K27 | `every_algorithm_that_fits_signs_and_no_other` |
//! | K26, K27 | `a_digest_of_another_length_is_none` |
//! | K28 | `rsa_keys_of_softhsm_hold_the_contract`, `a_token_whose_information_cannot_be_read_works_by_its_slot` |
//! | K29 | `k29_keys_of_every_kind_are_made_once_under_their_alias_however_many_ask` |
//! | K29 | `five_who_make_a_key_at_the_same_time_make_one_alias_and_leave_no_other_key` |
//! | K30 | `k30_a_key_that_is_disabled_of_another_use_or_of_another_spec_is_refused` |
//! | K31 | `k31_a_key_that_may_be_made_is_named_by_an_alias_of_ours` |
//! | K32 | `k32_a_root_of_rsa_and_an_intermediate_of_p256_at_a_service_issue_revoke_and_answer` |
//! | K32 | `k32_a_root_of_p256_and_an_intermediate_of_rsa_at_a_service_issue_revoke_and_answer` |
//! | K33 | `k33_a_key_is_made_waited_for_and_used_and_an_answer_that_was_damaged_is_not` |
//! | K34 | `k34_the_algorithm_dictates_the_scheme_where_nothing_is_asked_for` |
//! | K35 | `k35_a_key_is_made_once_and_signs_and_another_authority_gets_no_credential` |
//! | K36 | `k36_a_resource_is_a_suffix_of_the_provider_or_of_the_configuration` |
//! | K37 | `k37_credentials_are_files_of_the_folder_for_them_and_no_others`, `nothing_else_is_opened` |
//! | K38 | `vector_k38_which_key_is_meant_must_be_said_and_nothing_of_its_kind` |
//! | K39 | `vector_k39_lists_and_answers_are_signed_in_the_places_of_the_key_like_certificates` |

mod cloud;
mod config;
mod device;
mod grants;
mod rights;

use std::path::Path;

use serde_json::{Value, json};

use crate::support::{Answer, App, Client, NO_MODULE};

/// The body of a valid key that never signs.
fn key() -> Value {
    json!({ "library": NO_MODULE, "token_label": "one", "key_label": "web", "mechanism": "0x1041", "pin": "4711" })
}

fn with(body: Value, members: Value) -> Value {
    let mut body = body;
    body.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    body
}

async fn write(client: &Client, name: &str, body: Value) -> Answer {
    let answer = client.post(&format!("sys/managed-keys/pkcs11/{name}"), body.clone()).await;
    assert!(matches!(answer.status, 200 | 204), "{name} {body}: {} {}", answer.status, answer.text);
    answer
}

async fn shown(client: &Client, name: &str) -> Value {
    let answer = client.get(&format!("sys/managed-keys/pkcs11/{name}")).await;
    assert_eq!(answer.status, 200, "{name}: {}", answer.text);
    answer.body["data"].clone()
}

async fn refused(client: &Client, name: &str, body: Value, text: &str) {
    let answer = client.post(&format!("sys/managed-keys/pkcs11/{name}"), body.clone()).await;
    assert_eq!((answer.status, answer.error()), (400, text), "{name} {body}: {}", answer.text);
}

async fn with_key() -> App {
    let app = App::start().await;
    write(&app.client, "web", key()).await;
    app
}

fn sources(folder: &Path) -> String {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries
        .map(|path| match path.extension() {
            _ if path.is_dir() => sources(&path),
            Some(extension) if extension == "rs" => std::fs::read_to_string(&path).unwrap(),
            _ => String::new(),
        })
        .collect()
}

#[test]
fn every_vector_names_tests_that_there_are() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let all = sources(&root.join("tests/it")) + &sources(&root.join("src/keys"));
    let rows = include_str!("managed_keys.rs").lines().filter_map(|line| line.strip_prefix("//! | K"));
    let mut vectors = std::collections::BTreeSet::new();
    for row in rows {
        let (numbers, tests) = format!("K{row}").split_once(" | ").map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
        vectors.extend(numbers.split(", ").map(|vector| vector[1..].parse::<u32>().unwrap()));
        let named: Vec<_> = tests.split('`').skip(1).step_by(2).collect();
        assert!(!named.is_empty(), "{numbers}");
        for test in named {
            assert!(all.contains(&format!("fn {test}(")), "{numbers}: there is no {test}");
        }
    }
    assert!(vectors.iter().copied().eq(1..=40), "{vectors:?}");
}
