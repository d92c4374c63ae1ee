use smallvec::smallvec;

use super::*;

fn put(key: &'static str, sequence: u64, value: Option<&'static str>) -> StoreOp {
    let held = Held { version: Version::new(1, sequence), value: value.map(Bytes::from) };
    StoreOp::Put { key: Bytes::from(key), held }
}

#[test]
fn smoke() {
    let store = MemoryStore::with_seed(1);
    let batch = |keep_from, ops| StoreBatch { chain: ChainId(1), keep_from: Sequence(keep_from), ops };
    store.apply(&batch(0, smallvec![put("a", 1, Some("x")), put("a", 2, Some("yy"))])).unwrap();
    assert_eq!(store.bytes(), 4);
    assert_eq!(store.read(ChainId(1), b"a", Sequence(1)).unwrap().unwrap().version, Version::new(1, 1));
    assert_eq!(store.read(ChainId(1), b"a", Sequence::MAX).unwrap().unwrap().version, Version::new(1, 2));
    store.apply(&batch(2, smallvec![StoreOp::Prune { key: Bytes::from("a") }])).unwrap();
    assert_eq!(store.bytes(), 3);
}
