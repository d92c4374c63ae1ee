//! Sessions: a read shows at least what its session had seen.

use super::{
    known::Known,
    series::{Broken, Rule},
};
use crate::history::{History, Look};

pub(super) fn check(history: &History, known: &Known) -> Result<(), Broken> {
    history.looks.iter().try_for_each(|look| check_look(look, known))
}

fn check_look(look: &Look, known: &Known) -> Result<(), Broken> {
    let Some((newest, present)) = known.at(look.key, look.floor) else { return Ok(()) };
    let fine = match look.found {
        Some(found) => found >= newest,
        None => {
            let mut absences = known.absences(look.key, look.returned);
            let absent_since = absences.any(|absence| absence >= newest.sequence);
            !present || absent_since || known.may_be_deleted(look.key, look.returned)
        }
    };
    if fine {
        return Ok(());
    }
    Err(Broken::new(Rule::WentBack, format!("the session's floor includes version {newest}, but {look:?}")))
}
