//! Contract tests that every engine must pass, generic over a [`Fixture`]. The end of this file runs them for each
//! engine.

mod api_tokens;
mod auth;
mod commits;
mod cubbyhole;
mod data_keys;
mod identity;
mod leases_and_metadata;
mod pki;
mod recorded_responses;
mod sealed;
mod secret_ids;
mod tidy;

use std::sync::Arc;

use futures_util::future::BoxFuture;

use crate::auth::store::{AuthOutcome, AuthStore, AuthWrite};
use crate::clock::{Clock, Time};
use crate::documents::{DocumentKey, DocumentWrite, MountId};
use crate::error::{Kind, Result};
use crate::pki::store::{CertificateRow, CrlRow, PkiStore, PkiWrite, RevocationRow};
use crate::storage::Storage;
use crate::storage::seal::SealKey;
use crate::x509::serial::Serial;

pub(in crate::storage) trait Fixture {
    fn new() -> Self;
    fn clock(&self) -> &Clock;
    fn open(&self, queue: usize) -> BoxFuture<'_, Result<Storage>> {
        self.open_with(self.seal_key(), queue)
    }
    fn seal_key(&self) -> SealKey;
    fn open_with(&self, seal_key: SealKey, queue: usize) -> BoxFuture<'_, Result<Storage>>;
    fn query_number(&self, sql: &str) -> i64;
    fn query_bytes(&self, sql: &str) -> Vec<u8>;
    /// Runs a statement with the byte strings `bytes` as `$1`, `$2`, …, and returns the number of changed rows.
    fn execute(&self, sql: &str, bytes: &[&[u8]]) -> usize;
    /// Returns the names and contents of all files that the engine stores on disk.
    fn files(&self) -> Vec<(String, Vec<u8>)>;
}

/// Inserts two users, and the teams of two organizations, into a database of schema 12. The first user is a member of
/// every team.
pub(in crate::storage) const TEAM_MEMBERSHIPS: &str =
    "INSERT INTO users (ext_id, username, username_lc, email, email_lc, created_at) VALUES
        ('user-1', 'one', 'one', 'one@a.test', 'one@a.test', 0), ('user-2', 'two', 'two', 'two@a.test', 'two@a.test', 0);
    INSERT INTO organizations (ext_id, name, name_lc, email, created_at) VALUES
        ('org-1', 'acme', 'acme', 'a@a.test', 0), ('org-2', 'umbrella', 'umbrella', 'u@a.test', 0);
    INSERT INTO teams (ext_id, org_id, name, name_lc) VALUES
        ('team-1', 1, 'one', 'one'), ('team-2', 2, 'two', 'two'), ('team-3', 2, 'three', 'three');
    INSERT INTO team_memberships (team_id, user_id) VALUES (1, 1), (2, 1), (3, 1)";

/// Epoch seconds of 2026-01-01.
const NOW: i64 = 1_767_225_600;

pub(in crate::storage) fn now() -> Time {
    Time::from_unix_timestamp(NOW).unwrap()
}

/// Returns a serial number. Serial numbers sort in the order of `n`.
fn serial(n: u32) -> Serial {
    Serial::from_octets(&[&[1][..], &n.to_be_bytes()].concat()).unwrap()
}

fn certificate(mount: MountId, n: u32) -> CertificateRow {
    CertificateRow {
        mount,
        serial: serial(n),
        issuer: "issuer-1".into(),
        role: n.is_multiple_of(2).then(|| "web".into()),
        common_name: n.is_multiple_of(3).then(|| format!("host-{n}.example.com")),
        not_before: NOW - 30,
        not_after: NOW + 86_400,
        issued_at: NOW,
        requester: "accessor-1".into(),
        der: vec![0x30, 0x82, n as u8],
    }
}

fn revocation(mount: MountId, n: u32) -> RevocationRow {
    RevocationRow {
        mount,
        serial: serial(n),
        issuer: "issuer-1".into(),
        revoked_at: now(),
        not_after: NOW + 86_400,
        reason: n.is_multiple_of(2).then_some(4),
        invalidity_date: n.is_multiple_of(3).then_some(NOW - 5),
    }
}

