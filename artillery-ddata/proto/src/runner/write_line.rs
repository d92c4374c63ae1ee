//! The two lines in which writes wait for their chain: a small one isn't held up by large ones that came before it.

use bytes::Bytes;

use crate::{api::Write, replica::ReplicaSettings};

/// In which line a write waits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum WriteLine {
    /// In that of most writes.
    Small,
    /// In that of those whose update comes to a sixteenth of the window or more.
    Large,
}

impl WriteLine {
    /// The line of a write, where `length` tells how long the value of a key is now. It decides about nothing but the order in which
    /// writes are taken in: the value may be another one by then.
    pub fn of(write: &Write, settings: &ReplicaSettings, length: impl Fn(&Bytes) -> usize) -> Self {
        let large = settings.large_write();
        let mut bytes = write.values().map(Bytes::len).fold(0, usize::saturating_add);
        for key in write.appended() {
            if bytes >= large {
                break;
            }
            bytes = bytes.saturating_add(length(key));
        }
        if bytes >= large { Self::Large } else { Self::Small }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{ScriptGroup, ScriptStep, ScriptWrite, Step};

    #[test]
    fn a_write_counts_for_what_it_comes_to() {
        let settings = ReplicaSettings { window: 1600, ..ReplicaSettings::default() };
        let length = |key: &Bytes| if key == "long" { 95 } else { 10 };
        let line = |write: &Write| WriteLine::of(write, &settings, length);
        let value = |len: usize| Bytes::from(vec![0; len]);
        assert_eq!(line(&Write::Put { key: "k".into(), value: value(99) }), WriteLine::Small);
        assert_eq!(line(&Write::Put { key: "long".into(), value: value(100) }), WriteLine::Large);
        let append = |key: &'static str, len| Write::Append { key: key.into(), value: value(len) };
        assert_eq!((line(&append("long", 4)), line(&append("long", 5))), (WriteLine::Small, WriteLine::Large));
        assert_eq!((line(&append("short", 89)), line(&append("short", 90))), (WriteLine::Small, WriteLine::Large));
        let step = |key: &'static str| Step::Append { key: key.into(), value: value(1) };
        assert_eq!(line(&Write::Batch(vec![step("short"); 5])), WriteLine::Small);
        assert_eq!(line(&Write::Batch(vec![step("long"), step("short")])), WriteLine::Large);
        let steps = vec![ScriptStep::Append { key: "long".into(), value: value(5) }];
        let groups = vec![ScriptGroup { require: Vec::new(), steps }];
        assert_eq!(line(&Write::Script(ScriptWrite { require: Vec::new(), groups })), WriteLine::Large);
        assert_eq!(line(&Write::Delete { key: "long".into() }), WriteLine::Small);
    }
}
