//! Clients that receive answers slowly, or not at all.

use std::{
    future::{Future, poll_fn},
    task::Poll,
};

use tokio::{
    io::AsyncReadExt,
    net::{TcpListener, TcpStream},
};

use super::*;

/// More than a socket's buffers hold.
const MUCH: usize = 32 << 20;

/// The output to a client, and the client's socket.
async fn connected(room: &Arc<Room>, may_wait: bool) -> (Output, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (socket, _) = listener.accept().await.unwrap();
    let mut output = Output::new(socket.into_split().1, Arc::new(Room::new(MUCH)), room.clone());
    output.let_wait(may_wait);
    (output, client)
}

fn gather(output: &mut Output, len: usize) {
    output.bytes.extend_from_slice(&vec![b'x'; len]);
}

#[tokio::test(start_paused = true)]
async fn answers_to_strangers_do_not_wait() {
    let room = Arc::new(Room::new(4 * MUCH));
    let (mut output, _client) = connected(&room, true).await;
    gather(&mut output, MUCH);
    output.write_ready().await.unwrap();
    assert!(room.taken_bytes() > 0);
    drop(output);
    assert_eq!(room.taken_bytes(), 0);
    let (mut stranger, _client) = connected(&room, false).await;
    gather(&mut stranger, MUCH);
    // The write fails once the client has received nothing for too long.
    assert_eq!(stranger.write_ready().await.unwrap_err().kind(), ErrorKind::TimedOut);
    assert_eq!(room.taken_bytes(), 0);
}

#[tokio::test(start_paused = true)]
async fn only_a_client_that_takes_answers_renews_its_patience() {
    let room = Arc::new(Room::new(4 * MUCH));
    let (mut output, mut client) = connected(&room, true).await;
    gather(&mut output, MUCH);
    output.write_ready().await.unwrap();
    let later = || Instant::now() + STALLED * 2 / 3;
    // The socket's buffers may accept some more first.
    while output.patience() > STALLED / 2 {
        output.write_until(later()).await.unwrap();
    }
    tokio::time::resume();
    let mut read = vec![0; MUCH / 2];
    tokio::select! {
        read = client.read_exact(&mut read) => drop(read.unwrap()),
        () = async { while output.write_some().await.is_ok() {} } => panic!("the connection is broken"),
    }
    tokio::time::pause();
    assert_eq!(output.patience(), STALLED);
    let error = loop {
        if let Err(error) = output.write_until(later()).await {
            break error;
        }
    };
    assert_eq!((error.kind(), room.taken_bytes()), (ErrorKind::TimedOut, 0));
}

/// A client that receives everything at once must not starve other connections.
#[tokio::test]
async fn writing_takes_part_in_the_budget() {
    let (mut output, _client) = connected(&Arc::new(Room::new(MUCH)), true).await;
    let mut all = pin!(async {
        for _ in 0..1000 {
            gather(&mut output, 1);
            output.write_some().await.unwrap();
        }
    });
    let mut turns = 0;
    poll_fn(|context| {
        turns += 1;
        let polled = all.as_mut().poll(context);
        if polled.is_pending() { polled } else { Poll::Ready(()) }
    })
    .await;
    assert!(turns > 1);
}
