//! The task that finds a cluster or founds one, and then tells latecomers of it.

use std::sync::Arc;

use artillery_core::{
    MemberId, clock,
    cluster::{Events, MemberEvent},
};
use tokio::sync::mpsc;

use super::lanes::Hub;
use crate::control::{
    Founding,
    formation::{Formation, FormationMessage, Input, Output},
};

/// What the task tells the node, once: which cluster it belongs to from now on.
pub(crate) type OnFounding = Box<dyn FnOnce(Founding) + Send>;

pub(crate) struct Forming {
    pub(crate) formation: Formation,
    pub(crate) messages: mpsc::Receiver<(MemberId, FormationMessage)>,
    pub(crate) events: Events,
    pub(crate) hub: Arc<Hub>,
    pub(crate) on_founding: Option<OnFounding>,
}

impl Forming {
    /// Runs until the node stops.
    pub(crate) async fn run(mut self) {
        for member in self.events.members() {
            self.seen(member);
        }
        loop {
            self.flush();
            let pause = self.formation.next_tick().map(|at| at - clock::now());
            tokio::select! {
                message = self.messages.recv() => {
                    let Some((from, message)) = message else { return };
                    self.formation.handle(clock::now(), Input::Receive { from, message });
                }
                event = self.events.next() => match event {
                    Some(event) => self.member(event),
                    None => return,
                },
                () = tokio::time::sleep(pause.unwrap_or_default()), if pause.is_some() => {
                    self.formation.handle(clock::now(), Input::Tick);
                }
            }
        }
    }
}
