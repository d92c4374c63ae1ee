//! Has the chains of this node resign, and serve again, when it leaves.

use artillery_core::Timestamp;
use tokio::sync::oneshot;

use super::{
    Control, Done, Lease,
    acting::{Told, all_done},
};
use crate::driver::chain::Command;

impl Control {
    /// Asks to leave. A node that is to stop goes on asking until it ends, also when a drain of it is given up.
    pub(super) fn leave(&mut self, now: Timestamp, until: Option<Timestamp>, done: oneshot::Sender<()>) {
        let is_to_stop = self.parts.holder.leaves().is_asked() && self.stays_at.is_none();
        self.stays_at = until.filter(|_| !is_to_stop);
        self.leaving.retain(|done| !done.is_closed());
        self.leaving.push(done);
        self.parts.holder.leave(now);
        self.see_whether_left();
    }

    /// No leader has agreed in time, or the change didn't come about: this node stays.
    pub(super) fn stay(&mut self, now: Timestamp) {
        let had_resigned = self.parts.holder.leaves().has_resigned();
        if !self.parts.holder.configs().names(self.parts.me) {
            return;
        }
        tracing::warn!("this node can't leave its chains now: it stays");
        self.parts.holder.stay(now);
        self.released = false;
        if had_resigned {
            self.serve_again();
        }
    }

    /// Whether no configuration names this node any more and the log can do without it, for the callers that wait for that.
    pub(super) fn see_whether_left(&mut self) {
        let may_end = self.released || !self.keeps_log();
        if may_end && !self.parts.holder.configs().names(self.parts.me) {
            // The caller may have gone.
            for done in self.leaving.drain(..) {
                let _ = done.send(());
            }
        }
    }

    /// Whether this node keeps the log, as far as is known here. A leader that was voted out does until that is committed:
    /// then it leads no longer.
    fn keeps_log(&self) -> bool {
        let voters = self.parts.log.voters();
        self.parts.log.leads().is_some() || voters.is_empty() || voters.contains(&self.parts.me)
    }

    /// Gives the lease up, so that this node can be removed without waiting for it; its chains first.
    pub(super) fn resign(&mut self) {
        self.resigning = true;
        self.tell_all(Command::Resign, Done::Resigned);
    }

    pub(super) fn resigned(&mut self, now: Timestamp) {
        self.resigning = false;
        self.parts.holder.resign(now);
        self.see_whether_left();
    }

    /// Has the chains act by leases again: by those that come from now on, never by one of before they resigned.
    pub(super) fn serve_again(&mut self) {
        self.resuming = true;
        self.parts.leases.send_replace(Lease::default());
        let leases = self.parts.leases.clone();
        self.tell_all(|done| Command::ServeAgain { leases: leases.subscribe(), done }, Done::ServesAgain);
    }

    fn tell_all(&mut self, command: impl Fn(oneshot::Sender<()>) -> Command, then: Done) {
        let told = self.parts.chains.all().into_iter().map(|chain| {
            let (done, word) = oneshot::channel();
            (chain, command(done), word)
        });
        let told: Vec<Told> = told.collect();
        self.tasks.spawn(async move { if all_done(told).await { then } else { Done::Stopped } });
    }
}