fn crl(mount: MountId, group: &str, number: u64) -> CrlRow {
    CrlRow {
        mount,
        group: group.into(),
        number,
        covers: number * 10,
        this_update: NOW,
        next_update: NOW + 3600,
        signature: vec![number as u8; 64],
    }
}

fn document(mount: MountId, name: &str, expected: u64, body: Option<&str>) -> DocumentWrite {
    let key = DocumentKey { mount, kind: "role", name: name.into() };
    DocumentWrite { key, expected, body: body.map(|b| b.as_bytes().to_vec()) }
}

struct ContractStore {
    storage: Storage,
    pki: Arc<dyn PkiStore>,
    auth: Arc<dyn AuthStore>,
    mount: MountId,
}

impl ContractStore {
    async fn new(fixture: &impl Fixture) -> Self {
        let store = Self::reopen(fixture, MountId::random()).await;
        store.create_mount(store.mount).await;
        store
    }

    async fn reopen(fixture: &impl Fixture, mount: MountId) -> Self {
        let storage = fixture.open(1000).await.unwrap();
        Self { pki: storage.pki(), auth: storage.auth(), storage, mount }
    }

    async fn create_mount(&self, mount: MountId) {
        assert_eq!(self.auth.commit(vec![AuthWrite::MountCreate(mount)]).await.unwrap(), [AuthOutcome::Done]);
    }

    async fn put(&self, unit: Vec<PkiWrite>) {
        self.pki.commit(unit).await.unwrap();
    }

    async fn rejection_kind(&self, unit: Vec<PkiWrite>) -> Kind {
        self.pki.commit(unit).await.unwrap_err().kind()
    }
}

macro_rules! contract_suite {
    ($engine:ident, $fixture:ty, $($area:ident :: $case:ident),+ $(,)?) => {
        mod $engine {
            $(#[tokio::test]
            async fn $case() {
                super::$area::$case(&<$fixture as super::Fixture>::new()).await;
            })+
        }
    };
}

