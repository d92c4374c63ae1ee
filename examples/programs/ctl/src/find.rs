//! Finds a cluster by seeds, by mDNS, or by both.

use std::{future::poll_fn, net::SocketAddr, time::Duration};

use artillery_core::{
    config::TransportConfig,
    discovery::{Candidates as Stream, Discovery, Interfaces, MdnsDiscovery, MdnsSettings, Seed},
    error::ConnectError,
};
use artillery_ddata::{
    Client, ClientBuilder,
    client::{Candidates, ClientError, Spread, Unreached},
    node::{RefusedPeer, WaitingFor},
};
use artillery_programs::{
    args::LinkArgs,
    exit::Failure,
    secret::{Admission, IdentityArgs},
};

/// The help's heading of the flags by which a cluster is reached.
pub(crate) const ACCESS: &str = "Cluster access";

/// The flags that identify a cluster and its addresses.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = ACCESS)]
pub(crate) struct FindArgs {
    /// Name of the cluster
    #[arg(long, value_name = "NAME", default_value = "artillery", global = true)]
    pub(crate) cluster: String,
    /// Address of a node, as HOST:PORT; repeatable
    #[arg(long = "seed", value_name = "HOST:PORT", global = true)]
    pub(crate) seeds: Vec<Seed>,
    /// Don't use mDNS to find nodes
    #[arg(long, global = true)]
    pub(crate) no_mdns: bool,
    /// Network interface for mDNS (default: all, including loopback)
    #[arg(long, value_name = "NAME", global = true)]
    pub(crate) interface: Option<String>,
    #[command(flatten)]
    pub(crate) link: LinkArgs,
    // Last, since its help heading would apply to the flags after it, too.
    #[command(flatten)]
    pub(crate) identity: IdentityArgs,
}

impl FindArgs {
    fn check(&self) -> Result<(), Failure> {
        if self.no_mdns && self.seeds.is_empty() {
            return Err(Failure::usage("--no-mdns needs at least one --seed"));
        }
        Ok(())
    }

    pub(crate) async fn connect(&self, spread: Spread, timeout: Duration) -> Result<Client, Failure> {
        let builder = self.builder(spread, timeout).await?;
        builder.connect().await.map_err(unreached)
    }

    /// Like [`FindArgs::connect`], for operators' commands, which may concern an abandoned cluster.
    pub(crate) async fn connect_anyway(&self, spread: Spread, timeout: Duration) -> Result<Client, Failure> {
        let builder = self.builder(spread, timeout).await?.even_if_succeeded();
        builder.connect().await.map_err(unreached)
    }

    /// Connects to the cluster to which a node at one of these addresses belongs.
    pub(crate) async fn connect_to(&self, addrs: &[SocketAddr], timeout: Duration) -> Result<Client, Failure> {
        let (builder, _) = self.admitted(Spread::Sticky, timeout)?;
        let builder = builder.transport(self.transport());
        builder.seeds(addrs.iter().copied()).connect().await.map_err(unreached)
    }

    async fn builder(&self, spread: Spread, timeout: Duration) -> Result<ClientBuilder, Failure> {
        self.check()?;
        let (builder, local_only) = self.admitted(spread, timeout)?;
        if local_only {
            tracing::warn!("no secret given: using the development secret, on loopback only");
        }
        if local_only {
            self.check_local().await?;
        }
        let seeds = self.seeds.iter().cloned();
        let builder = builder.transport(self.transport());
        Ok(if self.no_mdns { builder.seeds(seeds) } else { builder.seeds(seeds).candidates(self.listen(local_only)) })
    }

    /// The address to listen on doesn't matter: a client's socket dials any address and accepts no connection.
    fn transport(&self) -> TransportConfig {
        self.link.transport(TransportConfig::default().listen)
    }

    /// A builder with the credentials, and whether they are valid on loopback only.
    fn admitted(&self, spread: Spread, timeout: Duration) -> Result<(ClientBuilder, bool), Failure> {
        let admission = self.identity.admission()?;
        let local_only = admission.is_development();
        let builder = Client::builder().cluster(&self.cluster).spread(spread).timeout(timeout);
        let builder = match self.identity.also_trusted()? {
            Some(secret) => builder.also_trust_secret(secret),
            None => builder,
        };
        let builder = match admission {
            Admission::Secret(secret) | Admission::Development(secret) => builder.secret(secret),
            Admission::Certificates(identity) => builder.identity(identity),
        };
        Ok((builder, local_only))
    }

    /// Refuses seeds beyond loopback, for the development secret.
    async fn check_local(&self) -> Result<(), Failure> {
        for seed in &self.seeds {
            let addrs = seed.resolve().await.map_err(Failure::failed)?;
            if let Some(addr) = addrs.iter().find(|addr| !addr.ip().is_loopback()) {
                return Err(Failure::usage(format!("--seed {addr}: a secret is required beyond loopback")));
            }
        }
        Ok(())
    }

    /// The nodes that mDNS discovers, continuously until the program ends.
    fn listen(&self, local_only: bool) -> Candidates {
        let candidates = Candidates::new();
        let mut places = vec![Interfaces::Loopback];
        match &self.interface {
            Some(name) => places = vec![Interfaces::Named(vec![name.clone()])],
            None if !local_only => places.push(Interfaces::All),
            None => {}
        }
        for interfaces in places {
            match MdnsDiscovery::new(MdnsSettings::new(&self.cluster).interfaces(interfaces)) {
                Ok(mdns) => drop(tokio::spawn(collect(mdns.candidates(), candidates.clone(), local_only))),
                Err(error) => tracing::warn!(%error, "mDNS is unavailable: nodes can only be found by --seed"),
            }
        }
        candidates
    }
}

/// The failure if no node was reached, with the answer of each address.
fn unreached(error: ClientError) -> Failure {
    let ClientError::Unreachable(all) = error else { return Failure::failed(error) };
    if all.is_empty() {
        return Failure::failed(
            "found no node of this cluster by mDNS, and no seed has an address: check --cluster, or give --seed",
        );
    }
    let is_untrusted = all.iter().any(|one| matches!(one.connect_error(), Some(ConnectError::Untrusted(_))));
    let answers = all.into_iter().map(|one| match one {
        Unreached::Addr { addr, reason, .. } => WaitingFor::Refused(RefusedPeer::new(addr, reason)).to_string(),
        other => other.to_string(),
    });
    let answers = answers.collect::<Vec<_>>().join("; ");
    let hint = if is_untrusted { "; check that the secret is the cluster's" } else { "" };
    Failure::failed(format!("no node was reached: {answers}{hint}"))
}

async fn collect(mut stream: Stream, candidates: Candidates, local_only: bool) {
    while let Some(candidate) = poll_fn(|context| stream.as_mut().poll_next(context)).await {
        if !candidate.gone {
            let fine = |addr: &&SocketAddr| !local_only || addr.ip().is_loopback();
            candidate.addrs.iter().filter(fine).for_each(|&addr| candidates.add(addr));
        }
    }
}
