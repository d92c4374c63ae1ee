use std::{cmp::Ordering, collections::BTreeMap, fmt::Debug};

use proptest::prelude::*;
use serde::Deserialize;

use super::*;

/// A byte string, as `uuid` and `serde_bytes` write it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Raw(Vec<u8>);

impl Serialize for Raw {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl serde::de::Visitor<'_> for Visitor {
            type Value = Raw;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("bytes")
            }

            fn visit_byte_buf<E>(self, bytes: Vec<u8>) -> Result<Raw, E> {
                Ok(Raw(bytes))
            }
        }
        deserializer.deserialize_byte_buf(Visitor)
    }
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
enum Kind {
    Nothing,
    One(String),
    Two(i8, Option<bool>),
    Named { at: char, of: Vec<String> },
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
struct Id(i128);

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
struct Key {
    text: String,
    kind: Kind,
    id: Id,
    raw: Raw,
    nested: (i32, (bool, u16), [u8; 4]),
    unit: (),
    list: Vec<Vec<u8>>,
}

/// Strings of few letters, so that one is often a prefix of another. Some contain the code points 0, 1, 255 or the
/// largest one.
fn text() -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(vec!['\0', '\u{1}', 'a', 'b', 'ÿ', '\u{10ffff}']), 0..4)
        .prop_map(String::from_iter)
}

fn raw() -> impl Strategy<Value = Raw> {
    prop::collection::vec(prop::sample::select(vec![0u8, 1, 2, 0xfe, 0xff]), 0..5).prop_map(Raw)
}

/// Numbers, many of them near the limits of their type.
macro_rules! number {
    ($type:ident) => {
        prop_oneof![any::<$type>(), (0 as $type..3), Just($type::MAX), Just($type::MIN), Just($type::MAX / 2 + 1)]
    };
}

fn kind() -> impl Strategy<Value = Kind> {
    prop_oneof![
        Just(Kind::Nothing),
        text().prop_map(Kind::One),
        (number!(i8), any::<Option<bool>>()).prop_map(|(a, b)| Kind::Two(a, b)),
        (any::<char>(), prop::collection::vec(text(), 0..3)).prop_map(|(at, of)| Kind::Named { at, of }),
    ]
}

fn key() -> impl Strategy<Value = Key> {
    let nested = (number!(i32), (any::<bool>(), number!(u16)), any::<[u8; 4]>());
    let list = prop::collection::vec(prop::collection::vec(0u8..3, 0..3), 0..3);
    (text(), kind(), number!(i128).prop_map(Id), raw(), nested, list)
        .prop_map(|(text, kind, id, raw, nested, list)| Key { text, kind, id, raw, nested, unit: (), list })
}

/// Checks that the encodings sort as the keys do, that `a` decodes to itself, and that the encoding of `b` is a prefix
/// of that of `a` only if they are equal.
fn check<K: Serialize + DeserializeOwned + Ord + Debug>(a: &K, b: &K) -> Result<(), TestCaseError> {
    let (left, right) = (encode(a).unwrap(), encode(b).unwrap());
    prop_assert_eq!(left.cmp(&right), a.cmp(b), "{:?} {:?} as {:?} {:?}", a, b, left, right);
    prop_assert_eq!(&decode::<K>(&left).unwrap(), a);
    prop_assert_eq!(left.starts_with(&right), a == b, "{:?} begins another key", b);
    Ok(())
}

/// Bytes that decode must be the encoding of the decoded key.
fn check_garbage<K: Serialize + DeserializeOwned + Debug>(bytes: &[u8]) -> Result<(), TestCaseError> {
    if let Ok(key) = decode::<K>(bytes) {
        prop_assert_eq!(&encode(&key).unwrap(), bytes, "{:?}", key);
    }
    Ok(())
}

