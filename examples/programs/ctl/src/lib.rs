//! The program `artillery-ctl` for binaries that contain it: inspects a cluster and works with its data from outside, and
//! checks the directory of a node that isn't running.

mod args;
mod change;
mod check;
mod create_anew;
mod digest;
mod drain;
mod find;
mod get;
mod give_up;
mod leader;
mod load;
mod lock;
mod outcome;
mod output;
mod recover;
mod reopen;
mod reorder;
mod scan;
mod snapshot;
mod status;
mod ttl;
mod watch;

use std::{env, process::ExitCode, time::Duration};

use artillery_ddata::{Client, Kv, client::Spread};
use artillery_programs::{
    command,
    exit::{self, Failure},
    log,
    signals::Signals,
};
use clap::error::ErrorKind;

use self::{
    args::{Command, CtlArgs, LATER},
    lock::Contest,
    output::Output,
};

/// The name that this program is installed as.
const NAME: &str = "artillery-ctl";

/// Runs the program with the arguments of this process.
pub fn main() -> ExitCode {
    let args: CtlArgs = command::parse(&command::name(NAME), env::args_os());
    if let Command::Other(words) = &args.command {
        refuse(words.first().map_or("", String::as_str));
    }
    if let Command::RunHeld(held) = &args.command {
        return lock::run_held(held).into();
    }
    log::begin("ctl", args.log.level);
    let output = Output { json: args.json };
    exit::run(async {
        let done = run(&args, output).await;
        match &done {
            Err(failure) if failure.is_usage() => {}
            // Standard output belongs to another program.
            Err(failure) if uses_output(&args.command) => {
                output.failure_aside(failure);
            }
            Err(failure) => output.failure(failure),
            Ok(_) => {}
        }
        done
    })
}

fn uses_output(command: &Command) -> bool {
    match command {
        Command::Lock { .. } | Command::Elect { .. } => true,
        Command::Snapshot { file } => file.as_os_str() == "-",
        _ => false,
    }
}

/// Ends the program with exit code 2, for a planned or an unknown command.
fn refuse(command: &str) -> ! {
    let problem = if LATER.contains(&command) { "not yet" } else { "no such command" };
    command::named::<CtlArgs>(&command::name(NAME))
        .error(ErrorKind::InvalidSubcommand, format!("`{command}`: {problem}"))
        .exit()
}

async fn run(args: &CtlArgs, output: Output) -> Result<u8, Failure> {
    let mut signals = Signals::listen().map_err(Failure::failed)?;
    let timeout = Duration::from_millis(args.timeout);
    if let Command::Load(load) = &args.command {
        // The load ends by itself on a signal, and then reports its results up to that point.
        return load::run(load, args, output, &mut signals).await;
    }
    if let Command::Lock { hold } = &args.command {
        return lock::run(Contest::Lock, hold, args, output, &mut signals).await;
    }
    if let Command::Elect { hold, value } = &args.command {
        return lock::run(Contest::Election(value), hold, args, output, &mut signals).await;
    }
    if let Command::Check { path, hash_key } = &args.command {
        let check = async {
            match path.is_file() {
                true => snapshot::check(path, *hash_key, output).await,
                false => check::run(path, output).await,
            }
        };
        return tokio::select! {
            done = check => done,
            () = signals.asked_to_stop() => Err(Failure::failed("interrupted by a signal")),
        };
    }
    let work = async {
        let is_operator = matches!(
            args.command,
            Command::Status { .. }
                | Command::Recover { .. }
                | Command::CreateAnew { .. }
                | Command::Reopen { .. }
                | Command::GiveUp { .. }
        );
        let client = match is_operator {
            true => args.find.connect_anyway(Spread::Sticky, timeout).await?,
            false => args.find.connect(Spread::Sticky, timeout).await?,
        };
        let done = match &args.command {
            Command::CreateAnew { accept_loss } => {
                create_anew::run(&client, *accept_loss, &args.find, timeout, output).await
            }
            other => command(&client, other, timeout, output).await,
        };
        client.close().await;
        done
    };
    let is_endless = matches!(args.command, Command::Status { watch: true } | Command::Watch { .. });
    tokio::select! {
        done = work => done,
        () = output::reader_gone(), if is_endless => Ok(exit::DONE),
        () = signals.asked_to_stop() => match is_endless {
            true => Ok(exit::DONE),
            false => Err(Failure::failed(match args.command {
                Command::Snapshot { .. } | Command::Digest { .. } => "interrupted by a signal",
                _ => "interrupted by a signal; a write may have been applied",
            })),
        },
    }
}

async fn command(client: &Client, command: &Command, timeout: Duration, output: Output) -> Result<u8, Failure> {
    let kv: Kv = client.kv().with_timeout(timeout);
    match command {
        Command::Status { watch } => status::run(client, timeout, output, *watch).await,
        Command::Get { key, read } => get::run(client, &kv, key, *read, output).await,
        Command::Put { key, value, ttl } => change::put(&kv, key, value, *ttl, output).await,
        Command::Ttl { key, set: Some(ttl), .. } => ttl::set(&kv, key, *ttl, output).await,
        Command::Ttl { key, persist: true, .. } => ttl::persist(&kv, key, output).await,
        Command::Ttl { key, .. } => ttl::show(&kv, key, output).await,
        Command::Del { key } => change::del(&kv, key, output).await,
        Command::Cas { key, version, value } => change::cas(&kv, key, *version, value, output).await,
        Command::Incr { key, by } => change::incr(&kv, key, *by, output).await,
        Command::Append { key, value } => change::append(&kv, key, value, output).await,
        Command::Scan { prefix } => scan::run(&kv, prefix, output).await,
        Command::Digest { prefix, hash_key } => digest::run(client, &kv, prefix, *hash_key, output).await,
        Command::Snapshot { file } => snapshot::run(&kv, file, output).await,
        Command::Watch { prefix, from } => watch::run(&kv, prefix, from.as_ref(), output).await,
        Command::Drain { node } => drain::run(client, node, timeout, output).await,
        Command::Reorder { chain, nodes } => reorder::run(client, *chain, nodes, timeout, output).await,
        Command::Reopen { accept_loss } => reopen::run(client, *accept_loss, timeout, output).await,
        Command::GiveUp { accept_loss } => give_up::run(client, *accept_loss, timeout, output).await,
        Command::Recover { accept_loss } => recover::run(client, *accept_loss, timeout, output).await,
        Command::Outcome { request } => outcome::run(&kv, *request, output).await,
        Command::CreateAnew { .. }
        | Command::Check { .. }
        | Command::Load(_)
        | Command::Lock { .. }
        | Command::Elect { .. }
        | Command::RunHeld(_)
        | Command::Other(_) => Ok(exit::DONE),
    }
}
