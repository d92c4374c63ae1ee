//! The demo serves, continues after the end of a node, and leaves nothing behind.

use artillery_processes::eventually;

use crate::running::{Demo, asked};

async fn is_ready(addr: &str) -> Result<String, String> {
    asked(addr, "GET /ready HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", "HTTP/1.1 200").await
}

#[tokio::test]
async fn a_killed_node_is_replaced_and_a_signal_ends_everything() {
    let mut demo = Demo::start().await;
    for row in &demo.rows {
        eventually(async || is_ready(&row.http).await).await;
    }
    asked(&demo.rows[0].resp, "SET greeting hello\r\n", "+OK\r\n").await.unwrap();
    asked(&demo.rows[2].resp, "GET greeting\r\n", "$5\r\nhello\r\n").await.unwrap();

    let head = demo.rows.iter().position(|row| row.role == "head").unwrap();
    let other = &demo.rows[(head + 1) % 3].resp.clone();
    let (name, id, http) = (demo.rows[head].name.clone(), demo.rows[head].id, demo.rows[head].http.clone());
    let killed = rustix::process::Pid::from_raw(id as i32).unwrap();
    rustix::process::kill_process(killed, rustix::process::Signal::KILL).unwrap();
    demo.printed(&format!("Node {name} (process {id}) was ended by signal 9.")).await;
    eventually(async || asked(other, "SET greeting again\r\n", "+OK\r\n").await).await;
    asked(other, "GET greeting\r\n", "$5\r\nagain\r\n").await.unwrap();

    let restarted = demo.printed(&format!("Node {name} is restarted as process ")).await;
    let id = restarted.rsplit(' ').next().unwrap().trim_end_matches('.').parse().unwrap();
    demo.printed(&format!("Node {name} is ready again")).await;
    eventually(async || is_ready(&http).await).await;

    let ids: Vec<_> = demo.rows.iter().map(|row| row.id).chain([id]).collect();
    assert_eq!(demo.process.stop("-INT").await, Some(0), "{:?}", demo.process.err.all());
    // At once, without a wait: the demo has waited for everything.
    assert!(!demo.dir.exists());
    Demo::is_gone(&ids, &demo.dir).await;
}

#[tokio::test]
async fn nothing_survives_a_demo_that_is_killed() {
    let mut demo = Demo::start().await;
    let ids: Vec<_> = demo.rows.iter().map(|row| row.id).collect();
    demo.process.kill().await;
    Demo::is_gone(&ids, &demo.dir).await;
}

#[tokio::test]
async fn a_demo_ends_with_its_terminal() {
    let mut demo = Demo::start().await;
    let ids: Vec<_> = demo.rows.iter().map(|row| row.id).collect();
    assert_eq!(demo.process.stop("-HUP").await, Some(0), "{:?}", demo.process.err.all());
    assert!(!demo.dir.exists());
    Demo::is_gone(&ids, &demo.dir).await;
}
