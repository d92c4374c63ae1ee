//! Many clients of the Redis protocol that set keys one at a time, optionally waiting for replicas, which
//! `redis-benchmark` can't do. Prints operations per second.
//!
//! Each client has a thread, as in blocking client libraries, or all share one thread, as in `redis-benchmark`.

#![allow(clippy::disallowed_methods, reason = "it measures time")]

use std::{
    io::{Error, Read, Result, Write},
    net::TcpStream,
    thread,
    time::{Duration, Instant},
};

use clap::Parser;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    runtime,
    task::JoinSet,
};

#[derive(Parser, Clone)]
struct Options {
    /// Address of the server
    addr: String,
    clients: u64,
    seconds: u64,
    /// Send a WAIT for this many replicas after each SET, in the same write
    #[arg(long)]
    wait: Option<u64>,
    /// Send the WAIT only after the answer to the SET, as client libraries do
    #[arg(long, requires = "wait")]
    apart: bool,
    /// Run all clients in one thread
    #[arg(long)]
    one_thread: bool,
}

fn main() -> Result<()> {
    let options = Options::parse();
    let begun = Instant::now();
    let end = begun + Duration::from_secs(options.seconds);
    let done = if options.one_thread { in_one_thread(&options, end)? } else { in_threads(&options, end)? };
    println!("{:.0}", done as f64 / begun.elapsed().as_secs_f64());
    Ok(())
}

fn in_threads(options: &Options, end: Instant) -> Result<u64> {
    let clients: Vec<_> = (0..options.clients)
        .map(|number| {
            let client = Client::new(options, number);
            thread::spawn(move || client.run_blocking(end))
        })
        .collect();
    clients.into_iter().map(|client| client.join().map_err(|_| Error::other("a client panicked"))?).sum()
}

fn in_one_thread(options: &Options, end: Instant) -> Result<u64> {
    runtime::Builder::new_current_thread().enable_io().build()?.block_on(async {
        let mut clients: JoinSet<_> =
            (0..options.clients).map(|number| Client::new(options, number).run(end)).collect();
        let mut done = 0;
        while let Some(client) = clients.join_next().await {
            done += client??;
        }
        Ok(done)
    })
}

/// Sets one key after the other.
struct Client {
    options: Options,
    random: u64,
    done: u64,
}

/// Commands that are sent in one write, and the expected answers.
struct Exchange {
    commands: String,
    wanted: String,
}

impl Client {
    fn new(options: &Options, number: u64) -> Self {
        Self { options: options.clone(), random: number, done: 0 }
    }

    fn run_blocking(mut self, end: Instant) -> Result<u64> {
        let mut stream = TcpStream::connect(&self.options.addr)?;
        stream.set_nodelay(true)?;
        while Instant::now() < end {
            for exchange in self.next() {
                stream.write_all(exchange.commands.as_bytes())?;
                let mut answer = vec![0; exchange.wanted.len()];
                stream.read_exact(&mut answer)?;
                exchange.check(&answer)?;
            }
        }
        Ok(self.done)
    }

    async fn run(mut self, end: Instant) -> Result<u64> {
        let mut stream = tokio::net::TcpStream::connect(&self.options.addr).await?;
        stream.set_nodelay(true)?;
        while Instant::now() < end {
            for exchange in self.next() {
                stream.write_all(exchange.commands.as_bytes()).await?;
                let mut answer = vec![0; exchange.wanted.len()];
                stream.read_exact(&mut answer).await?;
                exchange.check(&answer)?;
            }
        }
        Ok(self.done)
    }

    /// The exchanges of one operation: one or two.
    fn next(&mut self) -> Vec<Exchange> {
        self.done += 1;
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let key = format!("key:{:012}", (self.random >> 33) % 10_000);
        let mut set = Exchange {
            commands: format!("*3\r\n$3\r\nSET\r\n${}\r\n{key}\r\n$3\r\nxxx\r\n", key.len()),
            wanted: "+OK\r\n".into(),
        };
        let Some(copies) = self.options.wait.map(|copies| copies.to_string()) else { return vec![set] };
        let commands = format!("*3\r\n$4\r\nWAIT\r\n${}\r\n{copies}\r\n$1\r\n0\r\n", copies.len());
        let wait = Exchange { commands, wanted: format!(":{copies}\r\n") };
        if self.options.apart {
            return vec![set, wait];
        }
        set.commands += &wait.commands;
        set.wanted += &wait.wanted;
        vec![set]
    }
}

impl Exchange {
    fn check(&self, answer: &[u8]) -> Result<()> {
        if answer == self.wanted.as_bytes() {
            return Ok(());
        }
        Err(Error::other(format!("answered {:?}", String::from_utf8_lossy(answer))))
    }
}
