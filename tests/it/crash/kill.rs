//! SIGKILL under load, several times in a row on the same data.

use super::audit::audit;
use super::load::{Ledger, Load, Unanswered};
use super::place::Place;
use crate::cluster;

/// Certificates and revocations that are acknowledged before each kill.
const MOMENTS: [(usize, usize); 5] = [(1, 0), (40, 3), (200, 30), (7, 1), (90, 12)];

async fn killed_again_and_again(place: Place) {
    let ledger = Ledger::default();
    let mut dev = place.start();
    let token = place.client(&dev).await.token;
    for (issued, revoked) in MOMENTS {
        let load = Load::start(&dev, &token, &ledger, Unanswered::IsTheEnd);
        ledger.wait_for(issued, revoked, 0);
        dev.kill();
        load.finish();
        dev = place.start_in_time().await;
        audit(&dev.client().with_token(&token), &ledger, &place).await;
    }
    dev.terminate();
    assert_eq!(ledger.read().refused, 0, "{}", place.log());
}

#[actix_web::test]
async fn a_server_killed_under_load_loses_nothing_of_its_folder() {
    killed_again_and_again(Place::embedded()).await;
}

#[actix_web::test]
async fn a_server_killed_under_load_loses_nothing_of_its_database() {
    killed_again_and_again(Place::postgres(cluster::shared().database())).await;
}