/// Encoded leading fields must be a prefix of exactly the keys that have them.
fn check_leading<K, const FIELDS: usize, Q>(a: &K, b: &K, fields: &Q, same: bool) -> Result<(), TestCaseError>
where
    K: Serialize + Debug,
    Q: Leading<K, FIELDS> + ?Sized,
{
    let space = KeySpace::<K>::new("map").unwrap();
    let prefix = space.leading(fields).unwrap();
    prop_assert!(space.key(a).unwrap().starts_with(&prefix));
    prop_assert_eq!(space.key(b).unwrap().starts_with(&prefix), same, "{:?} {:?}", a, b);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn integers_sort_as_their_bytes(
                (a, b) in (number!(u8), number!(u8)), (c, d) in (number!(i8), number!(i8)),
                (e, f) in (number!(u16), number!(u16)), (g, h) in (number!(i16), number!(i16)),
                (i, j) in (number!(u32), number!(u32)), (k, l) in (number!(i32), number!(i32)),
                (m, n) in (number!(u64), number!(u64)), (o, p) in (number!(i64), number!(i64)),
                (q, r) in (number!(u128), number!(u128)), (s, t) in (number!(i128), number!(i128))) {
        check(&a, &b)?;
        check(&c, &d)?;
        check(&e, &f)?;
        check(&g, &h)?;
        check(&i, &j)?;
        check(&k, &l)?;
        check(&m, &n)?;
        check(&o, &p)?;
        check(&q, &r)?;
        check(&s, &t)?;
        check(&(a, o), &(b, p))?;
    }

    #[test]
    fn small_types_sort_as_their_bytes(
                    a: bool, b: bool, c: char, d: char, e: [u8; 16], f: [u8; 16], g: Option<u8>, h: Option<u8>,
                    i: Option<Option<bool>>, j: Option<Option<bool>>) {
        check(&a, &b)?;
        check(&c, &d)?;
        check(&e, &f)?;
        check(&g, &h)?;
        check(&i, &j)?;
        check(&(g, a), &(h, b))?;
    }

    #[test]
    fn strings_sort_as_bytes(a in text(), b in text(), c in raw(), d in raw(), e in number!(u8), f in number!(u8)) {
        check(&a, &b)?;
        check(&c, &d)?;
        check(&(a.clone(), e), &(b.clone(), f))?;
        check(&(c.clone(), (a.clone(), e)), &(d.clone(), (b.clone(), f)))?;
        check(&(vec![(a.clone(), c)], e), &(vec![(b.clone(), d)], f))?;
        check(&(vec![a.clone(), b.clone()], e), &(vec![a], f))?;
    }

    #[test]
    fn structs_sort_as_their_bytes(a in key(), b in key(), c in kind(), d in kind()) {
        check(&a, &b)?;
        check(&c, &d)?;
        // Random keys are rarely almost equal.
        check(&Key { kind: c, ..a.clone() }, &Key { kind: d, ..a })?;
    }

    #[test]
    fn leading_fields_are_a_prefix(a in (text(), number!(u32), raw()), b in (text(), number!(u32), raw())) {
        check_leading(&a, &b, a.0.as_str(), a.0 == b.0)?;
        check_leading(&a, &b, &a.0, a.0 == b.0)?;
        check_leading(&a, &b, &(a.0.as_str(), a.1), (&a.0, a.1) == (&b.0, b.1))?;
        check_leading(&a, &b, &(a.0.clone(), a.1), (&a.0, a.1) == (&b.0, b.1))?;
        let (c, d) = ((a.1, a.0), (b.1, b.0));
        check_leading(&c, &d, &c.0, c.0 == d.0)?;
    }

    #[test]
    fn garbage_has_no_second_encoding(bytes in prop::collection::vec(prop_oneof![0u8..5, any::<u8>()], 0..40)) {
        check_garbage::<Key>(&bytes)?;
        check_garbage::<Kind>(&bytes)?;
        check_garbage::<Vec<Option<String>>>(&bytes)?;
        check_garbage::<(bool, char, Raw)>(&bytes)?;
        check_garbage::<Vec<()>>(&bytes)?;
        check_garbage::<(i64, [u16; 3])>(&bytes)?;
        let _ = decode::<BTreeMap<u8, u8>>(&bytes);
        let _ = decode::<f32>(&bytes);
        let _ = decode::<Deep>(&bytes);
    }

    /// Damaged encodings reach deeper into the decoder than random bytes.
    #[test]
    fn damaged_keys_have_no_second_encoding(key in key(), at: prop::sample::Index, to: u8, cut: prop::sample::Index) {
        let mut bytes = encode(&key).unwrap().to_vec();
        prop_assert!(decode::<Key>(&bytes[..cut.index(bytes.len())]).is_err(), "a part of a key is not a key");
        let at = at.index(bytes.len());
        bytes[at] = to;
        check_garbage::<Key>(&bytes)?;
        bytes.push(to);
        check_garbage::<Key>(&bytes)?;
    }
}

