//! The PostgreSQL server crashes under load (`pg_ctl stop -m immediate`) and is restarted.

use super::audit::audit;
use super::load::{Ledger, Load, Unanswered};
use super::place::Place;
use crate::cluster::Cluster;

#[actix_web::test]
async fn database_crash_causes_errors_and_no_data_loss() {
    let cluster = Cluster::new();
    let place = Place::postgres(cluster.database());
    let ledger = Ledger::default();
    let dev = place.start();
    let client = place.client(&dev).await;
    let load = Load::start(&dev, &client.token, &ledger, Unanswered::IsWrong);
    for (issued, revoked) in [(30, 3), (150, 20), (5, 1)] {
        ledger.wait_for(issued, revoked, 0);
        cluster.stop();
        // During the outage, clients of every kind receive 503 with `Retry-After`.
        ledger.wait_for(0, 0, 20);
        cluster.start();
        ledger.wait_for(1, 1, 0);
    }
    load.finish();
    audit(&client, &ledger, &place).await;

    let load = Load::start(&dev, &client.token, &ledger, Unanswered::IsTheEnd);
    ledger.wait_for(60, 6, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| cluster.stop());
        dev.kill();
    });
    load.finish();
    cluster.start();
    let dev = place.start_in_time().await;
    audit(&dev.client().with_token(&client.token), &ledger, &place).await;
    dev.terminate();
}
