//! Random commands at random nodes, compared with the answers of a redis-server. Conditions on values, which that
//! release doesn't know, are compared with scripts that do the same.

use std::time::{SystemTime, UNIX_EPOCH};

use super::{Wire, cluster, port, table::redis_server, wire::command};

const SEQUENCES: usize = 2000;
const TASKS: usize = 8;
/// Sets a key if its value is, or isn't, the expected one.
const SET_IF: &str = "local v = redis.call('GET', KEYS[1]) \
    if (v == ARGV[2]) ~= (ARGV[3] == 'IFEQ') then if ARGV[4] == 'GET' then return v end return false end \
    local done = redis.call('SET', KEYS[1], ARGV[1], unpack(ARGV, 5)) \
    if ARGV[4] == 'GET' then return v end return done";
const DELETE_IF: &str = "local v = redis.call('GET', KEYS[1]) \
    if not v or (v == ARGV[1]) ~= (ARGV[2] == 'IFEQ') then return 0 end return redis.call('DEL', KEYS[1])";

/// A generator of numbers (splitmix64).
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % end
    }

    /// A decimal number with up to nine digits.
    fn decimal(&mut self) -> String {
        let (digits, point) = (1 + self.below(9) as u32, self.below(5) as usize);
        let (number, unit) = (self.below(10_u64.pow(digits)), 10_u64.pow(point as u32));
        let sign = self.one(&["", "-"]);
        format!("{sign}{}.{:0point$}", number / unit, number % unit)
    }

    fn one<'a>(&mut self, all: &[&'a str]) -> &'a str {
        all[self.below(all.len() as u64) as usize]
    }
}

/// A command, and what redis-server gets for it.
struct Case {
    ours: Vec<String>,
    theirs: Vec<String>,
}

impl From<String> for Case {
    fn from(line: String) -> Self {
        let words: Vec<_> =
            line.split(' ').map(|word| if word == "''" { String::new() } else { word.to_owned() }).collect();
        Self { ours: words.clone(), theirs: words }
    }
}

struct Sequence {
    random: Random,
    prefix: String,
    step: u64,
}

impl Sequence {
    fn key(&mut self) -> String {
        format!("{}{}", self.prefix, self.random.one(&["a", "b", "c"]))
    }

