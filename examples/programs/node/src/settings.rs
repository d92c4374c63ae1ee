//! Converts the command line to the settings of the library.

use std::{net::SocketAddr, time::Duration};

use artillery_core::{
    config::TransportConfig,
    discovery::{DnsDiscovery, FileDiscovery, Seed},
};
use artillery_ddata::{
    Node, NodeBuilder,
    config::{Config, DataConfig, Threads},
};
use artillery_programs::{exit::Failure, secret::Admission};

use super::args::NodeArgs;

/// Bytes of a frame for the key and headers, in addition to the largest value.
const FRAME_MARGIN: usize = 512 << 10;

pub(super) fn builder(args: &NodeArgs) -> Result<NodeBuilder, Failure> {
    let admission = args.identity.admission()?;
    let listen = args.listen.unwrap_or_else(|| default_listen(&admission));
    if admission.is_development() {
        allow_development(listen, args.advertise.as_ref())?;
    }
    let config = config(args, listen);
    config.validate().map_err(|problems| {
        let texts: Vec<_> = problems.iter().map(ToString::to_string).collect();
        Failure::usage(texts.join("; "))
    })?;
    let mut builder = Node::from_config(config);
    if let Some(file) = &args.seed_file {
        builder = builder.discovery(FileDiscovery::new(file));
    }
    if let Some(name) = &args.seed_dns {
        builder = builder.discovery(DnsDiscovery::new(name.clone()));
    }
    if let Some(secret) = args.identity.also_trusted()? {
        builder = builder.also_trust_secret(secret);
    }
    if !args.found_after.is_empty() {
        builder = builder.create_after(args.found_after.clone());
    }
    if !args.join_after.is_empty() {
        builder = builder.join_after(args.join_after.clone());
    }
    Ok(match admission {
        Admission::Secret(secret) | Admission::Development(secret) => builder.secret(secret),
        Admission::Certificates(identity) => builder.identity(identity),
    })
}

/// Refuses addresses beyond loopback, since the development secret is public.
fn allow_development(listen: SocketAddr, advertise: Option<&Seed>) -> Result<(), Failure> {
    let listen = Seed::from(listen);
    for (flag, addr) in [("--listen", &listen), ("--advertise", advertise.unwrap_or(&listen))] {
        if !addr.addr().is_some_and(|addr| addr.ip().is_loopback()) {
            let way = "a secret is required beyond loopback (--secret-file or ARTILLERY_SECRET)";
            return Err(Failure::usage(format!("{flag} {addr}: {way}")));
        }
    }
    tracing::warn!(
        "no secret given: using the development secret and listening on loopback only, so nodes on other hosts can't be \
         found; set --secret-file or ARTILLERY_SECRET"
    );
    Ok(())
}

/// Nodes listen beyond loopback only with an operator's secret or certificates.
fn default_listen(admission: &Admission) -> SocketAddr {
    if admission.is_development() { TransportConfig::loopback().listen } else { TransportConfig::default().listen }
}

