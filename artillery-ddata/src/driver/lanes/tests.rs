//! Lanes of many chains to one peer.

use std::{collections::BTreeSet, time::Duration};

use artillery_core::{
    ClusterId,
    config::TransportConfig,
    identity::Identity,
    transport::{IncomingStream, LocalInfo, PeerInfo, PeerKind, Service},
};
use tokio::time::timeout;

use super::*;
use crate::{
    ChainId, Epoch,
    driver::fake::{SECRET, member, unique},
    message::{ChainMessage, Control},
};

/// They need about four times as many lanes as there may be open streams.
const CHAINS: u32 = 2_000;

/// Reports the chains of the received frames.
struct Frames(mpsc::UnboundedSender<ChainId>);

impl Service for Frames {
    fn stream(&self, _peer: &Arc<PeerInfo>, mut stream: IncomingStream) {
        let heard = self.0.clone();
        tokio::spawn(async move {
            while let Ok(Some(frame)) = stream.reader.next().await {
                if let Ok(frame) = chain::decode(&frame) {
                    let _ = heard.send(frame.chain);
                }
            }
        });
    }
}

fn endpoint(cluster: &str, name: &str, config: &TransportConfig) -> (Endpoint, mpsc::UnboundedReceiver<ChainId>) {
    let (heard, frames) = mpsc::unbounded_channel();
    let info = LocalInfo::new(cluster, member(name).incarnation, PeerKind::Node).with_cluster_id(Some(ClusterId(1)));
    let identity = Identity::from_secret(SECRET, name).unwrap();
    (Endpoint::bind(config.clone(), identity, info, Arc::new(Frames(heard))).unwrap(), frames)
}

fn frame(chain: u32) -> ChainFrame {
    let message = ChainMessage::Control(Control::default());
    ChainFrame { chain: ChainId(chain), epoch: Epoch(1), index: 1, message }
}

#[tokio::test]
async fn the_history_of_each_of_many_chains_gets_through() {
    let cluster = unique("lanes");
    let config = TransportConfig::loopback();
    let (here, _) = endpoint(&cluster, "here", &config);
    let (there, mut frames) = endpoint(&cluster, "there", &config);
    let hub = Hub::new(here);
    let lanes = hub.lanes(member("there").node, &[there.local_addr()]);
    let history: Vec<_> = (0..CHAINS).map(|chain| (chain, lanes.add_updates(), lanes.add_snapshots())).collect();
    let mut state = lanes.state.clone();
    timeout(Duration::from_secs(30), state.wait_for(|state| state.up.is_some())).await.unwrap().unwrap();
    for (chain, updates, snapshots) in &history {
        snapshots.send(frame(*chain)).await.unwrap();
        updates.send(frame(CHAINS + *chain)).await.unwrap();
    }
    let mut heard = BTreeSet::new();
    while heard.len() < 2 * CHAINS as usize {
        let Ok(Some(chain)) = timeout(Duration::from_secs(10), frames.recv()).await else { break };
        heard.insert(chain.0);
    }
    let missing: Vec<_> = (0..2 * CHAINS).filter(|chain| !heard.contains(chain)).collect();
    assert!(missing.is_empty(), "{} of {} lanes are stuck: {missing:?}", missing.len(), 2 * CHAINS);
}
