use proptest::prelude::*;

use super::*;

type Value = (u64, String, Option<Vec<u8>>, Vec<(i16, bool)>);

fn decimal(text: &str) -> Option<i64> {
    Decimal::decode(&Bytes::copy_from_slice(text.as_bytes())).ok()
}

#[test]
fn decimals_have_one_form() {
    assert_eq!(Decimal::encode(&-42).unwrap(), "-42");
    for odd in ["", "+1", "01", "-0", " 1", "1 ", "9223372036854775808", "1.0", "one"] {
        assert_eq!(decimal(odd), None, "{odd:?}");
    }
}

#[test]
fn bytes_after_a_value_are_refused() {
    let mut bytes = <Bincode as ValueCodec<(u8, String)>>::encode(&(7, "x".into())).unwrap().to_vec();
    bytes.push(0);
    let error = <Bincode as ValueCodec<(u8, String)>>::decode(&bytes.into()).unwrap_err();
    assert_eq!(error.to_string(), "not a value of this type: 1 bytes left over");
}

#[test]
fn a_value_may_be_larger_than_any_header() {
    let value = "x".repeat(artillery_core::internal::codec::MAX_HEADER + 1);
    let bytes = Bincode::encode(&value).unwrap();
    assert_eq!(<Bincode as ValueCodec<String>>::decode(&bytes).unwrap(), value);
}

#[test]
fn an_encoding_error_names_its_reason() {
    struct Never;
    impl Serialize for Never {
        fn serialize<S: serde::Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
            Err(serde::ser::Error::custom("never"))
        }
    }
    impl<'de> serde::Deserialize<'de> for Never {
        fn deserialize<D: serde::Deserializer<'de>>(_: D) -> Result<Self, D::Error> {
            Err(serde::de::Error::custom("never"))
        }
    }
    let error = Bincode::encode(&Never).unwrap_err();
    assert!(matches!(error, ValueError::Encode(_)) && error.to_string().contains("never"), "{error}");
    assert!(matches!(<Bincode as ValueCodec<Never>>::decode(&Bytes::new()), Err(ValueError::Decode(_))));
}

proptest! {
    #[test]
    fn values_come_back(value: Value, number: i64) {
        prop_assert_eq!(<Bincode as ValueCodec<Value>>::decode(&Bincode::encode(&value).unwrap()).unwrap(), value);
        prop_assert_eq!(Decimal::decode(&Decimal::encode(&number).unwrap()).unwrap(), number);
    }

    #[test]
    fn garbage_never_panics(bytes: Vec<u8>) {
        let bytes = Bytes::from(bytes);
        let _ = <Bincode as ValueCodec<Value>>::decode(&bytes);
        let _ = Decimal::decode(&bytes);
    }
}
