//! A disk that fails under the embedded store: injected errors in the server's system calls, for a while.

use serde_json::json;

use super::audit::audit;
use super::load::{Ledger, Load, Unanswered};
use super::place::Place;
use super::strace::{self, Traced};
use crate::support::Client;

const FAULTS: [(&str, &str); 4] =
    [("fdatasync,fsync", "EIO"), ("pwrite64", "EIO"), ("pwrite64", "ENOSPC"), ("fdatasync,fsync,pwrite64", "ENOSPC")];

async fn issue(client: &Client) -> (u16, bool) {
    let answer = client.post("pki/issue/dev", json!({ "common_name": "disk.test" })).await;
    (answer.status, answer.headers.contains_key("retry-after"))
}

#[actix_web::test]
async fn failing_disk_causes_errors_and_no_data_loss() {
    if !strace::sees_the_server() {
        return;
    }
    let place = Place::embedded();
    let ledger = Ledger::default();
    let mut dev = place.start();
    let token = place.client(&dev).await.token;
    for (calls, error) in FAULTS {
        let client = dev.client().with_token(&token);
        let load = Load::start(&dev, &token, &ledger, Unanswered::IsWrong);
        ledger.wait_for(20, 3, 0);
        let inject = format!("inject={calls}:error={error}");
        let Some(fault) = Traced::attach(dev.pid(), &["-e", &format!("trace={calls}"), "-e", &inject]) else {
            load.finish();
            return;
        };
        ledger.wait_for(0, 0, 10);
        assert_eq!(issue(&client).await, (503, true), "{calls} {error}");
        let known = ledger.read().issued.keys().next().unwrap().clone();
        assert_eq!(client.get(&format!("pki/cert/{known}")).await.status, 200, "reads go on");
        drop(fault);
        ledger.wait_for(10, 1, 0);
        load.finish();
        audit(&client, &ledger, &place).await;

        // Writes acknowledged after the fault do not depend on writes that failed during it.
        dev.kill();
        dev = place.start_in_time().await;
        audit(&dev.client().with_token(&token), &ledger, &place).await;
    }
    let load = Load::start(&dev, &token, &ledger, Unanswered::IsTheEnd);
    ledger.wait_for(5, 1, 0);
    let calls = ["-e", "trace=fdatasync,fsync", "-e", "inject=fdatasync,fsync:error=EIO"];
    let Some(fault) = Traced::attach(dev.pid(), &calls) else { return load.finish() };
    ledger.wait_for(0, 0, 5);
    dev.kill();
    load.finish();
    drop(fault);
    let dev = place.start_in_time().await;
    audit(&dev.client().with_token(&token), &ledger, &place).await;
    dev.terminate();
}
