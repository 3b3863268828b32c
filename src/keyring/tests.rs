use std::sync::Mutex;

use futures_util::FutureExt as _;
use futures_util::future::{LocalBoxFuture, ready};
use time::macros::datetime;

use super::*;
use crate::documents::Document;
use crate::error::Kind;

/// A store without values: it only counts the data keys and their uses.
struct CountingKeyringStore {
    key: Mutex<DataKey>,
    recorded: Mutex<u32>,
    settings: Mutex<Option<Document>>,
    clock: Clock,
}

impl KeyringStore for CountingKeyringStore {
    fn status(&self) -> LocalBoxFuture<'_, Result<DataKey>> {
        ready(Ok(*self.key.lock().unwrap())).boxed_local()
    }

    fn rotate(&self, from: u32) -> LocalBoxFuture<'_, Result<u32>> {
        let mut key = self.key.lock().unwrap();
        if key.term > from {
            return ready(Ok(key.term)).boxed_local();
        }
        *key = DataKey { term: key.term + 1, created_at: self.clock.now(), sealed: 0, older: None };
        ready(Ok(key.term)).boxed_local()
    }

    fn record_use(&self) -> LocalBoxFuture<'_, Result<()>> {
        *self.recorded.lock().unwrap() += 1;
        ready(Ok(())).boxed_local()
    }

    fn settings(&self) -> LocalBoxFuture<'_, Result<Option<Document>>> {
        ready(Ok(self.settings.lock().unwrap().clone())).boxed_local()
    }

    fn write_settings(&self, write: DocumentWrite) -> LocalBoxFuture<'_, Result<()>> {
        let DocumentWrite { key, expected, body } = write;
        *self.settings.lock().unwrap() = Some(Document { key, version: expected + 1, body: body.unwrap() });
        ready(Ok(())).boxed_local()
    }

    fn re_seal(&self) -> LocalBoxFuture<'_, Result<ResealOutcome>> {
        ready(Ok(ResealOutcome::Done)).boxed_local()
    }
}

fn keyring() -> (Keyring, Arc<CountingKeyringStore>, Clock) {
    let clock = Clock::manual(datetime!(2030-01-01 00:00 UTC));
    let first = DataKey { term: 1, created_at: clock.now(), sealed: 0, older: Some(0) };
    let recorded = Mutex::default();
    let settings = Mutex::default();
    let store = Arc::new(CountingKeyringStore { key: Mutex::new(first), recorded, settings, clock: clock.clone() });
    (Keyring::new(store.clone(), clock.clone()), store, clock)
}

#[tokio::test]
async fn data_key_is_rotated_at_its_use_limit_or_age_not_earlier() {
    let (keyring, store, clock) = keyring();
    let term = || store.key.lock().unwrap().term;
    let seal = |n| store.key.lock().unwrap().sealed = n;
    seal((1 << 31) - 1);
    keyring.tick().await.unwrap();
    assert_eq!(term(), 1);
    seal(1 << 31);
    keyring.tick().await.unwrap();
    assert_eq!(term(), 2);
    let change =
        RotationChange { max_operations: Some(1_000_000), interval: Some(MIN_ROTATION_INTERVAL), enabled: None };
    keyring.write_rotation_settings(change).await.unwrap();
    seal(1_000_000);
    keyring.tick().await.unwrap();
    assert_eq!(term(), 3);
    clock.advance(MIN_ROTATION_INTERVAL - Duration::from_secs(1));
    keyring.tick().await.unwrap();
    assert_eq!(term(), 3);
    clock.advance(Duration::from_secs(1));
    keyring.tick().await.unwrap();
    assert_eq!(term(), 4);
    assert_eq!(*store.recorded.lock().unwrap(), 5);
}

#[tokio::test]
async fn disabled_rotation_still_replaces_a_key_at_its_use_limit() {
    let (keyring, store, clock) = keyring();
    let change = RotationChange { enabled: Some(false), interval: Some(MIN_ROTATION_INTERVAL), max_operations: None };
    keyring.write_rotation_settings(change).await.unwrap();
    store.key.lock().unwrap().sealed = MAX_KEY_OPERATIONS - 1;
    clock.advance(MIN_ROTATION_INTERVAL * 2);
    keyring.tick().await.unwrap();
    assert_eq!(store.key.lock().unwrap().term, 1);
    store.key.lock().unwrap().sealed = MAX_KEY_OPERATIONS;
    keyring.tick().await.unwrap();
    assert_eq!(store.key.lock().unwrap().term, 2);
}

#[tokio::test]
async fn rotation_settings_are_validated_and_partial_change_kept() {
    let (keyring, _, _) = keyring();
    assert_eq!(keyring.rotation_settings().await.unwrap(), RotationSettings::default());
    for (change, text) in [
        (
            RotationChange { max_operations: Some(999_999), ..RotationChange::default() },
            "max_operations: must be between 1000000 and 3865470566",
        ),
        (
            RotationChange { max_operations: Some(-1), ..RotationChange::default() },
            "max_operations: must be between 1000000 and 3865470566",
        ),
        (
            RotationChange { interval: Some(Duration::from_secs(86_399)), ..RotationChange::default() },
            "interval: must be 0 (never), or between 24 hours and 100 years",
        ),
        (
            // Half a second is rejected as too short. It is not taken for 0 (never).
            RotationChange { interval: Some(Duration::from_millis(500)), ..RotationChange::default() },
            "interval: must be 0 (never), or between 24 hours and 100 years",
        ),
    ] {
        let error = keyring.write_rotation_settings(change).await.unwrap_err();
        assert_eq!((error.kind(), error.text()), (Kind::Invalid, text));
    }
    let interval = Some(MIN_ROTATION_INTERVAL + Duration::from_millis(500));
    let interval = RotationChange { interval, ..RotationChange::default() };
    keyring.write_rotation_settings(interval).await.unwrap();
    keyring
        .write_rotation_settings(RotationChange { enabled: Some(false), ..RotationChange::default() })
        .await
        .unwrap();
    let stored = keyring.rotation_settings().await.unwrap();
    assert_eq!(stored, RotationSettings { enabled: false, max_operations: 1 << 31, interval: MIN_ROTATION_INTERVAL });
}
