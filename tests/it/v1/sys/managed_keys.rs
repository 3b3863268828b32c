//! `sys/managed-keys`: configuration (`config`), rights (`rights`), grants to mounts (`grants`), SoftHSM and signing
//! (`device`), cloud services (`cloud`).
//!
//! The numbered requirements and their tests; `every_vector_names_tests_that_there_are` reads this table.
//!
//! | number | tests |
//! |---|---|
//! | K1 | `minimal_key_is_shown_with_defaults_and_a_stable_uuid` |
//! | K2, K3, K4 | `invalid_parameters_are_rejected_by_name_and_not_stored` |
//! | K5, K6, K19 | `invalid_parameters_are_rejected_by_name_and_not_stored` |
//! | K4 | `every_hash_name_works_with_rsa_and_ec` |
//! | K7 | `names_are_unique_over_types_and_unknown_types_are_rejected` |
//! | K7 | `names_are_unique_over_types_and_secrets_are_redacted` |
//! | K8 | `names_are_unique_over_types_and_unknown_types_are_rejected` |
//! | K9 | `every_hash_name_works_with_rsa_and_ec` |
//! | K10, K11 | `missing_key_is_generated_once_if_allowed` |
//! | K12, K40 | `wrong_pin_is_tried_once_per_write_and_redacted_pin_is_kept` |
//! | K13, K15 | `granted_key_cannot_be_deleted` |
//! | K14 | `key_without_grant_looks_like_a_missing_key` |
//! | K14 | `grants_and_usages_are_checked_for_every_signature` |
//! | K14 | `mount_without_grant_cannot_use_or_detect_a_key` |
//! | K16 | `grants_and_usages_are_checked_for_every_signature` |
//! | K17 | `secrets_appear_only_in_their_intended_responses`, `no_secret_is_in_the_database_in_clear` |
//! | K18 | `concurrent_calls_reach_but_never_exceed_the_cap` |
//! | K18 | `a_cap_that_is_changed_holds_from_then_on` |
//! | K18 | `concurrent_signatures_use_all_permits_and_no_more` |
//! | K20 | `externally_closed_sessions_are_reopened` |
//! | K21 | `reinserted_token_issues_again_also_after_a_restart` |
//! | K22 | `hanging_call_times_out_and_occupies_its_slot` |
//! | K22 | `hanging_module_blocks_only_its_own_key` |
//! | K23 | `wrong_signature_of_a_module_is_rejected` |
//! | K23 | `failed_or_wrong_signature_is_an_error_and_not_stored` |
//! | K23 | `every_metric_of_a_managed_key_is_there_with_its_name` |
//! | K24 | `replaced_key_signs_no_certificate` |
//! | K25 | `keys_of_one_token_share_its_login_and_other_pin_is_not_tried` |
//! | K26, K27 | `softhsm_ec_keys_meet_the_contract` |
//! | K26, K27 | `many_sign_at_a_time` |
//! | K26, K27 | `every_algorithm_that_fits_signs_and_no_other` |
//! | K26, K27 | `digest_of_another_length_is_refused` |
//! | K28 | `softhsm_rsa_keys_meet_the_contract`, `token_with_unreadable_information_works_by_slot` |
//! | K29 | `concurrent_requests_generate_each_key_once_per_alias` |
//! | K29 | `concurrent_key_generation_leaves_one_alias_and_one_key` |
//! | K30 | `disabled_or_mismatched_key_is_rejected` |
//! | K31 | `generated_key_must_be_named_by_an_own_alias` |
//! | K32 | `cloud_rsa_root_and_p256_intermediate_issue_and_revoke` |
//! | K32 | `cloud_p256_root_and_rsa_intermediate_issue_and_revoke` |
//! | K33 | `key_is_generated_and_corrupt_responses_are_rejected` |
//! | K34 | `signature_scheme_follows_the_algorithm_of_the_key` |
//! | K35 | `key_is_generated_once_and_foreign_authority_is_rejected` |
//! | K36 | `resource_must_be_a_known_dns_suffix` |
//! | K37 | `credentials_must_be_files_in_the_configured_folder`, `nothing_else_is_opened` |
//! | K38 | `key_name_or_id_is_required_and_key_type_is_rejected` |
//! | K39 | `crls_and_ocsp_responses_use_permits_like_certificates` |

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
