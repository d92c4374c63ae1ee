//! Compares the output of programs with `docs/json.md`.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

/// The first example in `docs/json.md` under this heading.
pub fn documented(heading: &str) -> Value {
    let page = include_str!("../../../../docs/json.md");
    let (_, section) = page.split_once(&format!("## {heading}\n")).expect("no such heading");
    let (_, block) = section.split_once("```json\n").unwrap();
    serde_json::from_str(block.split_once("```").unwrap().0).unwrap()
}

/// Panics unless the printed object has exactly the fields of the documented one, with values of the same types. `null`
/// on either side matches any value.
pub fn assert_documented(shown: &Value, printed: &Value, path: &str) {
    match (shown, printed) {
        (Value::Object(shown), Value::Object(printed)) => {
            let fields = |of: &Map<String, Value>| of.keys().cloned().collect::<BTreeSet<_>>();
            assert_eq!(fields(shown), fields(printed), "shown and printed fields of {path}");
            shown
                .iter()
                .for_each(|(field, shown)| assert_documented(shown, &printed[field], &format!("{path}.{field}")));
        }
        (Value::Array(shown), Value::Array(printed)) => {
            assert_eq!(shown.is_empty(), printed.is_empty(), "{path}: nothing to compare");
            printed.iter().for_each(|printed| assert_documented(&shown[0], printed, &format!("{path}[]")));
        }
        (Value::Null, _) | (_, Value::Null) => {}
        _ => {
            assert_eq!(std::mem::discriminant(shown), std::mem::discriminant(printed), "{path}: {shown} and {printed}")
        }
    }
}
