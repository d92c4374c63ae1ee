//! The registration of an instance: a key with a time to live that this process keeps present.

use bytes::Bytes;

use super::{
    KeyLease,
    renewal::{Renewal, RenewedKey},
};
use crate::api::{Expected, GroupOutcome, Requirement, ScriptGroup, ScriptStep, ScriptWrite, Ttl, Write, millis};

/// The next action of a registrant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RegisterStep {
    /// Make this write, and report its outcome ([`Registrant::written`]). It can be repeated.
    Write(Write),
    /// Renew the key in time, and report the outcome ([`Registrant::renewed`]).
    Renew(RenewedKey),
    /// Another process has registered under this name since.
    Stop,
}

/// The registration of one instance.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Registrant {
    key: Bytes,
    value: Bytes,
    /// The values that the key may still have, from before updates whose outcomes are unknown.
    formers: Vec<Bytes>,
    lease: KeyLease,
    state: RegistrantState,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum RegistrantState {
    /// It was never written.
    New,
    /// The key may be absent, or have either value.
    Unsure,
    Present,
    Replaced,
}

impl Registrant {
    /// A registration that was not made yet.
    pub fn new(key: Bytes, value: Bytes, lease: KeyLease) -> Self {
        Self { key, value, formers: Vec::new(), lease, state: RegistrantState::New }
    }

    /// What to do now.
    pub fn next(&self) -> RegisterStep {
        let (key, ttl) = (self.key.clone(), Ttl::Set(millis(self.lease.ttl())));
        match self.state {
            // A process that was restarted takes over from its former incarnation.
            RegistrantState::New => RegisterStep::Write(Write::Put { key, value: self.value.clone(), ttl }),
            RegistrantState::Unsure => RegisterStep::Write(self.assertion(ttl)),
            RegistrantState::Present => {
                RegisterStep::Renew(RenewedKey { key, ttl: self.lease.ttl(), value: Some(self.value.clone()) })
            }
            RegistrantState::Replaced => RegisterStep::Stop,
        }
    }

    /// A script that sets the value, unless the key has the value of another process. Each group requires a state that
    /// no earlier group leaves behind.
    fn assertion(&self, ttl: Ttl) -> Write {
        let put = || ScriptStep::Put { key: self.key.clone(), value: self.value.clone(), ttl };
        let renew = ScriptStep::Expire { key: self.key.clone(), ttl: Some(millis(self.lease.ttl())), when: None };
        let mut groups =
            vec![self.group(Expected::Value(self.value.clone()), renew), self.group(Expected::Absent, put())];
        groups.extend(self.formers.iter().map(|former| self.group(Expected::Value(former.clone()), put())));
        Write::Script(ScriptWrite { require: Vec::new(), groups })
    }

    fn group(&self, expected: Expected, step: ScriptStep) -> ScriptGroup {
        ScriptGroup { require: vec![Requirement { key: self.key.clone(), expected }], steps: vec![step] }
    }

    /// The write has ended. `outcomes` are those of a script's groups; `None`: the write was a put, and succeeded.
    pub fn written(&mut self, outcomes: Option<&[GroupOutcome]>) {
        let is_done = outcomes.is_none_or(|outcomes| outcomes.iter().any(Result::is_ok));
        self.state = if is_done { RegistrantState::Present } else { RegistrantState::Replaced };
        self.formers.clear();
    }

    /// The outcome of a write is unknown, or the key was found absent.
    pub fn doubt(&mut self) {
        if self.state != RegistrantState::Replaced {
            self.state = RegistrantState::Unsure;
        }
    }

    /// A renewal has ended.
    pub fn renewed(&mut self, outcome: Renewal) {
        match outcome {
            Renewal::Renewed | Renewal::Unknown => {}
            Renewal::Gone => self.doubt(),
            Renewal::Replaced if self.state == RegistrantState::Present => self.state = RegistrantState::Replaced,
            Renewal::Replaced => {}
        }
    }

    /// Changes the value, and returns the former one.
    pub fn update(&mut self, value: Bytes) -> Bytes {
        if self.state != RegistrantState::New {
            self.formers.push(self.value.clone());
            self.formers.retain(|former| *former != value);
            self.doubt();
        }
        std::mem::replace(&mut self.value, value)
    }

    /// Returns to the former value, since the newer one was refused, unless a later update has replaced that one.
    pub fn revert(&mut self, refused: &Bytes, former: Bytes) {
        if self.value != refused {
            return;
        }
        self.formers.retain(|other| *other != former);
        self.value = former;
    }

    /// The write that removes the registration, unless another process has replaced it.
    pub fn removal(&self) -> Write {
        let values = std::iter::once(&self.value).chain(&self.formers);
        let delete = || ScriptStep::Delete { key: self.key.clone() };
        let groups = values.map(|value| self.group(Expected::Value(value.clone()), delete())).collect();
        Write::Script(ScriptWrite { require: Vec::new(), groups })
    }

    /// Whether another process has registered under this name since.
    pub fn is_replaced(&self) -> bool {
        self.state == RegistrantState::Replaced
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{Version, api::GroupFailure, guards::Guards};

    fn registrant() -> Registrant {
        let lease = KeyLease::new(Duration::from_secs(10), 10_000, Guards::ALL);
        Registrant::new("registry/{web}/1".into(), "a:1".into(), lease)
    }

    fn unmet() -> GroupOutcome {
        Err(GroupFailure::Unmet { requirement: 0, version: Version::new(1, 1) })
    }

    fn groups(step: RegisterStep) -> usize {
        match step {
            RegisterStep::Write(Write::Script(script)) => script.groups.len(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_registration_returns_after_it_expired_but_not_over_another_one() {
        let mut here = registrant();
        assert!(matches!(here.next(), RegisterStep::Write(Write::Put { .. })));
        here.written(None);
        assert!(matches!(here.next(), RegisterStep::Renew(key) if key.value == Some("a:1".into())));
        here.renewed(Renewal::Gone);
        assert_eq!(groups(here.next()), 2);
        here.written(Some(&[unmet(), Ok(Vec::new())]));
        assert!(matches!(here.next(), RegisterStep::Renew(_)));
        here.renewed(Renewal::Gone);
        here.written(Some(&[unmet(), unmet()]));
        assert!(here.is_replaced());
        here.renewed(Renewal::Gone);
        assert_eq!(here.next(), RegisterStep::Stop);
    }

    #[test]
    fn an_update_of_unknown_outcome_accepts_both_values() {
        let mut here = registrant();
        here.written(None);
        assert_eq!(here.update("b:2".into()), "a:1");
        assert_eq!(groups(here.next()), 3);
        here.doubt();
        assert_eq!(groups(here.next()), 3);
        assert_eq!(here.update("c:3".into()), "b:2");
        let RegisterStep::Write(Write::Script(script)) = here.next() else { panic!() };
        let expected: Vec<_> = script.groups.iter().map(|group| group.require[0].expected.clone()).collect();
        let value = |value: &'static str| Expected::Value(value.into());
        assert_eq!(expected, [value("c:3"), Expected::Absent, value("a:1"), value("b:2")]);
        let former = here.update("too large".into());
        here.revert(&"too large".into(), former);
        here.revert(&"too large".into(), "another".into());
        assert_eq!(groups(here.next()), 4, "the refused value was never written");
        here.renewed(Renewal::Replaced);
        assert!(!here.is_replaced(), "a renewal of a former value shows nothing");
        here.written(Some(&[unmet(), unmet(), Ok(Vec::new())]));
        assert!(matches!(here.next(), RegisterStep::Renew(key) if key.value == Some("c:3".into())));
    }
}
