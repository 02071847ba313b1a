//! Records go there and back, and what does not fit is refused.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde::{Deserialize, Serialize};

use super::*;
use crate::Number;

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Record {
    event_id: String,
    small: i8,
    large: u64,
    fraction: f64,
    done: bool,
    letter: char,
    tags: Vec<String>,
    pair: (i32, String),
    counts: BTreeMap<u32, i64>,
    state: State,
    history: Vec<State>,
    wrapped: Wrapped,
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
    nothing: Option<i64>,
    something: Option<i64>,
    unit: (),
    #[serde(flatten)]
    rest: BTreeMap<String, serde_json::Value>,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum State {
    Created,
    Waiting(i64),
    Between(i64, i64),
    Failed { reason: String, attempts: u8 },
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Wrapped(String);

fn record() -> Record {
    Record {
        event_id: "e-1".to_owned(),
        small: -128,
        large: u64::MAX,
        fraction: -0.1,
        done: true,
        letter: 'é',
        tags: vec!["a".to_owned(), String::new()],
        pair: (-1, "x".to_owned()),
        counts: [(1, 10), (20, -1)].into(),
        state: State::Failed { reason: "no answer".to_owned(), attempts: 3 },
        history: vec![State::Created, State::Waiting(5), State::Between(1, 2)],
        wrapped: Wrapped("w".to_owned()),
        note: None,
        nothing: None,
        something: Some(0),
        unit: (),
        rest: [("extra".to_owned(), serde_json::json!({ "deep": [1, 2.5, null, true, "s"] }))].into(),
    }
}

fn map(entries: impl IntoIterator<Item = (&'static str, Value)>) -> Value {
    Value::M(entries.into_iter().map(|(name, value)| (name.into(), value)).collect())
}

#[test]
fn a_record_becomes_the_item_one_would_write() {
    let number = |text: &str| Value::N(text.parse::<Number>().unwrap());
    let failed = map([("reason", "no answer".into()), ("attempts", 3.into())]);
    let history = vec![
        "created".into(),
        map([("waiting", 5.into())]),
        map([("between", vec![Value::from(1), Value::from(2)].into())]),
    ];
    let deep = vec![1.into(), number("2.5"), Value::Null, true.into(), "s".into()];
    let expected = Item::new()
        .with("eventId", "e-1")
        .with("small", -128)
        .with("large", number("18446744073709551615"))
        .with("fraction", number("-0.1"))
        .with("done", true)
        .with("letter", "é")
        .with("tags", vec![Value::from("a"), Value::from("")])
        .with("pair", vec![Value::from(-1), Value::from("x")])
        .with("counts", map([("1", 10.into()), ("20", (-1).into())]))
        .with("state", map([("failed", failed)]))
        .with("history", history)
        .with("wrapped", "w")
        .with("nothing", Value::Null)
        .with("something", 0)
        .with("unit", Value::Null)
        .with("extra", map([("deep", Value::L(deep))]));
    let item = Item::from_record(&record()).unwrap();
    assert_eq!(item, expected);
    assert_eq!(item.to_record::<Record>().unwrap(), record());
}

#[test]
fn what_is_left_out_is_none_and_what_is_unknown_is_skipped() {
    #[derive(Debug, PartialEq, Deserialize)]
    struct Small {
        a: Option<String>,
        #[serde(default)]
        b: i64,
    }
    let item = Item::new().with("pk", "p").with("other", vec![Value::Null]);
    assert_eq!(item.to_record::<Small>().unwrap(), Small { a: None, b: 0 });
}

#[test]
fn bytes_are_bytes() {
    struct Bytes(Vec<u8>);
    impl Serialize for Bytes {
        fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.serialize_bytes(&self.0)
        }
    }
    impl<'de> Deserialize<'de> for Bytes {
        fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            struct Take;
            impl serde::de::Visitor<'_> for Take {
                type Value = Bytes;
                fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    f.write_str("bytes")
                }
                fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Bytes, E> {
                    Ok(Bytes(bytes.to_vec()))
                }
            }
            deserializer.deserialize_bytes(Take)
        }
    }
    let value = Value::from_record(&Bytes(vec![0, 0xFF])).unwrap();
    assert_eq!(value, Value::B(vec![0, 0xFF]));
    assert_eq!(value.to_record::<Bytes>().unwrap().0, vec![0, 0xFF]);
    assert!(Value::from("text").to_record::<Bytes>().is_err());
}

