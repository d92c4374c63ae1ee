use std::time::Duration;

use artillery_proto::guards::Guards;
use tokio::time::timeout;

use super::{
    super::{Embedded, EmbeddedSettings},
    network::{Net, founding},
};
use artillery_proto::control::{Term, conformance};

use crate::control::{Bootstrap, ConfigLog};

pub(super) async fn group(founders: usize, settings: &EmbeddedSettings) -> (Net, Bootstrap, Embedded, Term) {
    let (net, founding) = (Net::new(1, Guards::ALL), founding(founders));
    for n in 0..founders {
        net.start(n, &founding, settings).await;
    }
    let (log, term) = leader(&net).await;
    (net, founding, log, term)
}

pub(super) async fn leader(net: &Net) -> (Embedded, Term) {
    let found = async {
        loop {
            let logs = net.logs();
            if let Some(found) = logs.iter().find_map(|(_, log)| Some((log.clone(), log.leads()?))) {
                return found;
            }
            let (_, first) = &logs[0];
            let seen = first.0.applied.progress().changes;
            let _ = timeout(Duration::from_millis(20), first.changed(seen)).await;
        }
    };
    timeout(Duration::from_secs(60), found).await.expect("no node leads")
}

#[tokio::test(start_paused = true)]
async fn one_node_conforms() {
    let (_net, _, log, _) = group(1, &EmbeddedSettings::default()).await;
    conformance::appendable(&log).await;
}

#[tokio::test(start_paused = true)]
async fn three_nodes_conform() {
    let (net, _, log, _) = group(3, &EmbeddedSettings::default()).await;
    conformance::appendable(&log).await;
    let last = log.configs().applied();
    for (founder, other) in net.logs() {
        let mut seen = 0;
        while other.configs().applied() < last {
            seen = other.changed(seen).await;
        }
        assert_eq!(other.entry(last), log.entry(last), "{} has the entry too", founder.name);
        assert_eq!(other.configs(), log.configs());
    }
}
