//! The two lines in which writes wait for their chain, so that large writes do not hold up small ones.

use bytes::Bytes;

use crate::{api::Write, replica::ReplicaSettings};

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum WriteLine {
    /// The line of all other writes.
    Small,
    /// The line of writes whose values, including those to which the write appends, have at least a sixteenth of the
    /// window's bytes.
    Large,
}

impl WriteLine {
    /// The line of a write. `length` returns the current length of a key's value in bytes. The value may change before
    /// the write is admitted, so the line only determines the order of admission.
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
    fn a_write_counts_by_the_bytes_of_its_update() {
        let settings = ReplicaSettings { window: 1600, ..ReplicaSettings::default() };
        let length = |key: &Bytes| if key == "long" { 95 } else { 10 };
        let line = |write: &Write| WriteLine::of(write, &settings, length);
        let value = |len: usize| Bytes::from(vec![0; len]);
        assert_eq!(line(&Write::put("k".into(), value(99))), WriteLine::Small);
        assert_eq!(line(&Write::put("long".into(), value(100))), WriteLine::Large);
        let append = |key: &'static str, len| Write::append(key.into(), value(len));
        assert_eq!((line(&append("long", 4)), line(&append("long", 5))), (WriteLine::Small, WriteLine::Large));
        assert_eq!((line(&append("short", 89)), line(&append("short", 90))), (WriteLine::Small, WriteLine::Large));
        let step = |key: &'static str| Step::append(key.into(), value(1));
        assert_eq!(line(&Write::Batch(vec![step("short"); 5])), WriteLine::Small);
        assert_eq!(line(&Write::Batch(vec![step("long"), step("short")])), WriteLine::Large);
        let steps = vec![ScriptStep::append("long".into(), value(5))];
        let groups = vec![ScriptGroup { require: Vec::new(), steps }];
        assert_eq!(line(&Write::Script(ScriptWrite { require: Vec::new(), groups })), WriteLine::Large);
        assert_eq!(line(&Write::Delete { key: "long".into() }), WriteLine::Small);
    }
}
