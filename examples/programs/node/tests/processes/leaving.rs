//! Most members are stopped at once by SIGTERM: the rest must continue, and admit others.

use artillery_processes::Members;
use tokio::join;

#[tokio::test(flavor = "multi_thread")]
async fn most_members_leave_at_once_and_others_join() {
    let mut members = Members::start(&[]).await;
    let kv = members.kv().await;
    kv.put("before", "1").await.unwrap();
    let order = members.serving(3).await;
    // Usually the leader of the configuration log is the head, and so stops too.
    let (mut first, mut second) = (members.take(&order[0]), members.take(&order[1]));
    assert_eq!(join!(first.stop("-TERM"), second.stop("-TERM")), (Some(0), Some(0)));
    assert_eq!(members.serving(1).await, order[2..]);
    kv.put("alone", "2").await.unwrap();
    for serving in 2..=3 {
        let node = members.begin(&[]);
        members.add(node).await;
        members.serving(serving).await;
    }
    let mut last = members.take(&order[2]);
    assert_eq!(last.stop("-TERM").await, Some(0));
    members.serving(2).await;
    let kv = members.kv().await;
    for (key, value) in [("before", "1"), ("alone", "2")] {
        assert_eq!(kv.get(key).await.unwrap().into_value().unwrap(), value, "{key}");
    }
}
