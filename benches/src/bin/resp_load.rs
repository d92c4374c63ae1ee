//! Many clients of the Redis protocol that set keys one at a time, with or without waiting for replicas: what
//! `redis-benchmark` can't ask for. Prints operations a second.
//!
//! It knows nothing but the standard library: a thread for each client, which writes and reads as both servers see it.

#![allow(clippy::disallowed_methods, reason = "it measures time")]

use std::{
    env,
    io::{Read, Write},
    net::TcpStream,
    thread,
    time::{Duration, Instant},
};

/// What the command line says: ADDR CLIENTS SECONDS `[COPIES [apart]]`.
#[derive(Clone)]
struct Options {
    addr: String,
    clients: u64,
    seconds: u64,
    /// Behind each SET a WAIT for so many replicas, in the same write.
    copies: Option<u64>,
    /// Not in the same write, but when the SET is answered: as client libraries do it.
    apart: bool,
}

impl Options {
    fn parse() -> Option<Self> {
        let mut args = env::args().skip(1);
        let addr = args.next()?;
        let mut number = || args.next().map(|word| word.parse().ok());
        let (clients, seconds) = (number()??, number()??);
        let copies = number().map_or(Some(None), |n| n.map(Some))?;
        let apart = match args.next() {
            Some(word) if word == "apart" => true,
            Some(_) => return None,
            None => false,
        };
        Some(Self { addr, clients, seconds, copies, apart })
    }
}

fn main() -> std::io::Result<()> {
    let Some(options) = Options::parse() else {
        return Err(std::io::Error::other("usage: resp_load ADDR CLIENTS SECONDS [COPIES [apart]]"));
    };
    let begun = Instant::now();
    let end = begun + Duration::from_secs(options.seconds);
    let done: std::io::Result<Vec<u64>> = thread::scope(|scope| {
        let client = |number| {
            let options = &options;
            scope.spawn(move || client(options, number, end))
        };
        let clients: Vec<_> = (0..options.clients).map(client).collect();
        clients
            .into_iter()
            .map(|client| client.join().map_err(|_| std::io::Error::other("a client panicked"))?)
            .collect()
    });
    println!("{:.0}", done?.iter().sum::<u64>() as f64 / begun.elapsed().as_secs_f64());
    Ok(())
}

/// One after the other until the end. Returns how many.
fn client(options: &Options, number: u64, end: Instant) -> std::io::Result<u64> {
    let mut stream = TcpStream::connect(&options.addr)?;
    stream.set_nodelay(true)?;
    let (mut random, mut done) = (number, 0);
    while Instant::now() < end {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let key = format!("key:{:012}", (random >> 33) % 10_000);
        let set = format!("*3\r\n$3\r\nSET\r\n${}\r\n{key}\r\n$3\r\nxxx\r\n", key.len());
        let wait = options.copies.map(|copies| {
            let copies = copies.to_string();
            let command = format!("*3\r\n$4\r\nWAIT\r\n${}\r\n{copies}\r\n$1\r\n0\r\n", copies.len());
            (command, format!(":{copies}\r\n"))
        });
        match wait {
            None => ask(&mut stream, &set, "+OK\r\n")?,
            Some((wait, waited)) if options.apart => {
                ask(&mut stream, &set, "+OK\r\n")?;
                ask(&mut stream, &wait, &waited)?;
            }
            Some((wait, waited)) => ask(&mut stream, &(set + &wait), &format!("+OK\r\n{waited}"))?,
        }
        done += 1;
    }
    Ok(done)
}

/// Sends commands in one write, and takes in their answers.
fn ask(stream: &mut TcpStream, commands: &str, wanted: &str) -> std::io::Result<()> {
    let mut answer = vec![0; wanted.len()];
    stream.write_all(commands.as_bytes())?;
    stream.read_exact(&mut answer)?;
    if answer == wanted.as_bytes() {
        return Ok(());
    }
    Err(std::io::Error::other(format!("answered {:?}", String::from_utf8_lossy(&answer))))
}
