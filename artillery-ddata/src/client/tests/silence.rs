use super::*;

/// The old head is silent, and its connection stays open.
#[tokio::test]
async fn a_write_to_a_silent_head_moves_to_the_next_one() {
    let (client, silent, next, mut streams) = client_of_silence().await;
    let put = tokio::spawn(client.kv().put("k", "v").timeout(Duration::from_secs(20)).into_future());
    let (mut reader, _writer) = open_session(streams.recv().await.unwrap()).await;
    while !matches!(next_write(&mut reader).await, Some(Wanted::Write(_))) {}
    next.form(&routing(config(&[next.me()], 2), &[&silent, &next]));
    // The next head doesn't know the session, which only the silent one has opened.
    let outcome = put.await.unwrap();
    let is_heard = matches!(&outcome, Err(Error::OutcomeUnknown { reason: Unknown::SessionExpired, .. }));
    assert!(is_heard, "{outcome:?}");
}

#[tokio::test]
async fn an_unanswered_write_is_unknown_and_a_read_moves_on() {
    let cluster = unique("client");
    let (silent, mut streams) = silent(&cluster);
    let seed = FakeNode::start(&cluster, "seed");
    let two = config(&[silent.me(), seed.me()], 1);
    seed.form(&routing(two.clone(), &[&silent, &seed]));
    let client = connect(&cluster, &seed).await;
    let kv = client.kv();

    // Without a session the write itself was never sent.
    let slow = kv.put("k", "v").timeout(Duration::from_millis(200)).await;
    assert_eq!(slow, Err(Error::not_applied(NotApplied::TimedOut)));

    let write = tokio::spawn(kv.put("k", "v").timeout(Duration::from_millis(600)).into_future());
    let stream = streams.recv().await.unwrap();
    let (mut reader, mut writer) = (stream.reader, stream.writer.unwrap());
    // Each of the two writes may have requested a session.
    let first = loop {
        match next_write(&mut reader).await {
            Some(Wanted::Session { number }) => open(number, &mut writer).await,
            Some(Wanted::Write(key)) => break key,
            None => panic!("a read on a stream of writes"),
        }
    };
    assert_eq!((first.session, first.number), (SESSION, 1));
    stream.connection.close(CloseCode::DONE, "gone");
    // The write is retried under the same id, and gets no answer either.
    let again = loop {
        if let Some(again) = next_write(&mut streams.recv().await.unwrap().reader).await {
            break again;
        }
    };
    assert_eq!(again, Wanted::Write(first));
    let lost = write.await.unwrap();
    let Err(Error::OutcomeUnknown { request_id, .. }) = lost else { panic!("{lost:?}") };
    assert_eq!((request_id.session, request_id.number), (SESSION, 1));

    // Whichever member the client prefers, the live one answers.
    let seen = kv.get("k").await.unwrap();
    assert_eq!((seen.served.node, seen.served.place), (seed.me().node, Place::Tail));
}
