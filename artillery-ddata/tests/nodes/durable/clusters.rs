//! A data directory belongs to one cluster, and stores the cluster's name.

use std::collections::BTreeMap;

use super::*;

impl Durable {
    /// Checks that node 0 can't start under the name `cluster`, and writes nothing. Returns the name in its directory.
    async fn refused(&self, cluster: &str) -> String {
        let before = contents(&self.of(0));
        let started = self.builder(0, 1).cluster(cluster).start().await;
        let Err(StartError::Data(error @ DataDirError::OtherCluster { .. })) = started else { panic!("{started:?}") };
        assert_eq!(contents(&self.of(0)), before, "nothing was written");
        let text = error.to_string();
        let DataDirError::OtherCluster { dir, kept, given } = error else { unreachable!() };
        assert_eq!((dir, &*given), (self.of(0), cluster));
        assert!(text.contains(&kept) && text.contains(cluster) && text.contains("--cluster"), "{text}");
        kept
    }

    fn cluster_file(&self) -> std::path::PathBuf {
        self.of(0).join("CLUSTER")
    }
}

fn contents(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let files = std::fs::read_dir(dir).unwrap().map(Result::unwrap);
    files.map(|file| (file.file_name().into_string().unwrap(), std::fs::read(file.path()).unwrap())).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_directory_keeps_the_name_of_its_cluster() {
    let mut durable = Durable::new();
    durable.start([0], 1).await;
    durable.nodes[0].kv().put("key", "value").await.unwrap();
    durable.stop().await;
    let right = format!("{}\n", durable.name);
    assert_eq!(std::fs::read_to_string(durable.cluster_file()).unwrap(), right);
    assert_eq!(durable.refused("another").await, durable.name);
    // If the `CLUSTER` file is missing or has another name, the control file still has the right one.
    std::fs::remove_file(durable.cluster_file()).unwrap();
    assert_eq!(durable.refused("another").await, durable.name);
    for wrong in ["another\n", "", "\0\0\0"] {
        std::fs::write(durable.cluster_file(), wrong).unwrap();
        assert_eq!(durable.refused("another").await, durable.name);
        durable.start([0], 1).await;
        let read = durable.nodes[0].kv().get("key").await.unwrap();
        assert_eq!(read.value().map(|value| &value[..]), Some(&b"value"[..]));
        durable.stop().await;
        assert_eq!(std::fs::read_to_string(durable.cluster_file()).unwrap(), right);
    }
}

/// The node has met no other node yet. An older directory, without the file, adopts the name given at the next start.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_directory_that_is_in_no_cluster_yet_keeps_the_name_of_its_first_start() {
    let mut durable = Durable::new();
    durable.start_one(0, 2).await;
    durable.stop().await;
    assert_eq!(durable.refused("another").await, durable.name);
    std::fs::remove_file(durable.cluster_file()).unwrap();
    let adopted = started(|| durable.builder(0, 2).cluster("adopted")).await.unwrap();
    durable.nodes.push(adopted);
    durable.stop().await;
    assert_eq!(durable.refused("another").await, "adopted");
    assert_eq!(durable.refused(&durable.name).await, "adopted");
}

/// `--replace-damaged` must not move aside a directory that was given to a node of another cluster.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_cluster_of_a_damaged_directory_is_known() {
    let mut durable = Durable::new();
    durable.start([0], 1).await;
    durable.stop().await;
    let is_damaged = async |durable: &Durable| {
        let right = started(|| durable.builder(0, 1)).await;
        assert!(matches!(right, Err(StartError::Data(DataDirError::Damaged { .. }))), "{right:?}");
    };
    let journal = durable.of(0).join("journal-0000000001");
    let mut bytes = std::fs::read(&journal).unwrap();
    bytes[4096 + 30] ^= 1;
    std::fs::write(&journal, bytes).unwrap();
    assert_eq!(durable.refused("another").await, durable.name);
    is_damaged(&durable).await;
    for control in ["control-1", "control-2"] {
        std::fs::write(durable.of(0).join(control), [0; 100]).unwrap();
    }
    assert_eq!(durable.refused("another").await, durable.name);
    is_damaged(&durable).await;
}
