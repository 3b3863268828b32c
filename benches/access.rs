//! Cost of an access log line for an HTTP worker, with one and with two threads. Redirect standard error
//! to a file or `/dev/null`.

use std::time::Duration;

use signet::telemetry::access::AccessLogLine;
use signet::telemetry::{LogFormat, LogSettings, RouteMeter, install_logs};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    let settings = LogSettings { filter: "info".to_owned(), format: LogFormat::Text, access: true };
    install_logs(&settings).expect("logs are set up once");
    divan::main();
}

#[divan::bench(threads = [1, 2])]
fn line(bencher: divan::Bencher<'_, '_>) {
    let route = RouteMeter::new("secrets", "update", "pki/issue/:role".to_owned());
    let access = AccessLogLine {
        id: "0f8fad5b-d9cb-469f-a165-70867728950e",
        trace_id: "",
        route: &route,
        mount: "pki/",
        caller: "approle",
        client_address: Some([192, 0, 2, 1].into()),
        status: 200,
        took: Duration::from_micros(412),
    };
    bencher.bench(|| access.log());
}
