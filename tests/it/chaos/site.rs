//! Nodes on one store, each with its own load, and the checks after a case.

use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use signet::x509::crl::Crl;

use super::clocks::FakeClock;
use super::copies::Copy;
use crate::crash::audit::{audit, missing, number};
use crate::crash::load::{Ledger, Load, Unanswered};
use crate::crash::place::Place;
use crate::process::Dev;
use crate::support::{Client, send};

pub const LIMIT: Duration = Duration::from_secs(60);

/// How a node is started: its database URL and its clock.
#[derive(Clone, Default)]
pub struct Way {
    pub url: Option<String>,
    pub clock: Option<Rc<FakeClock>>,
}

pub struct Node {
    way: Way,
    dev: Option<Dev>,
    load: Option<Load>,
    pub ledger: Ledger,
}

impl Node {
    pub fn dev(&self) -> &Dev {
        self.dev.as_ref().unwrap()
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_raw(i32::try_from(self.dev().pid()).unwrap()).unwrap(), signal).unwrap();
    }
}

pub struct Site {
    pub place: Place,
    pub nodes: Vec<Node>,
    token: String,
    copies: Vec<Copy>,
    rotations: Vec<JoinHandle<()>>,
}

impl Site {
    /// Starts a node for each way, with its load.
    pub async fn start(place: Place, ways: Vec<Way>) -> Self {
        let mut site = Self::prepared(place, ways).await;
        (0..site.nodes.len()).for_each(|node| site.load(node));
        site
    }

    /// Starts the nodes without load.
    pub async fn prepared(place: Place, ways: Vec<Way>) -> Self {
        let node = |way| Node { way, dev: None, load: None, ledger: Ledger::default() };
        let nodes = ways.into_iter().map(node).collect();
        let mut site = Self { place, nodes, token: String::new(), copies: Vec::new(), rotations: Vec::new() };
        (0..site.nodes.len()).for_each(|node| site.open(node));
        site.token = site.place.client(site.nodes[0].dev()).await.token;
        site
    }

    fn open(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        let mut command = self.place.command();
        if let Some(clock) = &node.way.clock {
            command.envs(clock.environment());
        }
        node.dev = Some(self.place.start_at(command, node.way.url.as_deref()));
    }

    pub fn load(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        node.load = Some(Load::start(node.dev.as_ref().unwrap(), &self.token, &node.ledger, Unanswered::IsWrong));
    }

    /// A client of a node with the token of the loads.
    pub fn client(&self, at: usize) -> Client {
        self.nodes[at].dev().client().with_token(&self.token)
    }

    pub fn kill(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        let load = node.load.take();
        load.iter().for_each(Load::expect_the_end);
        node.dev.take().unwrap().kill();
        load.into_iter().for_each(Load::finish);
    }

    pub fn terminate(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        let load = node.load.take();
        load.iter().for_each(Load::expect_the_end);
        node.dev.take().unwrap().terminate();
        load.into_iter().for_each(Load::finish);
    }

    pub fn restart(&mut self, at: usize) {
        self.open(at);
        self.load(at);
    }

    /// Waits until each node under load has issued and revoked this many more certificates.
    pub fn works(&self, issued: usize, revoked: usize) {
        let asked = self.nodes.iter().filter(|node| node.load.is_some());
        asked.for_each(|node| node.ledger.wait_for(issued, revoked, 0));
    }

    /// Rotates the data key in the background.
    pub fn rotate_meanwhile(&mut self, at: usize) {
        let client = self.client(at);
        self.rotations.push(std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(rotate(&client));
        }));
    }

    pub fn rotated(&mut self) {
        self.rotations.drain(..).for_each(|rotation| rotation.join().unwrap());
    }

    pub fn copy(&mut self) {
        self.copies.push(Copy::make(&self.place, &self.nodes));
    }

    /// Checks everything and stops all nodes.
    pub async fn judge(mut self) {
        self.rotated();
        for node in &mut self.nodes {
            node.load.take().into_iter().for_each(Load::finish);
        }
        self.hold_the_books_together();
        for at in 0..self.nodes.len() {
            self.know_all_revocations(&self.client(at)).await;
            // Each ledger is checked on a node other than its own.
            let ledger = &self.nodes[(at + 1) % self.nodes.len()].ledger;
            audit(&self.client(at), ledger, &self.place).await;
        }
        for at in 0..self.nodes.len() {
            self.terminate(at);
        }
        assert!(!self.copies.is_empty(), "a copy was made in the middle");
        self.copies.iter().for_each(|copy| copy.judge(&self.place));
        // The store itself, now that no node runs.
        Copy::make(&self.place, &self.nodes).judge(&self.place);
        if self.place.database().is_some() {
            assert_eq!(self.place.operator(&["verify-backup"]), "the database: ok\n");
        }
    }

    /// Asserts that no serial was issued by two nodes, and that a CRL number means the same CRL on all of them.
    fn hold_the_books_together(&self) {
        let mut serials = BTreeSet::new();
        let mut crls = HashMap::new();
        for node in &self.nodes {
            let book = node.ledger.read();
            assert!(book.wrong.is_empty(), "{:#?}", book.wrong);
            for serial in book.issued.keys() {
                assert!(serials.insert(serial.clone()), "{serial} was issued by two nodes");
            }
            for (number, list) in &book.crls {
                assert_eq!(crls.entry(*number).or_insert(*list), list, "two lists have the number {number}");
            }
        }
        println!("{} certificates, {} lists", serials.len(), crls.len());
    }

    /// Waits until a node's CRL has all revocations, under a number not below any that a client saw.
    async fn know_all_revocations(&self, client: &Client) {
        let mut revoked = HashMap::new();
        let mut last = 0;
        for node in &self.nodes {
            let book = node.ledger.read();
            revoked.extend(book.revoked.clone());
            last = last.max(book.crl_number);
        }
        let started = Instant::now();
        loop {
            let der = client.request("GET", "pki/crl").send().await.unwrap().bytes().await.unwrap();
            let crl = Crl::parse(&der).unwrap();
            let missing = missing(&crl, &revoked);
            if missing.is_empty() && number(&crl) >= last {
                return;
            }
            assert!(started.elapsed() < LIMIT, "CRL {} of at least {last} lacks {missing:?}", number(&crl));
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

async fn rotate(client: &Client) {
    let started = Instant::now();
    loop {
        let request = client.request("POST", "sys/rotate").timeout(2 * LIMIT).json(&json!({}));
        let answer = send(request).await;
        match answer.status {
            204 => return,
            503 => assert!(started.elapsed() < LIMIT, "no data key: {}", answer.text),
            _ => panic!("{}: {}", answer.status, answer.text),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