macro_rules! contract {
    ($engine:ident, $fixture:ty) => {
        contract_suite!(
            $engine,
            $fixture,
            commits::unit_is_stored_completely_or_not_at_all,
            commits::taken_serial_fails_only_its_unit_of_a_batch,
            commits::concurrent_commits_share_transactions,
            commits::full_commit_queue_rejects_units_as_busy,
            commits::trial_write_leaves_no_rows,
            commits::write_is_stored_after_its_caller_is_dropped,
            commits::reopened_store_has_all_rows,
            commits::closed_store_rejects_reads_and_writes,
            pki::document_write_requires_the_stored_version,
            pki::revocation_is_idempotent_and_the_first_one_is_kept,
            pki::compromise_replaces_another_reason_once_with_a_new_number,
            pki::status_of_a_serial_covers_certificate_and_revocation,
            pki::known_serials_are_returned_in_the_requested_order,
            pki::revocation_sequences_have_no_gaps_under_8_tasks,
            pki::counters_equal_a_full_scan_after_random_writes,
            pki::keyset_pages_are_complete_and_do_not_overlap,
            pki::crl_number_must_increase,
            pki::certificate_is_read_with_its_revocation,
            pki::dropped_mount_loses_all_rows_and_other_mounts_none,
            pki::writes_to_a_dropped_mount_are_rejected,
            leases_and_metadata::lease_and_certificate_are_stored_together_or_not_at_all,
            leases_and_metadata::lease_of_a_revoked_or_used_up_token_is_rejected,
            leases_and_metadata::units_of_a_missing_mount_fail_only_themselves,
            leases_and_metadata::leases_end_with_their_token,
            leases_and_metadata::leases_are_found_by_id_and_prefix_until_they_end,
            leases_and_metadata::expired_leases_are_swept,
            leases_and_metadata::lease_and_token_revocation_of_one_batch_keep_their_order,
            leases_and_metadata::metadata_reads_back_by_serial_and_in_pages,
            leases_and_metadata::metadata_is_sealed_to_its_row,
            leases_and_metadata::dropped_mount_loses_its_leases_and_metadata,
            recorded_responses::idempotency_key_is_used_once_until_it_expires,
            recorded_responses::idempotency_key_admits_one_of_many_units,
            recorded_responses::expired_recorded_responses_are_swept,
            api_tokens::api_tokens_of_an_earlier_version_are_sealed_once,
            api_tokens::new_store_seals_no_api_tokens_of_a_database_writer,
            tidy::tidy_removes_expired_certificates_in_steps,
            tidy::tidy_removes_expired_revocations_with_their_certificates,
            tidy::tidy_finds_expired_revocations_missing_on_a_crl,
            tidy::tidy_removes_expired_metadata_and_named_certificates,
            tidy::certificates_are_listed_in_the_order_of_expiry,
            tidy::tidy_admits_one_run_at_a_time,
            tidy::tidy_removes_the_same_rows_as_a_model,
            tidy::counters_stay_exact_during_tidy_and_issuing,
            tidy::issuer_of_a_revocation_is_changed,
            auth::token_is_found_by_hash_and_accessor,
            auth::renewal_changes_expiry_and_body_of_a_live_token_only,
            auth::token_uses_are_spent_down_to_zero,
            auth::endless_tokens_are_counted_while_they_live,
            auth::revoking_removes_all_descendants_of_a_10000_deep_chain,
            auth::revocation_of_many_descendants_runs_in_short_steps,
            auth::revocation_completes_an_abandoned_revocation_below_it,
            auth::partly_revoked_token_leaves_no_orphans,
            auth::token_revoked_alone_detaches_its_children_in_steps,
            auth::unfinished_revocation_leaves_ended_tokens_that_are_swept,
            auth::child_of_a_missing_token_is_rejected,
            auth::sweep_removes_expired_tokens_with_their_descendants,
            auth::sweep_removes_expired_tokens_of_every_mount,
            auth::tokens_of_a_dropped_mount_are_invisible_immediately,
            auth::system_documents_are_listed_by_kind,
            secret_ids::secret_id_is_found_by_hash_and_accessor_of_its_role,
            secret_ids::secret_id_is_removed_with_its_last_use,
            secret_ids::accessor_pages_list_only_live_secret_ids,
            secret_ids::secret_ids_are_swept_after_expiry_and_with_their_role,
            secret_ids::secret_ids_are_sealed_to_their_row_and_end_with_their_mount,
            cubbyhole::token_reads_only_its_own_cubbyhole_entries,
            cubbyhole::cubbyhole_entries_are_removed_with_their_token,
            cubbyhole::token_is_taken_once_and_only_with_a_remaining_use,
            cubbyhole::cubbyhole_entries_and_bytes_are_limited,
            cubbyhole::cubbyhole_entry_is_sealed_to_its_token_and_path,
            identity::entity_is_found_by_id_name_and_alias,
            identity::entity_version_accepts_only_one_change,
            identity::entity_names_and_aliases_are_unique,
            identity::concurrent_logins_of_one_name_create_one_entity,
            identity::entity_is_deleted_with_its_aliases,
            identity::pages_of_entities_and_aliases_are_complete,
            identity::entity_without_tokens_is_swept_after_its_retention,
            identity::bodies_of_identities_are_sealed_to_their_rows,
            sealed::bit_flip_in_any_byte_of_a_sealed_body_is_an_error,
            sealed::swapped_or_rolled_back_rows_are_an_error,
            sealed::token_row_with_a_prolonged_expiry_is_an_error,
            sealed::data_files_contain_no_secret_plaintext,
            sealed::rotation_keeps_old_bodies_readable,
            sealed::current_data_key_is_reported_with_its_creation_time,
            sealed::wrong_seal_key_is_rejected_and_releases_the_store,
            data_keys::bit_flip_swap_or_unknown_version_of_a_value_is_an_error,
            data_keys::old_values_stay_readable_and_new_ones_have_the_new_term,
            data_keys::seal_operations_of_a_key_are_counted_across_restarts,
            data_keys::values_sealed_by_earlier_keys_are_resealed,
            data_keys::resealing_continues_after_a_restart,
            data_keys::resealing_overwrites_no_newer_write,
            data_keys::value_that_does_not_open_is_skipped_by_resealing,
            data_keys::row_with_unreadable_columns_is_skipped_by_resealing,
            data_keys::root_key_handover_exists_only_in_a_shared_store,
            data_keys::new_seal_key_opens_everything_and_the_previous_nothing,
        );
    };
}

contract!(embedded, crate::storage::embedded::Embedded);
contract!(postgres, crate::storage::postgres::Postgres);
