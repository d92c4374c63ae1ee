//! `ctl recover`: continues with the best surviving history, when the configuration log has lost its quorum
//! permanently.

use std::{fmt::Write, time::Duration};

use artillery_ddata::{
    Client, ClusterId,
    admin::{KeptChain, Recovered, Survey, plan_recovery},
};
use artillery_programs::exit::{self, Failure};
use serde_json::{Value, json};

use super::output::Output;

/// How long a running node may take to report its state.
pub(super) const SURVEY_TIMEOUT: Duration = Duration::from_secs(2);
/// The minimum timeout of the recovery. The node that continues queries the others itself, twice, and waits for a lease
/// in between.
const RECOVERY_TIMEOUT: Duration = Duration::from_secs(30);

pub(super) async fn run(client: &Client, cluster: ClusterId, timeout: Duration, output: Output) -> Result<u8, Failure> {
    let survey = client.survey(timeout.min(SURVEY_TIMEOUT)).await;
    let plan = plan_recovery(cluster, &survey.standings, Duration::ZERO).map_err(Failure::failed)?;
    eprintln!("nodes that answer: {}; no answer: {}", names(&survey), list(&survey.silent));
    eprintln!("{} has the best surviving history: it continues unless one of the others answers it", plan.by.name);
    let recovered = client.recover(&plan.by, cluster, plan.history, timeout.max(RECOVERY_TIMEOUT)).await?;
    match output.json {
        true => output.object(&object(cluster, &survey, &recovered)),
        false => output.bytes(text(cluster, &survey, &recovered).trim_end().as_bytes()),
    };
    Ok(exit::DONE)
}

/// The nodes that answered but don't continue: the recovery leaves them behind in the previous history.
fn left_behind(survey: &Survey, recovered: &Recovered, cluster: ClusterId) -> Vec<String> {
    let by = recovered.plan.by.id;
    let others = survey.standings.iter().filter(|other| other.cluster == cluster && other.me.id != by);
    let mut names: Vec<_> = others.map(|other| other.me.name.clone()).collect();
    names.sort();
    names
}

pub(super) fn names(survey: &Survey) -> String {
    list(&survey.standings.iter().map(|standing| standing.me.name.clone()).collect::<Vec<_>>())
}

pub(super) fn list(names: &[String]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

fn text(cluster: ClusterId, survey: &Survey, recovered: &Recovered) -> String {
    let Recovered { plan, history } = recovered;
    let mut text = format!("cluster {cluster} continues as history {history}, with the data of {}\n", plan.by.name);
    for kept in &plan.chains {
        // Writing to a string can't fail.
        let _ = writeln!(text, "{kept}");
    }
    let living = left_behind(survey, recovered, cluster);
    if !living.is_empty() {
        let _ = writeln!(
            text,
            "Left behind, although they answered: {}. Each of them exits now, or waits for an operator if its directory may \
             hold more than was kept",
            list(&living)
        );
    }
    let _ = writeln!(
        text,
        "Left behind without an answer: {}. Restart the ended ones, or start others: they join as new members",
        list(&survey.silent)
    );
    text
}

fn object(cluster: ClusterId, survey: &Survey, recovered: &Recovered) -> Value {
    let Recovered { plan, history } = recovered;
    json!({
        "cluster": cluster.to_string(),
        "history": history.to_string(),
        "before": plan.history.to_string(),
        "node": plan.by.name,
        "silent": survey.silent,
        "left_behind": left_behind(survey, recovered, cluster),
        "chains": plan.chains.iter().map(chain).collect::<Vec<_>>(),
    })
}

fn chain(kept: &KeptChain) -> Value {
    json!({
        "chain": kept.chain.0,
        "epoch": kept.epoch.0,
        "last": kept.last.to_string(),
        "watermark": kept.watermark.0,
        "in_touch_ms": kept.in_touch.map(|ago| u64::try_from(ago.as_millis()).unwrap_or(u64::MAX)),
        "gone_on_to": kept.gone_on_to.map(|epoch| epoch.0),
        "known": kept.known.0,
        "synced": kept.synced,
        "text": kept.to_string(),
    })
}
