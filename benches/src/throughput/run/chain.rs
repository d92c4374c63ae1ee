//! A measured chain: its nodes, its keys, and its callers.

use std::sync::Arc;

use artillery_ddata::{Client, NodeId};

use super::{
    contestant::Contestant,
    plan::{Plan, Way},
};
use crate::throughput::{
    Failed,
    book::Book,
    crew::{Crew, Driver, MakeLine, Tasks, Threads, spread},
    lines::{CarriedClient, KvLine, SharedClient, blocking_client, connect, reader},
    processes::{Cluster, Contact},
    quota::Quotas,
    results::System,
};

/// The number of writers that fill the keys, and of readers that verify the last values.
const FILLERS: usize = 50;

/// A chain, and the book of the writes to it.
pub(super) struct Chain {
    system: System,
    cluster: Cluster,
    book: Arc<Book>,
}

impl Chain {
    pub(super) fn start(
        plan: &Plan,
        system: System,
        members: u32,
        limit: Option<(&Quotas, f64)>,
    ) -> Result<Self, Failed> {
        let mode = if system == System::Cr { "cr" } else { "craq" };
        let mut cluster = Cluster::start(&plan.node, mode, members)?;
        let book = Book::new(plan.keys);
        for_each_key(&cluster.contact, &book, |line, at| async move { line.write(at).await })?;
        if let Some((quotas, share)) = limit {
            cluster.hold(|pid| quotas.hold(pid, share))?;
        }
        Ok(Self { system, cluster, book })
    }

    pub(super) fn members(&self) -> u32 {
        self.cluster.contact.members()
    }

    /// Checks that every key holds its last written value.
    pub(super) fn verify(&self) -> Result<(), Failed> {
        for_each_key(&self.cluster.contact, &self.book, |line, at| async move { line.read(at).await.map(drop) })
    }

    pub(super) fn contestant(&self, crew: impl Crew + 'static) -> Contestant {
        let (system, members, pids) = (self.system, self.members(), self.cluster.pids());
        Contestant { system, members, pids, crew: Box::new(crew) }
    }

    fn line(&self, client: &Client) -> KvLine {
        KvLine::new(client.kv(), self.book.clone(), self.members())
    }

    pub(super) fn threads(&self, plan: &Plan) -> Result<Threads, Failed> {
        let (contact, book) = (self.cluster.contact.clone(), self.book.clone());
        Ok(match plan.way {
            Way::Own => Threads::new(self.book.clone(), move || blocking_client(&contact, &book)),
            Way::Shared => {
                let driver = Driver::start(plan.workers)?;
                let line = self.line(&driver.run(async move { reader(&contact, &book).await })?);
                let make =
                    move || Ok(Box::new(SharedClient { line: line.clone(), handle: driver.handle().clone() }) as _);
                Threads::new(self.book.clone(), make)
            }
            Way::Carried => {
                let runtime = Arc::new(tokio::runtime::Builder::new_current_thread().enable_all().build()?);
                let line = self.line(&runtime.block_on(reader(&contact, &book))?);
                let make = move || {
                    Ok(Box::new(CarriedClient { line: line.clone(), runtime: runtime.clone(), own: None }) as _)
                };
                Threads::new(self.book.clone(), make)
            }
        })
    }

    /// All callers on one handle.
    pub(super) fn tasks(&self, plan: &Plan) -> Result<Tasks<KvLine>, Failed> {
        let driver = Arc::new(Driver::start(plan.workers)?);
        let (contact, book) = (self.cluster.contact.clone(), self.book.clone());
        let client = driver.run(async move { reader(&contact, &book).await })?;
        Ok(Tasks::new(self.book.clone(), [(driver, self.make_line(client))]))
    }

    fn make_line(&self, client: Client) -> MakeLine<KvLine> {
        let line = self.line(&client);
        Box::new(move || {
            // The client ends with the last line.
            let line = line.clone();
            Box::pin(async move { Ok(line) })
        })
    }

    /// As many clients as there are members, each on its own thread. In CRAQ the first read of each is served by a
    /// different member.
    pub(super) fn spread(&self) -> Result<Tasks<KvLine>, Failed> {
        let mut served = Vec::new();
        let mut parts = Vec::new();
        while parts.len() < self.members() as usize {
            let driver = Arc::new(Driver::start(0)?);
            let (contact, book, taken) = (self.cluster.contact.clone(), self.book.clone(), served.clone());
            let (members, system) = (self.members(), self.system);
            let (client, node) = driver.run(async move {
                let wanted = |node: &NodeId| system == System::Cr || !taken.contains(node);
                client_of(&contact, &book, members, wanted).await
            })?;
            served.push(node);
            parts.push((driver, self.make_line(client)));
        }
        Ok(Tasks::new(self.book.clone(), parts))
    }
}

/// A client whose first read one of the wanted nodes served, and that node. The client's later reads go to the member
/// that it prefers, once that is connected.
async fn client_of(
    contact: &Contact,
    book: &Arc<Book>,
    members: u32,
    wanted: impl Fn(&NodeId) -> bool,
) -> Result<(Client, NodeId), Failed> {
    const TRIES: usize = 500;
    for _ in 0..TRIES {
        let client = connect(contact).await?;
        let node = KvLine::new(client.kv(), book.clone(), members).read(0).await?;
        if wanted(&node) {
            return Ok((client, node));
        }
        client.close().await;
    }
    Err("clients never choose some of the members".into())
}

fn for_each_key<F: Future<Output = Result<(), Failed>> + Send + 'static>(
    contact: &Contact,
    book: &Arc<Book>,
    what: impl Fn(KvLine, usize) -> F + Clone + Send + 'static,
) -> Result<(), Failed> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let client = connect(contact).await?;
        let line = KvLine::new(client.kv(), book.clone(), contact.members());
        spread(0..FILLERS, FILLERS, book.keys(), move |at| what(line.clone(), at)).await?;
        client.close().await;
        Ok(())
    })
}