fn config(args: &NodeArgs, listen: SocketAddr) -> Config {
    let mut config = Config::default();
    config.cluster = args.cluster.clone();
    config.name = args.name.clone();
    config.expect = args.expect;
    config.existing = args.existing;
    config.chains.replicas = args.replicas;
    config.chains.min_members = args.min_members;
    config.chains.mode = args.mode.into();
    config.discovery.mdns = !args.no_mdns;
    config.discovery.interface = args.interface.clone();
    config.discovery.seeds = args.seeds.iter().map(ToString::to_string).collect();
    config.transport = args.link.transport(listen);
    config.transport.advertise = args.advertise.as_ref().and_then(Seed::addr);
    config.advertise_name = args.advertise.as_ref().filter(|name| name.addr().is_none()).map(ToString::to_string);
    config.lease.duration = Duration::from_millis(args.lease_ms);
    config.lease.drift_ppm = args.drift_ppm;
    config.suspect = args.suspect_ms.map_or(config.lease.duration / 2, Duration::from_millis);
    config.slow = Duration::from_millis(args.slow_ms);
    config.data = args.data.as_ref().map(|dir| {
        let mut data = DataConfig::new(dir);
        data.sync = args.sync.into();
        data.max_disk_bytes = args.max_disk_bytes.map(|bytes| bytes.0 as u64);
        data.reopen = Duration::from_millis(args.reopen_ms);
        data
    });
    config.limits.window_bytes = args.window_bytes.0;
    config.limits.backlog_bytes = args.backlog_bytes.0;
    config.limits.queue_bytes = args.queue_bytes.0;
    config.limits.max_value_bytes = args.max_value_bytes.0;
    config.limits.max_memory_bytes = args.max_memory_bytes.map(|bytes| bytes.0 as u64);
    config.threads = match usize::from(args.threads) {
        1 => Threads::Shared,
        more => Threads::Own { chains: more.saturating_sub(2) },
    };
    let largest = args.max_value_bytes.0.saturating_add(FRAME_MARGIN);
    config.transport.max_frame_bytes = config.transport.max_frame_bytes.max(largest);
    config
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use artillery_core::config::Congestion;

    fn parse(flags: &[&str]) -> NodeArgs {
        NodeArgs::parse_from(["node", "--secret", "0123456789abcdef"].iter().chain(flags))
    }

    fn settled(args: &NodeArgs) -> Config {
        super::config(args, TransportConfig::default().listen)
    }

    #[test]
    fn flags_reach_the_settings() {
        let args =
            parse(&["--expect", "5", "--mode", "cr", "--no-mdns", "--seed", "db-1:7400", "--window-bytes", "1MiB"]);
        let config = settled(&args);
        assert_eq!((config.expect, config.limits.window_bytes, config.discovery.mdns), (5, 1 << 20, false));
        assert_eq!(config.chains.mode, artillery_ddata::Mode::Classic);
        assert_eq!(config.discovery.seeds, ["db-1:7400"]);
        assert_eq!([&[][..], &["--existing"]].map(|flags| settled(&parse(flags)).existing), [false, true]);
        let config = settled(&parse(&["--lease-ms", "3000", "--drift-ppm", "7"]));
        assert_eq!((config.lease.duration, config.lease.drift_ppm), (Duration::from_secs(3), 7));
        assert_eq!(config.suspect, Duration::from_millis(1500));
        assert_eq!(settled(&parse(&["--suspect-ms", "800"])).suspect, Duration::from_millis(800));
        let far = settled(&parse(&["--congestion", "bbr", "--stream-window-bytes", "32MiB"])).transport;
        assert_eq!((far.congestion, far.stream_window_bytes), (Congestion::Bbr, 32 << 20));
        assert_eq!(far.connection_window_bytes, 256 << 20);
        let data = ["--data", "d", "--sync", "never", "--reopen-ms", "70", "--max-disk-bytes", "1GiB"];
        let data = settled(&parse(&data)).data.unwrap();
        assert_eq!(data.max_disk_bytes, Some(1 << 30));
        let bounded = settled(&parse(&["--max-memory-bytes", "2GiB"]));
        assert_eq!(bounded.limits.max_memory_bytes, Some(2 << 30));
        assert_eq!((data.dir.to_str(), data.sync), (Some("d"), artillery_ddata::config::SyncMode::Never));
        assert_eq!(data.reopen, Duration::from_millis(70));
        let refused = builder(&parse(&["--data", "d", "--reopen-ms", "3600001"])).map(|_| ()).unwrap_err();
        assert!(refused.is_usage() && refused.to_string().contains("data.reopen"), "{refused}");
        assert_eq!(settled(&parse(&[])).threads, Threads::Shared);
        assert_eq!(settled(&parse(&["--threads", "5"])).threads, Threads::Own { chains: 3 });
        let refused = builder(&parse(&["--lease-ms", "1"])).map(|_| ()).unwrap_err();
        assert!(refused.is_usage() && refused.to_string().contains("lease.duration"), "{refused}");
    }

    #[test]
    fn the_defaults_are_those_of_the_library() {
        let (ours, theirs) = (settled(&parse(&[])), Config::default());
        assert_eq!(ours.cluster, theirs.cluster);
        assert_eq!((ours.expect, ours.chains), (theirs.expect, theirs.chains));
        assert_eq!(ours.limits.window_bytes, theirs.limits.window_bytes);
        assert_eq!(ours.limits.backlog_bytes, theirs.limits.backlog_bytes);
        assert_eq!(ours.limits.queue_bytes, theirs.limits.queue_bytes);
        assert_eq!(ours.limits.max_value_bytes, theirs.limits.max_value_bytes);
        assert_eq!(ours.limits.max_memory_bytes, theirs.limits.max_memory_bytes);
        assert_eq!(ours.transport, theirs.transport);
        assert_eq!((ours.lease.duration, ours.suspect), (theirs.lease.duration, theirs.suspect));
        assert_eq!(ours.lease.drift_ppm, theirs.lease.drift_ppm);
        assert_eq!(settled(&parse(&["--data", "d"])).data, Some(DataConfig::new("d")));
    }

    #[test]
    fn a_node_with_a_secret_listens_on_all_addresses() {
        let all = default_listen(&Admission::Secret(b"0123456789abcdef".to_vec()));
        assert!(all.is_ipv6() && all.ip().is_unspecified(), "{all}");
    }

    #[test]
    fn larger_values_get_larger_frames() {
        assert!(settled(&parse(&["--max-value-bytes", "128MiB"])).validate().is_ok());
    }

    #[test]
    fn the_development_secret_is_refused_beyond_loopback() {
        for beyond in ["0.0.0.0:0", "[::]:0", "10.0.0.5:7400"] {
            let refused = allow_development(beyond.parse().unwrap(), None).unwrap_err();
            assert!(refused.is_usage() && refused.to_string().contains("--listen"), "{refused}");
        }
        let loopback = default_listen(&Admission::Development(Vec::new()));
        assert!(loopback.ip().is_loopback() && allow_development(loopback, None).is_ok());
        assert!(allow_development(loopback, Some(&"10.0.0.5:7400".parse().unwrap())).is_err());
        assert!(allow_development(loopback, Some(&"db-1:7400".parse().unwrap())).is_err());
    }
}
