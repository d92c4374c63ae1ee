//! The program `artillery-node`, one node of a cluster as a process, for binaries that contain it.

mod again;
mod args;
mod aside;
mod descriptors;
mod door;
mod http;
mod loading;
mod manager;
mod port;
mod resp;
mod seldom;
mod settings;
mod system;

use std::{env, ffi::OsString, process::ExitCode, time::Duration};

use artillery_ddata::{
    Node,
    http::NodeSlot,
    node::{DataDirError, NeverReady, StartError, Stopped},
};
use artillery_programs::{
    command,
    exit::{self, Failure},
    log,
    secret::IdentityArgs,
    signals::{Hangups, Signals},
};
use serde::Serialize;

use self::{
    again::Again,
    args::NodeArgs,
    manager::Manager,
    port::{Bound, Plan, Ports},
};

/// The line on standard output, printed once the node is ready. After a restart in the same process it is printed
/// again.
#[derive(Serialize)]
struct ReadyLine<'a> {
    ready: bool,
    node: &'a str,
    role: String,
    addr: String,
    resp: Option<String>,
    http: Option<String>,
}

/// A node allocates on every command: throughput is higher than with the system's allocator (`benches/README.md`).
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// A transient I/O error of the disk may vanish within this time. Real damage remains.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Runs the program with the arguments of this process.
pub fn main() -> ExitCode {
    main_of(&command::name("artillery-node"), env::args_os())
}

/// Runs the program under this name with these arguments, except the first. A node that restarts in place passes all
/// arguments of this process to the new run.
pub fn main_of(name: &str, args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let args: NodeArgs = command::parse(name, args);
    log::begin("node", args.log.level);
    descriptors::raise();
    let manager = Manager::from_environment();
    exit::run_on_one_thread(async {
        let done = run(args, &manager).await;
        if let Err(why) = &done {
            manager.ends(&why.to_string());
        }
        done
    })
}

async fn run(mut args: NodeArgs, manager: &Manager) -> Result<u8, Failure> {
    let mut signals = Signals::listen().map_err(Failure::failed)?;
    let hangups = Hangups::listen().map_err(Failure::failed)?;
    let ports = Ports::new(&args)?;
    let mut builder = Some(settings::builder(&args)?);
    // Bind first, so that a port in use is reported before the node takes part in the cluster.
    let (http, resp) = (bound(ports.http).await?, bound(ports.resp).await?);
    let limits = resp::Limits::new(&args);
    // The HTTP port is served while the node loads its directory.
    let shown = NodeSlot::new();
    let http = http.map(|port| http::serve(port, &shown));
    let mut looked_again = false;
    let node = loop {
        let builder = match builder.take() {
            Some(builder) => builder,
            None => settings::builder(&args)?,
        };
        let (loads, reports) = (shown.clone(), manager.clone());
        let progress = move |loading| {
            loading::show(&loads, loading);
            reports.loads(loading);
        };
        let starting = builder.on_loading(progress).start();
        let started = tokio::select! {
            started = starting => started,
            () = signals.asked_to_stop() => {
                manager.stops();
                tracing::warn!("stop requested during the start: exiting, nothing was served");
                return Ok(exit::DONE);
            }
        };
        match started {
            Err(StartError::Data(DataDirError::Damaged { why, .. })) if args.replace_damaged && !looked_again => {
                tracing::warn!(%why, "the directory is damaged: reading it once more before replacing it");
                looked_again = true;
                tokio::time::sleep(LOOK_AGAIN).await;
            }
            Err(StartError::Data(DataDirError::Damaged { dir, why, .. })) if args.replace_damaged => {
                args.existing |= again::knows_a_cluster(&args);
                let aside = aside::move_aside(&dir, "damaged")?;
                tracing::error!(%why, aside = %aside.display(), "the directory is damaged and was moved aside: starting with an empty one");
            }
            // The cluster was abandoned by an operator's order.
            Err(StartError::Data(DataDirError::GivenUp { dir, cluster })) => {
                let aside = aside::move_aside(&dir, "given-up")?;
                tracing::error!(%cluster, aside = %aside.display(), "the directory's cluster was abandoned: moved the directory aside, starting with an empty one");
            }
            started => break started.map_err(Failure::failed)?,
        }
    };
    let on_damage = args.replace_damaged.then_some(Again::Anew { existing: again::knows_a_cluster(&args) });
    tokio::spawn(follow_files(hangups, args.identity, node.clone()));
    shown.started(&node);
    let reports = tokio::spawn(manager.clone().follow(node.clone()));
    let resp = resp.map(|port| resp::serve(port, node.clone(), limits));
    tracing::info!(node = node.name(), addr = %node.addr(), http = http.as_deref(), resp = resp.as_deref(), "this node is up");
    let served = tokio::select! {
        served = serve(&node, on_damage, resp, http) => served,
        () = signals.asked_to_stop() => Ok(None),
    };
    reports.abort();
    match &served {
        Ok(Some(_)) => manager.ends("restarting in place"),
        _ => manager.stops(),
    }
    // `leave`, and `shutdown` without a directory, may take as long as a resync: the last member of a chain first hands
    // the chain over.
    let end = async { if args.leave_on_term { node.leave().await } else { node.shutdown().await } };
    let mut is_told_to_stop = false;
    tokio::select! {
        () = end => {}
        () = signals.asked_to_stop() => {
            is_told_to_stop = true;
            tracing::warn!("second stop signal: exiting now; data held only by this node is lost unless it is on disk");
        }
    }
    match served?.filter(|_| !is_told_to_stop) {
        Some(again) => Err(again.begin(&node.lineage())),
        None => Ok(exit::DONE),
    }
}

