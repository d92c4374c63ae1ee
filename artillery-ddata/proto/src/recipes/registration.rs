//! The registration of an instance: a key with a time to live that this process keeps present.

use std::time::Duration;

use bytes::Bytes;

use super::renewal::{Renewal, RenewedKey};
use crate::api::{Expected, GroupOutcome, Requirement, ScriptGroup, ScriptStep, ScriptWrite, Ttl, Write, millis};

/// The next action of a registrant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RegisterStep {
    /// Make this write, until its outcome is certain: a late attempt must not be applied after the next write. Then
    /// report it ([`Registrant::written`], [`Registrant::refused`] or [`Registrant::forgotten`]).
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
    /// The value before the update that isn't written yet.
    former: Option<Bytes>,
    ttl: Duration,
    state: RegistrantState,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum RegistrantState {
    /// It was never written.
    New,
    /// The key has this value, the former one, or none.
    Unsure,
    Present,
    /// Another process has written the key, or this one has deleted it.
    Replaced,
}

impl Registrant {
    /// A registration that was not made yet.
    pub fn new(key: Bytes, value: Bytes, ttl: Duration) -> Self {
        Self { key, value, former: None, ttl, state: RegistrantState::New }
    }

    /// What to do now.
    pub fn next(&self) -> RegisterStep {
        let (key, ttl) = (self.key.clone(), Ttl::set(self.ttl));
        match self.state {
            // A process that was restarted takes over from its former incarnation.
            RegistrantState::New => RegisterStep::Write(Write::Put { key, value: self.value.clone(), ttl }),
            RegistrantState::Unsure => RegisterStep::Write(self.assertion(ttl)),
            RegistrantState::Present => {
                RegisterStep::Renew(RenewedKey { key, ttl: self.ttl, value: Some(self.value.clone()) })
            }
            RegistrantState::Replaced => RegisterStep::Stop,
        }
    }

    /// A script that sets the value, unless the key has the value of another process. Each group requires a state that
    /// no earlier group leaves behind.
    fn assertion(&self, ttl: Ttl) -> Write {
        let put = || ScriptStep::Put { key: self.key.clone(), value: self.value.clone(), ttl };
        let renew = ScriptStep::Expire { key: self.key.clone(), ttl: Some(millis(self.ttl)), when: None };
        let mut groups =
            vec![self.group(Expected::Value(self.value.clone()), renew), self.group(Expected::Absent, put())];
        groups.extend(self.former.clone().map(|former| self.group(Expected::Value(former), put())));
        Write::Script(ScriptWrite { require: Vec::new(), groups })
    }

    fn group(&self, expected: Expected, step: ScriptStep) -> ScriptGroup {
        ScriptGroup { require: vec![Requirement { key: self.key.clone(), expected }], steps: vec![step] }
    }

    /// The write was applied. `outcomes` are those of a script's groups; `None`: it was a put.
    pub fn written(&mut self, outcomes: Option<&[GroupOutcome]>) {
        let is_done = outcomes.is_none_or(|outcomes| outcomes.iter().any(Result::is_ok));
        self.state = if is_done { RegistrantState::Present } else { RegistrantState::Replaced };
        self.former = None;
    }

    /// The write was or wasn't applied, and never will be: its record or its results are lost.
    pub fn forgotten(&mut self) {
        if self.state == RegistrantState::Present {
            self.state = RegistrantState::Unsure;
        }
    }

    /// The write wasn't applied, and never would be: the former value remains. `false`: no former value exists.
    pub fn refused(&mut self) -> bool {
        let former = self.former.take();
        let has_former = former.is_some();
        self.value = former.unwrap_or(std::mem::take(&mut self.value));
        has_former
    }

    /// A renewal has ended.
    pub fn renewed(&mut self, outcome: Renewal) {
        match outcome {
            Renewal::Renewed | Renewal::Unknown => {}
            Renewal::Gone => self.forgotten(),
            Renewal::Replaced if self.state == RegistrantState::Present => self.state = RegistrantState::Replaced,
            Renewal::Replaced => {}
        }
    }

    /// The key was deleted on purpose.
    pub fn removed(&mut self) {
        self.state = RegistrantState::Replaced;
    }

    /// Changes the value, once no write is pending.
    pub fn update(&mut self, value: Bytes) {
        if matches!(self.state, RegistrantState::Present | RegistrantState::Unsure) && self.value != value {
            let former = std::mem::replace(&mut self.value, value);
            self.former.get_or_insert(former);
            self.state = RegistrantState::Unsure;
        }
    }

    /// Whether the key has the value.
    pub fn is_present(&self) -> bool {
        self.state == RegistrantState::Present
    }

    /// Whether another process has registered under this name since.
    pub fn is_replaced(&self) -> bool {
        self.state == RegistrantState::Replaced
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Version, api::GroupFailure};

    fn registrant() -> Registrant {
        Registrant::new("registry/{web}/1".into(), "a:1".into(), Duration::from_secs(10))
    }

    fn unmet() -> GroupOutcome {
        Err(GroupFailure::Unmet { requirement: 0, version: Version::new(1, 1) })
    }

    fn expected(step: RegisterStep) -> Vec<Expected> {
        match step {
            RegisterStep::Write(Write::Script(script)) => {
                script.groups.into_iter().map(|group| group.require[0].expected.clone()).collect()
            }
            other => panic!("{other:?}"),
        }
    }

    fn value(value: &'static str) -> Expected {
        Expected::Value(value.into())
    }

    #[test]
    fn a_registration_returns_after_it_expired_but_not_over_another_one() {
        let mut here = registrant();
        assert!(matches!(here.next(), RegisterStep::Write(Write::Put { .. })));
        here.forgotten();
        assert!(matches!(here.next(), RegisterStep::Write(Write::Put { .. })), "its predecessor's value may remain");
        here.written(None);
        assert!(matches!(here.next(), RegisterStep::Renew(key) if key.value == Some("a:1".into())));
        here.renewed(Renewal::Gone);
        assert_eq!(expected(here.next()), [value("a:1"), Expected::Absent]);
        here.written(Some(&[unmet(), Ok(Vec::new())]));
        assert!(matches!(here.next(), RegisterStep::Renew(_)));
        here.renewed(Renewal::Gone);
        here.written(Some(&[unmet(), unmet()]));
        assert!(here.is_replaced());
        here.renewed(Renewal::Gone);
        assert_eq!(here.next(), RegisterStep::Stop);
    }

    #[test]
    fn an_update_accepts_both_values_until_it_is_written() {
        let mut here = registrant();
        here.written(None);
        here.update("b:2".into());
        here.renewed(Renewal::Replaced);
        assert!(!here.is_replaced(), "a renewal of the former value shows nothing");
        assert_eq!(expected(here.next()), [value("b:2"), Expected::Absent, value("a:1")]);
        here.forgotten();
        assert_eq!(expected(here.next()), [value("b:2"), Expected::Absent, value("a:1")]);
        here.written(Some(&[unmet(), unmet(), Ok(Vec::new())]));
        assert!(matches!(here.next(), RegisterStep::Renew(key) if key.value == Some("b:2".into())));
    }

    #[test]
    fn a_refused_value_leaves_the_former_one() {
        let mut here = registrant();
        here.written(None);
        here.update("too large".into());
        assert!(here.refused());
        assert_eq!(expected(here.next()), [value("a:1"), Expected::Absent]);
        here.written(Some(&[Ok(Vec::new()), unmet()]));
        here.renewed(Renewal::Gone);
        assert!(!here.refused(), "the value was allowed before");
        assert_eq!(expected(here.next()), [value("a:1"), Expected::Absent]);
    }
}
