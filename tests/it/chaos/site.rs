//! Nodes on one store, each with a load of its own, and the judgement afterwards.

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

/// Longest wait for what must come.
pub const LIMIT: Duration = Duration::from_secs(60);

/// How a node is started: its way to the database, its clock.
#[derive(Clone, Default)]
pub struct Way {
    pub url: Option<String>,
    pub clock: Option<Rc<FakeClock>>,
}

/// One node, and what its clients were told.
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

    /// Sends its process a signal.
    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_raw(i32::try_from(self.dev().pid()).unwrap()).unwrap(), signal).unwrap();
    }
}

/// The nodes of one store.
pub struct Site {
    pub place: Place,
    pub nodes: Vec<Node>,
    token: String,
    copies: Vec<Copy>,
    rotations: Vec<JoinHandle<()>>,
}

impl Site {
    /// Starts a node for each way, and their loads.
    pub async fn start(place: Place, ways: Vec<Way>) -> Self {
        let mut site = Self::prepared(place, ways).await;
        (0..site.nodes.len()).for_each(|node| site.load(node));
        site
    }

    /// Starts the nodes, and nobody asks them yet.
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

    /// Begins to ask a node.
    pub fn load(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        node.load = Some(Load::start(node.dev.as_ref().unwrap(), &self.token, &node.ledger, Unanswered::IsWrong));
    }

    /// A node's client with the token of the loads.
    pub fn client(&self, at: usize) -> Client {
        self.nodes[at].dev().client().with_token(&self.token)
    }

    /// Ends a node in the middle of what it does.
    pub fn kill(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        let load = node.load.take();
        load.iter().for_each(Load::expect_the_end);
        node.dev.take().unwrap().kill();
        load.into_iter().for_each(Load::finish);
    }

    /// Ends a node as an operator does; what it was asked is answered.
    pub fn terminate(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        let load = node.load.take();
        load.iter().for_each(Load::expect_the_end);
        node.dev.take().unwrap().terminate();
        load.into_iter().for_each(Load::finish);
    }

    /// Starts a node that ended, and its load.
    pub fn restart(&mut self, at: usize) {
        self.open(at);
        self.load(at);
    }

    /// Waits until every node that is asked has answered so many more, each.
    pub fn works(&self, issued: usize, revoked: usize) {
        let asked = self.nodes.iter().filter(|node| node.load.is_some());
        asked.for_each(|node| node.ledger.wait_for(issued, revoked, 0));
    }

    /// Makes a new data key by a node, while something else is done.
    pub fn rotate_meanwhile(&mut self, at: usize) {
        let client = self.client(at);
        self.rotations.push(std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(rotate(&client));
        }));
    }

    /// Waits for the rotations that were begun.
    pub fn rotated(&mut self) {
        self.rotations.drain(..).for_each(|rotation| rotation.join().unwrap());
    }

    /// Copies the store as it is.
    pub fn copy(&mut self) {
        self.copies.push(Copy::make(&self.place, &self.nodes));
    }

    /// The judgement. Ends all nodes.
    pub async fn judge(mut self) {
        self.rotated();
        for node in &mut self.nodes {
            node.load.take().into_iter().for_each(Load::finish);
        }
        self.hold_the_books_together();
        for at in 0..self.nodes.len() {
            self.know_all_revocations(&self.client(at)).await;
            // Each book is looked for on another node than the one that told it.
            let ledger = &self.nodes[(at + 1) % self.nodes.len()].ledger;
            audit(&self.client(at), ledger, &self.place).await;
        }
        for at in 0..self.nodes.len() {
            self.terminate(at);
        }
        assert!(!self.copies.is_empty(), "a copy was made in the middle");
        self.copies.iter().for_each(|copy| copy.judge(&self.place));
        // The store itself, now that nobody works on it.
        Copy::make(&self.place, &self.nodes).judge(&self.place);
        if self.place.database().is_some() {
            assert_eq!(self.place.operator(&["verify-backup"]), "the database: ok\n");
        }
    }

    /// No serial was answered by two nodes, and a CRL number means the same list on all of them.
    fn hold_the_books_together(&self) {
        let (mut serials, mut crls) = (BTreeSet::new(), HashMap::new());
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

    /// Waits until a node's CRL has the revocations of all, under a number that is not below any that was seen.
    async fn know_all_revocations(&self, client: &Client) {
        let (mut revoked, mut last) = (HashMap::new(), 0);
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
