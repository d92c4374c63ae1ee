//! Keys that expire: web sessions that end some time after their last request, and a limit of requests per time. Three
//! nodes in this process form a chain of three.

use std::time::Duration;

use artillery_ddata::{Error, Kv, Node, Session};
use tokio::time::{Instant, sleep};

const SECRET: &str = "not a secret, an example";
/// A web session ends this long after its last request.
const IDLE: Duration = Duration::from_secs(4);
/// A client may make this many requests per window.
const LIMIT: i64 = 3;
const WINDOW: Duration = Duration::from_secs(3);

/// The user of a web session, or `None` if the session has ended. Each request lets the session last longer.
async fn user_of(kv: &Kv, cookie: &str) -> Result<Option<String>, Error> {
    let key = format!("session/{cookie}");
    let Some(user) = kv.get(&key).await?.into_value() else { return Ok(None) };
    // If the session ended after the read, it stays ended: `expire` creates no key.
    let renewed = kv.expire(&key, IDLE).await?;
    Ok(renewed.result.then(|| String::from_utf8_lossy(&user).into_owned()))
}

/// Whether a client may make one more request. A window begins with its first request, and later requests don't extend
/// it.
async fn is_allowed(kv: &Kv, client: &str) -> Result<bool, Error> {
    let count = kv.increment(format!("requests/{client}"), 1).ttl_if_new(WINDOW).await?;
    Ok(count.result <= LIMIT)
}

/// A key is never removed before its time, except for the drift of clocks, 1 % by default.
fn assert_not_early(begin: Instant, ttl: Duration) {
    let passed = begin.elapsed();
    println!("  removed after {passed:.1?}, its time to live was {ttl:?}");
    assert!(passed >= ttl.mul_f64(0.99));
}

async fn web_sessions(login: &Kv, server: &Kv) -> Result<(), Box<dyn std::error::Error>> {
    println!("a web session ends {IDLE:?} after its last request");
    let seen = Session::new();
    login.put("session/c00k1e", "ann").ttl(IDLE).session(&seen).await?;
    // Watch from here on. A change of the expiry alone isn't reported, so the next change is the end.
    let mut watch = server.watch("session/").from(seen.frontier()).await?;
    let begin = Instant::now();
    let mut last = begin;
    for _ in 0..5 {
        sleep(Duration::from_secs(1)).await;
        last = Instant::now();
        let user = user_of(server, "c00k1e").await?;
        println!("  request after {:.1?}: {user:?}", begin.elapsed());
        assert_eq!(user.as_deref(), Some("ann"));
    }
    let left = server.get("session/c00k1e").await?.expires_in();
    println!("  the last request was made; the session stays for {left:?}");
    assert!(begin.elapsed() > IDLE && left.is_some());

    let end = watch.next().await.ok_or("the watch ended")??;
    assert!(end.key == "session/c00k1e" && end.value.is_none() && end.expired);
    assert_not_early(last, IDLE);
    assert_eq!(user_of(server, "c00k1e").await?, None);
    Ok(())
}

async fn rate_limit(servers: [&Kv; 3]) -> Result<(), Box<dyn std::error::Error>> {
    println!("a client may make {LIMIT} requests within {WINDOW:?}, at all servers together");
    let begin = Instant::now();
    let mut allowed = Vec::new();
    for server in servers.into_iter().cycle().take(5) {
        allowed.push(is_allowed(server, "ann").await?);
    }
    println!("  allowed: {allowed:?}");
    assert_eq!(allowed, [true, true, true, false, false]);
    while !is_allowed(servers[0], "ann").await? {
        sleep(Duration::from_millis(200)).await;
    }
    assert_not_early(begin, WINDOW);
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let node = || {
        let loopback = "127.0.0.1:0".parse().map(|addr| Node::builder().listen(addr));
        loopback.map(|node| node.cluster("expiring-keys").secret(SECRET).expect(3).mdns(false))
    };
    let first = node()?.start().await?;
    let seed = first.addr().to_string();
    let (second, third) = (node()?.seed(&seed).start().await?, node()?.seed(&seed).start().await?);
    let nodes = [first, second, third];
    for node in &nodes {
        node.ready().await?;
    }

    let [one, two, three] = nodes.each_ref().map(Node::kv);
    web_sessions(&one, &two).await?;
    rate_limit([&one, &two, &three]).await?;
    for node in &nodes {
        node.shutdown().await;
    }
    Ok(())
}
