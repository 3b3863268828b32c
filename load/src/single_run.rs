//! One run of a plan on one server, and its report.

use serde_json::{Value, json};

use crate::anchors::{self, Anchors};
use crate::environment::Facts;
use crate::figures::Figures;
use crate::order::{Order, RunArgs};
use crate::plan::{MountContents, Plan};
use crate::preload;
use crate::report::{Outputs, Report};
use crate::server::{Server, StartupTimes};
use crate::target::Target;
use crate::workload;

/// The server of a run, ready for its requests, and reference measurements of the machine.
pub(crate) struct PreparedServer {
    pub(crate) server: Server,
    plan: Plan,
    start: Option<StartupTimes>,
    /// Contents of the mount before the run; `None` if they were not counted.
    stock: Option<MountContents>,
    anchors: Anchors,
}

impl PreparedServer {
    /// Opens the server, fills its store and measures the machine.
    pub(crate) async fn open(target: &Target, plan: Plan, wanted: MountContents) -> Result<Self, String> {
        let server = target.open(plan.scenario).await?;
        let start = server.start().await?;
        let stock = fill(&server, &plan, wanted).await?;
        let anchors = anchors::measure(server.folder(), plan.makes_rsa())?;
        Ok(Self { server, plan, start, stock, anchors })
    }

    /// Returns the facts of a report.
    pub(crate) fn facts(&self) -> Result<Facts, String> {
        let process = self.server.process().map(|process| ("process".to_owned(), process));
        let start = self.start.map(|start| ("start".to_owned(), start.to_string()));
        let stock = self.stock.map(|stock| ("certificates before".to_owned(), stock.to_string()));
        let store = self.server.store()?.unwrap_or_else(|| "of a running server".to_owned());
        let own = [Some(("store".to_owned(), store)), process, start, stock].into_iter().flatten();
        Ok(self.plan.facts().into_iter().chain(self.anchors.facts()).chain(own).collect())
    }

    /// Returns the results of a run with the server, its contents and the machine.
    pub(crate) fn json(&self, figures: &Figures) -> Result<Value, String> {
        let Self { server, plan, start, stock, anchors } = self;
        let mut json = figures.json();
        let more = json!({
            "scenario": plan.scenario.name(),
            "store": server.store()?,
            "process": server.process(),
            "start_seconds": start.map(|start| json!({
                "listening": start.listening.as_secs_f64(),
                "first_crl": start.crl.as_secs_f64(),
            })),
            "stored": !plan.no_store,
            "certificates_before": stock.map(|stock| stock.certificates),
            "revoked_before": stock.map(|stock| stock.revoked),
            "rate": plan.pace.rate,
            "rsa_share_of_limit": rsa_share(figures, anchors),
            "p99_allowance_ms": anchors.p99_allowance_ms(),
            "machine": anchors.json(),
        });
        if let (Some(figures), Value::Object(more)) = (json.as_object_mut(), more) {
            figures.extend(more);
        }
        Ok(json)
    }
}

/// Returns the rate of RSA keys (the last class of such a run) relative to what the cores can generate.
fn rsa_share(figures: &Figures, anchors: &Anchors) -> Option<f64> {
    let rate = figures.classes.last().map(|class| figures.rate(class))?;
    anchors.rsa_2048_per_second().map(|limit| rate / limit)
}

/// Runs one plan on its server.
pub(crate) async fn run(order: &Order, outputs: &Outputs) -> Result<(), String> {
    let plan = order.target.plan(&order.plan);
    let ready = PreparedServer::open(&order.target, plan, order.wanted).await?;
    let server = &ready.server;
    let figures = workload::run(&ready.plan, &server.access(), server.watched).await?;
    let mut report = Report::new(&order.name, ready.json(&figures)?).facts(ready.facts()?);
    if let Some(share) = rsa_share(&figures, &ready.anchors) {
        report = report.fact("RSA share", format!("{:.0} % of the keys that all cores generate", share * 100.0));
    }
    report.run(ready.plan.scenario.name(), &figures).publish(outputs)?;
    figures.outcome()
}

/// Fills the store without a run.
pub(crate) async fn preload(args: &RunArgs) -> Result<(), String> {
    let order = args.order()?;
    if order.wanted.is_empty() {
        return Err("--preload: must be given with preload".to_owned());
    }
    let server = order.target.open(order.plan.scenario).await?;
    let stock = fill(&server, &order.plan, order.wanted).await?.unwrap_or(order.wanted);
    let json = json!({ "scenario": "preload", "store": server.store()?, "certificates": stock.certificates,
        "revoked": stock.revoked });
    Report::new(server.title("preload")?, json).fact("certificates", stock).publish(&args.outputs)
}

/// Fills the store if requested, and waits until its data is on disk.
pub(crate) async fn fill(server: &Server, plan: &Plan, wanted: MountContents) -> Result<Option<MountContents>, String> {
    if wanted.is_empty() {
        return Ok(None);
    }
    let stock = preload::fill(&server.access(), wanted, plan.preload_role(), plan.quiet).await?;
    server.settle()?;
    Ok(Some(stock))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rsa_share_is_the_rate_of_the_last_class_relative_to_the_cores() {
        let anchors = |keygen| Anchors { rsa_2048_keygen_ms: keygen, cores: 2, ..Anchors::default() };
        let figures = Figures::of_counts(&[10_000, 100]);
        assert_eq!(rsa_share(&figures, &anchors(Some(50.0))), Some(0.25));
        assert_eq!(rsa_share(&figures, &anchors(None)), None);
    }
}
