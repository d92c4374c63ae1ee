//! `ctl lock` and `ctl elect`: run a command while this process holds a lock or leads an election.

mod command;

use std::{ffi::OsString, time::Duration};

use artillery_ddata::{
    Client, Kv,
    client::Spread,
    recipes::{Guard, Leadership, LockError},
};
use artillery_programs::{exit::Failure, signals::Signals};
use serde_json::json;

use self::command::Held;
pub(super) use self::command::{RunHeldArgs, run_held};
use super::{args::CtlArgs, output::Output};

/// The flags of `lock` and `elect`.
#[derive(Debug, clap::Args)]
pub(super) struct HoldArgs {
    /// The name
    name: String,
    /// How long it stays held after its holder dies or is cut off, in milliseconds; should be several times the duration
    /// of a failover
    #[arg(long, value_name = "MS", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(500..=86_400_000))]
    ttl: u64,
    /// Fail if others are first for this many milliseconds (default: wait without a limit)
    #[arg(long, value_name = "MS")]
    wait: Option<u64>,
    /// The command and its arguments. Its environment has ARTILLERY_LOCK (the name), ARTILLERY_TOKEN,
    /// ARTILLERY_CLUSTER and ARTILLERY_LOCK_KEY
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// The kind of the name.
#[derive(Debug, Clone, Copy)]
pub(super) enum Contest<'a> {
    Lock,
    /// The leader publishes this value.
    Election(&'a str),
}

enum Won {
    Lock(Guard),
    Election(Leadership),
}

impl Won {
    fn guard(&self) -> &Guard {
        match self {
            Self::Lock(guard) => guard,
            Self::Election(leadership) => leadership,
        }
    }

    async fn release(self) -> Result<(), LockError> {
        match self {
            Self::Lock(guard) => guard.release().await,
            Self::Election(leadership) => leadership.resign().await,
        }
    }
}

impl Contest<'_> {
    fn word(self) -> &'static str {
        match self {
            Self::Lock => "lock",
            Self::Election(_) => "election",
        }
    }

    async fn win(self, kv: &Kv, args: &HoldArgs) -> Result<Won, LockError> {
        let ttl = Duration::from_millis(args.ttl);
        let wait = args.wait.map_or(Duration::MAX, Duration::from_millis);
        match self {
            Self::Lock => kv.lock(&args.name).with_ttl(ttl).acquire().timeout(wait).await.map(Won::Lock),
            Self::Election(value) => {
                let campaign = kv.election(&args.name).with_ttl(ttl).campaign(value.to_owned());
                campaign.timeout(wait).await.map(Won::Election)
            }
        }
    }
}

/// Returns the exit code of the command. Standard output belongs to the command.
pub(super) async fn run(
    contest: Contest<'_>,
    hold: &HoldArgs,
    args: &CtlArgs,
    output: Output,
    signals: &mut Signals,
) -> Result<u8, Failure> {
    // The command would continue without the lock if a closed terminal ended this process alone.
    signals.listen_to_all().map_err(Failure::failed)?;
    let timeout = Duration::from_millis(args.timeout);
    let client = tokio::select! {
        client = args.find.connect(Spread::Sticky, timeout) => client?,
        () = signals.asked_to_stop() => return Err(Failure::failed("interrupted by a signal")),
    };
    let done = contend(contest, hold, &client, timeout, output, signals).await;
    // Deletes the key of a contender that stopped waiting.
    client.close().await;
    done
}

async fn contend(
    contest: Contest<'_>,
    hold: &HoldArgs,
    client: &Client,
    timeout: Duration,
    output: Output,
    signals: &mut Signals,
) -> Result<u8, Failure> {
    let kv = client.kv().with_timeout(timeout);
    let won = tokio::select! {
        biased;
        () = signals.asked_to_stop() => return Err(Failure::failed("interrupted by a signal while waiting")),
        won = contest.win(&kv, hold) => won.map_err(failure)?,
    };
    let guard = won.guard();
    if output.json {
        eprintln!("{}", json!({ contest.word(): hold.name, "token": guard.token().to_string(), "held": true }));
    }
    let ended =
        Held { guard, name: &hold.name, ttl: Duration::from_millis(hold.ttl) }.run(&hold.command, signals).await;
    if let Err(error @ LockError::Call(_)) = won.release().await {
        eprintln!("warning: the {} is free after its time to live only: {error}", contest.word());
    }
    ended
}

fn failure(error: LockError) -> Failure {
    match error {
        LockError::Call(error) => error.into(),
        error => Failure::failed(error),
    }
}
