//! Entries of a typed map from any bytes. A key that decodes encodes to the same bytes again; values don't panic.
#![no_main]

use artillery_ddata::map::{Bincode, Decimal, ValueCodec, key};
use bytes::Bytes;
use libfuzzer_sys::fuzz_target;

type Key = (String, Option<(i64, char)>, Vec<[u16; 2]>, Result<bool, Vec<String>>);
type Value = (u128, Vec<(String, Option<f64>)>, Result<char, Vec<u8>>);

fuzz_target!(|data: &[u8]| {
    if let Ok(key) = key::decode::<Key>(data) {
        assert_eq!(key::encode(&key).expect("a decoded key can be encoded"), data);
    }
    let value = Bytes::copy_from_slice(data);
    let _ = <Bincode as ValueCodec<Value>>::decode(&value);
    let _ = Decimal::decode(&value);
});