#[test]
fn numbers_are_read_as_what_the_record_has_if_they_fit() {
    let value = |text: &str| Value::N(text.parse().unwrap());
    assert_eq!(value("255").to_record::<u8>().unwrap(), 255);
    assert!(value("256").to_record::<u8>().is_err());
    assert!(value("-1").to_record::<u64>().is_err());
    assert!(value("1.5").to_record::<i64>().is_err());
    assert_eq!(value("3").to_record::<f64>().unwrap(), 3.0);
    assert_eq!(value("1.5").to_record::<f32>().unwrap(), 1.5);
    let wide = i128::from(u64::MAX) * 1000;
    assert_eq!(value(&wide.to_string()).to_record::<i128>().unwrap(), wide);
    assert_eq!(value("7").to_record::<u128>().unwrap(), 7);
    assert!(Value::from("7").to_record::<i64>().is_err(), "text is no number");
}

#[test]
fn what_no_attribute_can_hold_is_refused() {
    for number in [f64::NAN, f64::INFINITY, 1e300, 1e-200] {
        assert!(matches!(Value::from_record(&number), Err(Error::Invalid(_))), "{number}");
    }
    assert!(matches!(Item::from_record("text"), Err(Error::Invalid(_))));
    assert!(matches!(Item::from_record(&vec![1]), Err(Error::Invalid(_))));
    let by_list: BTreeMap<Vec<i32>, i32> = [(vec![1], 1)].into();
    assert!(matches!(Item::from_record(&by_list), Err(Error::Invalid(_))));
}

#[test]
fn what_is_no_such_record_is_refused() {
    let read = |item: Item| item.to_record::<Record>();
    assert!(matches!(read(Item::new()), Err(Error::Corrupt(_))));
    let whole = || Item::from_record(&record()).unwrap();
    assert!(read(whole()).is_ok());
    for (name, value) in [
        ("eventId", Value::from(1)),
        ("small", 1000.into()),
        ("done", "true".into()),
        ("letter", "ab".into()),
        ("pair", vec![Value::from(1)].into()),
        ("pair", vec![Value::from(1), Value::from("x"), Value::Null].into()),
        ("counts", map([("one", 1.into())])),
        ("state", "unheard_of".into()),
        ("state", "waiting".into()),
        ("state", map([("created", 1.into())])),
        ("state", map([("created", Value::Null), ("waiting", 1.into())])),
        ("tags", Value::Null),
    ] {
        let shown = format!("{name} {value:?}");
        assert!(matches!(read(whole().with(name, value)), Err(Error::Corrupt(_))), "{shown}");
    }
}

#[test]
fn keys_of_maps_may_be_truths_and_variants() {
    let truths: BTreeMap<bool, i64> = [(true, 1), (false, 0)].into();
    assert_eq!(Value::from_record(&truths).unwrap().to_record::<BTreeMap<bool, i64>>().unwrap(), truths);
    let states: BTreeMap<State, i64> = [(State::Created, 1)].into();
    let value = Value::from_record(&states).unwrap();
    assert_eq!(value, map([("created", 1.into())]));
    assert_eq!(value.to_record::<BTreeMap<State, i64>>().unwrap(), states);
}

fn json() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(serde_json::Value::from),
        any::<i64>().prop_map(serde_json::Value::from),
        any::<u64>().prop_map(serde_json::Value::from),
        (-1e15..1e15f64).prop_filter("whole numbers come back as such", |f| f.fract() != 0.0).prop_map(Into::into),
        ".{0,8}".prop_map(serde_json::Value::from),
    ];
    leaf.prop_recursive(3, 20, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(serde_json::Value::from),
            proptest::collection::btree_map(".{0,4}", inner, 0..4)
                .prop_map(|map| serde_json::Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn json_goes_there_and_back(json in json()) {
        let value = Value::from_record(&json).unwrap();
        prop_assert_eq!(value.to_record::<serde_json::Value>().unwrap(), json);
    }
}