async fn bound(plan: Option<Plan>) -> Result<Option<Bound>, Failure> {
    match plan {
        Some(plan) => plan.bind().await.map(Some),
        None => Ok(None),
    }
}

/// Reads the files with secrets and certificates again at each SIGHUP, so that operators can replace a secret while
/// nodes run.
async fn follow_files(mut hangups: Hangups, files: IdentityArgs, node: Node) {
    loop {
        hangups.next().await;
        match files.identity(node.name()).and_then(|identity| node.set_identity(identity).map_err(Failure::failed)) {
            Ok(()) => tracing::warn!("SIGHUP: reloaded secrets and certificates"),
            Err(error) => {
                tracing::error!(%error, "SIGHUP: could not reload, keeping the previous secrets and certificates")
            }
        }
    }
}

/// Prints the ready line as soon as the node is ready. Returns only when the node has ended or can never be ready: the
/// kind of restart, or the failure if no restart is due.
async fn serve(
    node: &Node,
    on_damage: Option<Again>,
    resp: Option<String>,
    http: Option<String>,
) -> Result<Option<Again>, Failure> {
    let ready = match node.ready().await {
        Ok(ready) => ready,
        Err(NeverReady::Retired) => return Ok(Some(Again::Creates)),
        Err(NeverReady::Superseded) => return Ok(Some(Again::Joins)),
        Err(why @ NeverReady::Unformed) => {
            tracing::warn!(%why, "restarting this node");
            return Ok(Some(Again::Anew { existing: false }));
        }
        Err(NeverReady::NotLoaded { dir, is_damaged: true, why }) if on_damage.is_some() => {
            let aside = aside::move_aside(&dir, "damaged")?;
            tracing::error!(%why, aside = %aside.display(), "the directory is damaged and was moved aside: starting with an empty one");
            return Ok(on_damage);
        }
        Err(why) => return Err(never(why)),
    };
    let line = ReadyLine {
        ready: true,
        node: node.name(),
        role: ready.place.to_string(),
        addr: node.addr().to_string(),
        resp,
        http,
    };
    // The reader of the line may have closed the pipe; the node continues.
    let text = serde_json::to_string(&line).map_err(Failure::failed)?;
    let _ = std::io::Write::write_all(&mut std::io::stdout().lock(), format!("{text}\n").as_bytes());
    match node.stopped().await {
        Stopped::Retired => Ok(Some(Again::Creates)),
        Stopped::Superseded => Ok(Some(Again::Joins)),
        why => Err(Failure::failed(why)),
    }
}

/// The failure of a node that will never be ready. If the seeds didn't trust it, the usual cause is added.
fn never(why: NeverReady) -> Failure {
    match why {
        NeverReady::Refused(reasons) if reasons.contains("not trusted") => {
            Failure::failed(format!("every seed refused this node, check that its secret is the cluster's: {reasons}"))
        }
        why => Failure::failed(why),
    }
}