    fn value(&mut self) -> &'static str {
        // Fractions with an exact binary form: the server's floats have other digits than a decimal sum.
        self.random.one(&["''", "1", "10", "-3", "2.5", "0.125", "a", "hello"])
    }

    /// A length in seconds that no other step of the sequence has, so that comparisons of two don't depend on
    /// milliseconds; or none, or one in the past.
    fn seconds(&mut self) -> i64 {
        match self.random.below(6) {
            0 => -(self.random.below(2) as i64) * 5,
            some => 10_000 * some as i64 + 100 * self.step as i64,
        }
    }

    /// The option of a set or GETEX, and its value.
    fn time(&mut self) -> String {
        let seconds = self.seconds();
        let at = if seconds > 0 { now() + seconds } else { 1 + self.random.below(2) as i64 * 5 };
        match self.random.below(4) {
            0 => format!("EX {seconds}"),
            1 => format!("PX {}", seconds * 1000),
            2 => format!("EXAT {at}"),
            _ => format!("PXAT {}", at * 1000),
        }
    }

    fn conditional(&mut self) -> Case {
        let (key, value, other) = (self.key(), self.value(), self.value());
        let condition = self.random.one(&["IFEQ", "IFNE"]);
        let get = self.random.one(&["", " GET"]);
        // The script checks times only if it sets the key, so they are valid.
        let time = match self.random.below(4) {
            0 => format!(" PX {}", 10_000_000 + 100_000 * self.step),
            1 => " EXAT 5".to_owned(),
            _ => String::new(),
        };
        let ours = Case::from(format!("SET {key} {value} {condition} {other}{get}{time}")).ours;
        let flag = if get.is_empty() { "-" } else { "GET" };
        let mut theirs = vec!["EVAL".to_owned(), SET_IF.to_owned()];
        theirs.extend(Case::from(format!("1 {key} {value} {other} {condition} {flag}{time}")).ours);
        Case { ours, theirs }
    }

    fn deletion(&mut self) -> Case {
        let (key, value) = (self.key(), self.value());
        let condition = self.random.one(&["IFEQ", "IFNE"]);
        let ours = match self.random.below(2) {
            0 if condition == "IFEQ" => format!("DELIFEQ {key} {value}"),
            _ => format!("DELEX {key} {condition} {value}"),
        };
        let mut theirs = vec!["EVAL".to_owned(), DELETE_IF.to_owned()];
        theirs.extend(Case::from(format!("1 {key} {value} {condition}")).ours);
        Case { ours: Case::from(ours).ours, theirs }
    }

    fn next(&mut self) -> Case {
        self.step += 1;
        let (key, other, value) = (self.key(), self.key(), self.value());
        let (seconds, time) = (self.seconds(), self.time());
        let when = self.random.one(&["", " NX", " XX", " GT", " LT", " XX GT", " XX LT", " NX XX"]);
        match self.random.below(30) {
            0 => format!("SET {key} {value}"),
            1 => format!("SET {key} {value} {time}"),
            2 => format!("SET {key} {value} {} {time}", self.random.one(&["NX", "XX", "GET", "NX GET", "XX GET"])),
            3 => format!("SET {key} {value} KEEPTTL"),
            4 => format!("{} {key}", self.random.one(&["GET", "GETDEL", "STRLEN", "TYPE", "INCR", "DECR"])),
            5 => format!("{} {key} {value}", self.random.one(&["APPEND", "GETSET", "SETNX"])),
            6 | 7 => format!("EXPIRE {key} {seconds}{when}"),
            8 => format!("PEXPIRE {key} {}{when}", seconds * 1000),
            9 => format!("EXPIREAT {key} {}{when}", if seconds > 0 { now() + seconds } else { seconds }),
            10 => format!("PEXPIREAT {key} {}{when}", if seconds > 0 { (now() + seconds) * 1000 } else { seconds }),
            11..=13 => format!("{} {key}", self.random.one(&["TTL", "PTTL", "EXPIRETIME", "PEXPIRETIME"])),
            14 => format!("PERSIST {key}"),
            15 => format!("GETEX {key} {}", if self.random.below(3) == 0 { "PERSIST".to_owned() } else { time }),
            16 => format!("SETEX {key} {seconds} {value}"),
            17 => format!("PSETEX {key} {} {value}", seconds * 1000),
            18 => format!("INCRBYFLOAT {key} {value}"),
            19 => format!("SETRANGE {key} {} {value}", self.random.below(8)),
            20 => format!("RENAME {key} {other}"),
            21 => format!("RENAMENX {key} {other}"),
            22 => format!("COPY {key} {other}{}", self.random.one(&["", " REPLACE", " DB 0", " DB 0 REPLACE"])),
            23 => format!("{} {key} {other}", self.random.one(&["TOUCH", "EXISTS", "DEL", "MGET", "UNLINK"])),
            24 => format!("MSETNX {key} {value} {other} {value}"),
            25 => format!("MSET {key} {value} {other} 1"),
            26 | 27 => return self.conditional(),
            _ => return self.deletion(),
        }
        .into()
    }
}

fn now() -> i64 {
    #[allow(clippy::disallowed_methods, reason = "the commands state instants")]
    let now = SystemTime::now();
    now.duration_since(UNIX_EPOCH).unwrap().as_secs() as i64
}

/// Whether two answers are equal, except that times may differ by a second.
fn are_alike(ours: &str, theirs: &str) -> bool {
    let (ours, theirs): (Vec<_>, Vec<_>) = (ours.split("\r\n").collect(), theirs.split("\r\n").collect());
    let number = |line: &str| line.strip_prefix(':')?.parse::<i64>().ok().filter(|number| *number >= 9000);
    let is_alike = |(ours, theirs): (&&str, &&str)| match (number(ours), number(theirs)) {
        (Some(a), Some(b)) => {
            // Milliseconds of a length or of an instant are the larger numbers.
            let is_ms = (1_000_000..1_000_000_000).contains(&a) || a > 1_000_000_000_000;
            (a - b).abs() <= if is_ms { 1000 } else { 1 }
        }
        _ => ours == theirs,
    };
    ours.len() == theirs.len() && ours.iter().zip(&theirs).all(is_alike)
}