#[derive(Debug, Serialize, Deserialize)]
enum Deep {
    Bottom,
    Down(Box<Deep>),
}

/// The format, byte for byte: stored keys must stay readable.
#[test]
fn the_bytes() {
    fn bytes<K: Serialize>(key: K) -> Vec<u8> {
        encode(&key).unwrap().to_vec()
    }
    assert_eq!(bytes((7u32, 258u64)), [0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 1, 2]);
    assert_eq!(bytes((0i16, -1i8, i8::MIN)), [0x80, 0, 0x7f, 0]);
    assert_eq!(bytes((true, 'A')), [1, 0, 0, 0, 0x41]);
    assert_eq!(bytes("a\0b"), [b'a', 0, 1, b'b', 0, 0]);
    assert_eq!(bytes((Raw(vec![0, 0]), Raw(vec![]))), [0, 1, 0, 1, 0, 0, 0, 0]);
    assert_eq!(bytes((None::<u8>, Some(5u8), ())), [0, 1, 5]);
    assert_eq!(bytes(vec![5u8, 6]), [1, 5, 1, 6, 0]);
    assert_eq!(bytes([5u8, 6]), [5, 6]);
    assert_eq!(bytes((Kind::Nothing, Kind::One("x".into()))), [0, 1, b'x', 0, 0]);
    assert_eq!(bytes(Kind::Two(0, Some(false))), [2, 0x80, 1, 0]);
    let space = KeySpace::<String>::new("users").unwrap();
    assert_eq!(space.key("ann").unwrap(), &b"users\0ann\0\0"[..]);
}

#[test]
fn unsupported_keys_are_refused() {
    assert_eq!(encode(&(1, 0.5)).unwrap_err(), KeyError::Unsupported("a floating-point number"));
    assert_eq!(encode(&BTreeMap::from([(1, 2)])).unwrap_err(), KeyError::Unsupported("a map"));
    #[derive(Serialize)]
    struct Gaps {
        #[serde(skip_serializing_if = "Option::is_none")]
        there: Option<u8>,
    }
    assert_eq!(
        encode(&Gaps { there: None }).unwrap_err(),
        KeyError::Unsupported("a field that is skipped conditionally")
    );
    let space = KeySpace::<String>::new("users").unwrap();
    let longest = MAX_KEY - "users\0".len() - 2;
    assert_eq!(space.key(&"x".repeat(longest)).unwrap().len(), MAX_KEY);
    let refused = space.key(&"x".repeat(longest + 1)).unwrap_err();
    assert_eq!(refused, KeyError::TooLong { len: MAX_KEY + 1, limit: MAX_KEY });
}

#[test]
fn depth_is_bounded_both_ways() {
    let mut key = Deep::Bottom;
    for _ in 0..MAX_DEPTH {
        key = Deep::Down(Box::new(key));
    }
    let mut bytes = encode(&key).unwrap().to_vec();
    assert!(decode::<Deep>(&bytes).is_ok());
    assert_eq!(encode(&Deep::Down(Box::new(key))).unwrap_err(), KeyError::TooDeep);
    bytes.insert(0, 1);
    assert_eq!(decode::<Deep>(&bytes).unwrap_err(), KeyError::TooDeep);
}

