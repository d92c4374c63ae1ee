//! Membership without any data: run `cargo run --example membership` in several terminals. With the same secret in
//! `ARTILLERY_SECRET`, the nodes may be on several hosts of one network.

use artillery_core::{Cluster, MemberEvent};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let cluster = Cluster::builder().cluster("membership");
    let cluster = match std::env::var("ARTILLERY_SECRET") {
        Ok(secret) => cluster.secret(secret),
        // The secret is public, so the node listens on loopback only.
        Err(_) => cluster.secret("not a secret, an example").listen(([127, 0, 0, 1], 0).into()),
    };
    let cluster = cluster.payload("role=example").start().await?;
    println!("{} is at {}; press Ctrl-C to stop", cluster.name(), cluster.addr());
    let mut events = cluster.events();
    // Created once, outside the loop: a future per iteration would miss a Ctrl-C between two iterations.
    let mut interrupted = std::pin::pin!(tokio::signal::ctrl_c());
    loop {
        tokio::select! {
            event = events.next() => match event {
                Some(MemberEvent::Up(member)) => println!("{} at {} is up: {:?}", member.name, member.addr, member.payload),
                Some(MemberEvent::Suspect(member) | MemberEvent::Down(member) | MemberEvent::Left(member)) => {
                    println!("{} is {:?}", member.name, member.state);
                }
                Some(_) => {}
                None => break,
            },
            _ = &mut interrupted => break,
        }
    }
    cluster.leave().await;
    Ok(())
}
