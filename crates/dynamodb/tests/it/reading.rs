//! What was written by others, pages with many expired items, and what reading and writing cost.

use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::AttributeValue;
use tidings_core::time::Clock;
use tidings_dynamodb::{Identity, Options};
use tidings_store::{Change, Item, Key, KeyKind, Query, Store, Table, Value, Write};

use crate::support::{clock, endpoint, foreign, open, options, unique, with_tables};

fn table() -> Table {
    let table = Table::new("read", "pk", KeyKind::S).sort("sk", KeyKind::S).ttl("expires");
    // By a reserved word, and by the expiry itself, which no filter expression could then name.
    table.index("by-status", ("status".into(), KeyKind::S), None).index(
        "by-expiry",
        ("status".into(), KeyKind::S),
        Some(("expires".into(), KeyKind::N)),
    )
}

const PREFIX: &str = "reading-";

#[tokio::test]
async fn items_of_other_tools_are_read_sets_included() {
    let (clock, pk) = (clock(), unique());
    let store = with_tables(PREFIX, &[table()], &clock).await;
    let request = foreign().put_item().table_name("reading-read");
    request
        .item("pk", AttributeValue::S(pk.clone()))
        .item("sk", AttributeValue::S("a".to_owned()))
        .item("texts", AttributeValue::Ss(vec!["x".to_owned()]))
        .item("numbers", AttributeValue::Ns(vec!["1.50".to_owned()]))
        .item("bytes", AttributeValue::Bs(vec![Blob::new([7])]))
        .item("nothing", AttributeValue::Null(true))
        .send()
        .await
        .unwrap();
    let expected = Item::new()
        .with("pk", &pk)
        .with("sk", "a")
        .with("texts", vec![Value::from("x")])
        .with("numbers", vec![Value::N("1.5".parse().unwrap())])
        .with("bytes", vec![Value::from(vec![7])])
        .with("nothing", Value::Null);
    let key = Key::with_sort(&pk, "a");
    assert_eq!(store.get(&table(), &key).await.unwrap(), Some(expected.clone()));
    assert_eq!(store.query(&table(), &Query::new(&pk)).await.unwrap().items, vec![expected]);
    // A change elsewhere leaves them as they are.
    store.transact(vec![Write::update(&table(), key, vec![Change::Set("v".into(), 1.into())])]).await.unwrap();
    let request = foreign().get_item().table_name("reading-read").key("pk", AttributeValue::S(pk));
    let item = request.key("sk", AttributeValue::S("a".to_owned())).send().await.unwrap().item.unwrap();
    assert_eq!(item["texts"], AttributeValue::Ss(vec!["x".to_owned()]));
}

/// The script that starts DynamoDB Local sets `AWS_ACCESS_KEY_ID` and its fellows.
#[tokio::test]
async fn region_and_keys_come_from_the_environment() {
    let clock = clock();
    with_tables(PREFIX, &[table()], &clock).await;
    let options = Options { region: None, identity: Identity::Standard, ..options(endpoint(), PREFIX) };
    let store = open(&options, &[table()], &clock).await;
    assert_eq!(store.get(&table(), &Key::with_sort(unique(), "a")).await.unwrap(), None);
}

#[tokio::test]
async fn what_is_written_here_is_plain_to_other_tools() {
    let (clock, pk) = (clock(), unique());
    let store = with_tables(PREFIX, &[table()], &clock).await;
    let item = Item::new().with("pk", &pk).with("sk", "a").with("status", "new").with("n", 5).with("yes", true);
    store.transact(vec![Write::insert(&table(), item)]).await.unwrap();
    let request = foreign().get_item().table_name("reading-read").key("pk", AttributeValue::S(pk));
    let item = request.key("sk", AttributeValue::S("a".to_owned())).send().await.unwrap().item.unwrap();
    assert_eq!(item["status"], AttributeValue::S("new".to_owned()));
    assert_eq!(item["n"], AttributeValue::N("5".to_owned()));
    assert_eq!(item["yes"], AttributeValue::Bool(true));
}

/// Hundreds of expired items before, between and behind those that are there.
#[tokio::test]
async fn pages_are_full_although_most_items_have_expired() {
    let (clock, pk) = (clock(), unique());
    let store = with_tables(PREFIX, &[table()], &clock).await;
    // Items that the store's clock has left behind, and DynamoDB's own sweep has not.
    let now = clock.now().as_second();
    let mut writes = Vec::new();
    for n in 0..400 {
        let expires = if n % 40 == 39 { now + 9000 } else { now + 1000 };
        let item = Item::new().with("pk", &pk).with("sk", format!("{n:03}")).with("expires", expires);
        writes.push(Write::put(&table(), item.with("status", &pk)));
    }
    for chunk in writes.chunks(100) {
        store.transact(chunk.to_vec()).await.unwrap();
    }
    clock.advance(std::time::Duration::from_secs(2000));
    let expected: Vec<_> = (0..10).map(|n| format!("{:03}", n * 40 + 39)).collect();
    for query in [
        Query::new(&pk),
        Query::new(&pk).descending(),
        Query::new(&pk).index("by-status"),
        Query::new(&pk).index("by-expiry"),
        Query::new(&pk).index("by-expiry").descending(),
    ] {
        for limit in [1, 3, 10, 50] {
            let mut query = query.clone().limit(limit);
            let mut found = Vec::new();
            loop {
                let page = store.query(&table(), &query).await.unwrap();
                let full = page.items.len() == limit;
                found.extend(page.items.iter().filter_map(|item| item.str("sk").map(str::to_owned)));
                assert!(full || page.next.is_none() || found.len() == 10, "a page of {} of {limit}", page.items.len());
                query.after = page.next;
                if query.after.is_none() {
                    break;
                }
            }
            found.sort();
            assert_eq!(found, expected, "{query:?}");
        }
    }
}

#[tokio::test]
async fn a_transaction_is_one_request_and_so_is_a_page() {
    let (clock, pk) = (clock(), unique());
    let store = with_tables(PREFIX, &[table()], &clock).await;
    let before = store.counts();
    let items = (0..25).map(|n| Item::new().with("pk", &pk).with("sk", format!("{n:02}")));
    store.transact(items.map(|item| Write::insert(&table(), item)).collect()).await.unwrap();
    let page = store.query(&table(), &Query::new(&pk).limit(20)).await.unwrap();
    assert_eq!(page.items.len(), 20);
    store.get(&table(), &Key::with_sort(&pk, "00")).await.unwrap();
    let after = store.counts();
    assert_eq!((after.transactions - before.transactions, after.writes - before.writes), (1, 25));
    assert_eq!((after.queries - before.queries, after.gets - before.gets), (1, 1));
    assert_eq!(after.retries, before.retries);
    // A unit for each small strongly consistent read. What a transaction costs DynamoDB Local does not tell: it adds
    // the bytes of all writes up before it rounds, where the service rounds each.
    assert!(after.write_units > before.write_units);
    assert_eq!(after.read_units - before.read_units, 2.0);
}