#[test]
fn malformed_keys_are_located() {
    let malformed = |at, what| KeyError::Malformed { at, what };
    assert_eq!(decode::<(u8, bool)>(&[9, 2]).unwrap_err(), malformed(1, "neither false nor true"));
    assert_eq!(decode::<u32>(&[0, 0, 7]).unwrap_err(), malformed(3, "an early end"));
    assert_eq!(decode::<String>(&[b'a', 0, 7]).unwrap_err(), malformed(2, "neither an end nor a zero in a string"));
    assert_eq!(decode::<(u8, String)>(&[1, 0xff, 0, 0]).unwrap_err(), malformed(1, "a string that isn't UTF-8"));
    assert_eq!(decode::<u8>(&[1, 2, 3]).unwrap_err(), KeyError::Trailing(2));
}

struct First(u8);

impl<'de> serde::de::Visitor<'de> for First {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("numbers")
    }

    fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut numbers: A) -> Result<Self, A::Error> {
        Ok(Self(numbers.next_element()?.unwrap_or_default()))
    }
}

#[test]
fn unread_elements_are_refused() {
    use serde::Deserializer;
    let first = |bytes| de::KeyReader::new(bytes).deserialize_seq(First(0)).map(|first| first.0);
    assert_eq!(first(&[1, 7, 0]), Ok(7));
    assert!(matches!(first(&[1, 7, 1, 8, 0]), Err(KeyError::Malformed { at: 2, .. })));
    assert!(matches!(first(&[1, 7]), Err(KeyError::Malformed { at: 2, .. })));
    let first = |len| de::KeyReader::new(&[7, 8]).deserialize_tuple(len, First(0)).map(|first| first.0);
    assert_eq!(first(1), Ok(7));
    assert!(matches!(first(2), Err(KeyError::Refused(_))));
}

#[test]
fn maps_have_separate_key_spaces() {
    let (users, more) = (KeySpace::<String>::new("user").unwrap(), KeySpace::<String>::new("users").unwrap());
    let key = more.key("ann").unwrap();
    assert_eq!(more.decode(&key).unwrap(), "ann");
    assert_eq!(users.decode(&key).unwrap_err(), KeyError::OtherMap("user".into()));
    assert!(!key.starts_with(users.prefix()));
    assert_eq!(more.name(), "users");
}

#[test]
fn names_are_checked() {
    let error = |name: &str| KeySpace::<u8>::new(name).unwrap_err();
    assert_eq!(error(""), NameError::Empty);
    assert_eq!(error("a\0b"), NameError::Zero);
    assert_eq!(error(&"x".repeat(MAX_NAME + 1)), NameError::TooLong { len: MAX_NAME + 1, limit: MAX_NAME });
    assert!(KeySpace::<u8>::new(&"x".repeat(MAX_NAME)).is_ok());
}

#[test]
fn stand_ins_have_the_encoding_of_the_key() {
    let text = KeySpace::<(String, String)>::new("m").unwrap();
    let owned = ("a".to_owned(), "b".to_owned());
    assert_eq!(text.key(&("a", "b")).unwrap(), text.key(&owned).unwrap());
    assert_eq!(text.leading("a").unwrap(), text.leading(&"a".to_owned()).unwrap());
    let mixed = KeySpace::<(u8, String)>::new("m").unwrap();
    assert_eq!(mixed.key(&(1, "b")).unwrap(), mixed.key(&(1, "b".to_owned())).unwrap());
    let list = KeySpace::<Vec<u8>>::new("m").unwrap();
    assert_eq!(list.key(&[1, 2][..]).unwrap(), list.key(&vec![1, 2]).unwrap());
    assert_eq!(text.key(&owned).unwrap().cmp(&text.key(&("a", "c")).unwrap()), Ordering::Less);
}
