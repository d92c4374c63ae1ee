//! The output of the demo.

use std::{
    fmt::Write as _,
    io::{self, Write as _},
    time::Duration,
};

use crate::{load, place::Place, site::Site};

/// Prints a line. The terminal may have been closed, which mustn't end the program before it has cleaned up.
pub(super) fn print(line: &str) {
    let _ = writeln!(io::stdout().lock(), "{line}");
}

/// The nodes, and what can be tried with them.
pub(super) fn introduction(place: &Place, sites: &[Site; 3], restart_after: Duration) -> String {
    let mut text =
        format!("Three nodes form the cluster {}, with logs and data in {}:\n\n", place.cluster, place.dir.display());
    text.push_str("  node  place   process  page                         redis-cli\n");
    for site in sites {
        let Site { name, role, http, resp, .. } = site;
        let page = format!("http://{http}/");
        // Writing to a string can't fail, here and below.
        let _ = writeln!(text, "  {name:<5} {role:<7} {:<8} {page:<28} redis-cli -p {}", site.id(), resp.port());
    }
    let [first, second, third] = sites;
    let head = sites.iter().find(|site| site.role == "head").unwrap_or(first);
    let other = if head.name == second.name { third } else { second };
    let (writes, reads) = (load::per_second(load::WRITE_PERIOD), load::per_second(load::READ_PERIOD));
    let seeds: Vec<_> = sites.iter().map(|site| format!("--seed {}", site.listen)).collect();
    let _ = write!(
        text,
        "\nThe demo writes {writes} times a second and reads {reads} times, and checks each answer. Try this:\n\n\
         - Open the page http://{}/ and kill another node, here the head:\n      kill -9 {}\n  \
           The others remove it, and writes continue. After {} s it is restarted, and copies what it missed.\n\
         - Write at one node, and read at another:\n      redis-cli -p {} set greeting hello\n      \
           redis-cli -p {} get greeting\n\
         - Watch the chain in a terminal:\n      cargo run --release --bin ctl -- --cluster {} --no-mdns {} status --watch\n\n\
         Ctrl-C ends all processes and deletes their directories.",
        other.http,
        head.id(),
        restart_after.as_secs(),
        first.resp.port(),
        third.resp.port(),
        place.cluster,
        seeds.join(" "),
    );
    text
}