async fn call(wire: &mut Wire, words: &[String]) -> String {
    wire.write(&command(&words.iter().map(String::as_bytes).collect::<Vec<_>>())).await;
    wire.reply().await
}

/// Runs a sequence, and returns its commands with their answers up to the first difference, if there is one.
async fn run(seed: u64, nodes: &mut [Wire], redis: &mut Wire) -> Result<(), String> {
    let mut sequence = Sequence { random: Random(seed), prefix: format!("{{{seed}}}"), step: 0 };
    let (mut log, mut within, mut node) = (String::new(), false, 0);
    for _ in 0..12 {
        let case = match sequence.random.below(12) {
            0 if within => "EXEC".to_owned().into(),
            0 => "MULTI".to_owned().into(),
            _ => sequence.next(),
        };
        // A transaction stays at one node.
        if !within {
            node = sequence.random.below(3) as usize;
        }
        match case.ours[0].as_str() {
            "MULTI" => within = true,
            "EXEC" => within = false,
            _ => {}
        }
        let (ours, theirs) = (call(&mut nodes[node], &case.ours).await, call(redis, &case.theirs).await);
        log += &format!("  {node}: {:?} -> {ours:?}\n", case.ours);
        if !are_alike(&ours, &theirs) {
            return Err(format!("seed {seed}:\n{log}  redis-server: {theirs:?}"));
        }
    }
    if within {
        call(&mut nodes[node], &["DISCARD".to_owned()]).await;
        call(redis, &["DISCARD".to_owned()]).await;
    }
    Ok(())
}

#[tokio::test]
async fn redis_differential() {
    let Some((_server, redis)) = redis_server().await else {
        return eprintln!("SKIPPED: redis-server isn't installed, so random commands aren't compared with it");
    };
    let cluster = cluster().await;
    let ports: Vec<_> = (0..3).map(|node| port(&cluster, node)).collect();
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..TASKS {
        let (ports, redis) = (ports.clone(), redis.clone());
        tasks.spawn(async move {
            let (mut nodes, mut redis, mut different) = (Vec::new(), Wire::to(&redis).await, Vec::new());
            for port in &ports {
                nodes.push(Wire::to(port).await);
            }
            for seed in (task..SEQUENCES).step_by(TASKS) {
                if let Err(difference) = run(seed as u64, &mut nodes, &mut redis).await {
                    different.push(difference);
                    break;
                }
            }
            different
        });
    }
    let different: Vec<_> = tasks.join_all().await.concat();
    assert!(different.is_empty(), "{}", different.join("\n"));
}

#[tokio::test]
async fn decimal_sums_are_those_of_redis() {
    let Some((_server, redis)) = redis_server().await else {
        return eprintln!("SKIPPED: redis-server isn't installed, so decimal sums aren't compared with it");
    };
    let cluster = cluster().await;
    let (mut ours, mut theirs) = (Wire::to(&port(&cluster, 1)).await, Wire::to(&redis).await);
    let mut random = Random(7);
    for turn in 0..500 {
        let (value, by) = (random.decimal(), random.decimal());
        let set = ["SET".to_owned(), format!("f{turn}"), value.clone()];
        let add = ["INCRBYFLOAT".to_owned(), format!("f{turn}"), by.clone()];
        call(&mut ours, &set).await;
        call(&mut theirs, &set).await;
        let (ours, theirs) = (call(&mut ours, &add).await, call(&mut theirs, &add).await);
        let number = |said: &str| said.split("\r\n").nth(1).and_then(|text| text.parse::<f64>().ok());
        let (Some(a), Some(b)) = (number(&ours), number(&theirs)) else {
            panic!("{value} + {by}: {ours:?}, redis-server: {theirs:?}");
        };
        assert!((a - b).abs() <= 1e-15 * a.abs().max(b.abs()).max(1.0), "{value} + {by}: {a}, redis-server: {b}");
        assert!(!ours.contains('e'), "{ours}");
    }
}
