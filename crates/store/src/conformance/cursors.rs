//! Pages and cursors: every item once, whatever happens between two pages (SX-10).

use super::limits::item_of;
use super::suite::{BY_GROUP, BY_OWNER, BY_TITLE, Suite, row, sorts, texts};
use crate::{Item, Key, Query, Range, Table, Write};

/// `count` items with three-digit sort keys, ten apart.
async fn fill(suite: &Suite, pk: &str, count: usize) -> Vec<String> {
    let sorts: Vec<_> = (1..=count).map(|n| format!("{:03}", n * 10)).collect();
    suite.put_all(&suite.tables.text, sorts.iter().map(|sort| row(pk, sort))).await;
    sorts
}

// SX-10
pub async fn pages_neither_repeat_nor_skip(suite: &Suite) {
    let pk = suite.own("p");
    let ascending = fill(suite, &pk, 20).await;
    let descending: Vec<_> = ascending.iter().rev().cloned().collect();
    for limit in [1, 2, 3, 7, 19, 20, 21, 1000] {
        let query = Query::new(&pk).limit(limit);
        let found = suite.sorts(&suite.tables.text, query.clone()).await;
        assert_eq!(found, texts(&ascending), "in pages of {limit}");
        let found = suite.sorts(&suite.tables.text, query.descending()).await;
        assert_eq!(found, texts(&descending), "in pages of {limit}, descending");
    }
}

// SX-10
pub async fn pages_hold_under_writes(suite: &Suite) {
    let table = &suite.tables.text;
    for descending in [false, true] {
        let pk = suite.own(if descending { "down" } else { "up" });
        let all = fill(suite, &pk, 20).await;
        let mut query = Query::new(&pk).limit(7);
        query.descending = descending;
        let first = suite.page(table, &query).await;
        assert_eq!(first.items.len(), 7);
        // Before the cursor, right behind it, and at both ends; and one that was to come is gone.
        let (gone, new) = ("100", ["005", "015", "075", "135", "145", "999"]);
        suite.put_all(table, new.map(|sort| row(&pk, sort))).await;
        suite.write(vec![Write::delete(table, Key::with_sort(&pk, gone))]).await;

        let rest = suite.sorts(table, query.after(first.next)).await;
        let mut expected: Vec<&str> = all.iter().map(String::as_str).chain(new).filter(|s| *s != gone).collect();
        expected.sort_unstable();
        if descending {
            expected.reverse();
            expected.retain(|sort| *sort < "140");
        } else {
            expected.retain(|sort| *sort > "070");
        }
        assert_eq!(rest, texts(&expected), "descending: {descending}");
    }
}

pub async fn pages_of_a_range_stay_in_it(suite: &Suite) {
    let table = &suite.tables.text;
    let pk = suite.own("p");
    fill(suite, &pk, 20).await;
    for limit in [1, 2, 3, 4] {
        for (range, expected) in [
            (Range::Between("045".into(), "070".into()), ["050", "060", "070"]),
            (Range::Above("170".into()), ["180", "190", "200"]),
            (Range::AtLeast("180".into()), ["180", "190", "200"]),
            (Range::Below("040".into()), ["010", "020", "030"]),
            (Range::AtMost("030".into()), ["010", "020", "030"]),
        ] {
            let query = Query::new(&pk).range(range.clone()).limit(limit);
            assert_eq!(suite.sorts(table, query.clone()).await, texts(&expected), "{range:?} by {limit}");
            let mut expected = expected;
            expected.reverse();
            assert_eq!(suite.sorts(table, query.descending()).await, texts(&expected), "{range:?} by {limit}");
        }
    }
}

/// The index's keys alone do not tell these items apart; the cursor must.
pub async fn pages_of_equal_index_keys_neither_repeat_nor_skip(suite: &Suite) {
    let table = &suite.tables.text;
    let group = suite.own("g");
    let mut items = Vec::new();
    for p in 0..3 {
        for s in 0..4 {
            let item = row(&suite.own(&format!("p{p}")), &format!("s{s}")).with("title", "same");
            items.push(item.with("group", &group).with("rank", 1).with("owner", &group));
        }
    }
    suite.put_all(table, items.iter().cloned()).await;
    for index in [BY_GROUP, BY_OWNER] {
        for limit in [1, 2, 5, 12] {
            let query = Query::new(&group).index(index).limit(limit);
            for query in [query.clone(), query.descending()] {
                let mut found = suite.all(table, query).await;
                found.sort_by_key(|item| table.key_of(item).expect("the item has its keys"));
                assert_eq!(found, items, "{index} in pages of {limit}");
            }
        }
    }
    let query = Query::new(suite.own("p1")).index(BY_TITLE).limit(1);
    let mut found = sorts(&suite.all(table, query).await);
    found.sort();
    assert_eq!(found, texts(&["s0", "s1", "s2", "s3"]));
}

pub async fn a_cursor_outlives_its_item(suite: &Suite) {
    let table = &suite.tables.text;
    let pk = suite.own("p");
    let item = |n: i64| row(&pk, &format!("{n}")).with("group", &pk).with("rank", n);
    suite.put_all(table, (1..=6).map(item)).await;
    for (query, gone, rest) in [
        (Query::new(&pk).limit(2), "2", ["3", "4", "5", "6"].as_slice()),
        (Query::new(&pk).limit(2).index(BY_GROUP), "3", &["4", "5", "6"]),
        (Query::new(&pk).limit(2).descending(), "5", &["4", "1"]),
    ] {
        let page = suite.page(table, &query).await;
        assert_eq!(page.items.last().and_then(|item| item.str("sk")), Some(gone));
        suite.write(vec![Write::delete(table, Key::with_sort(&pk, gone))]).await;
        assert_eq!(suite.sorts(table, query.after(page.next)).await, texts(rest), "after {gone} went");
    }
}

pub async fn a_page_ends_at_its_limit(suite: &Suite) {
    let table = &suite.tables.text;
    let pk = suite.own("p");
    fill(suite, &pk, 5).await;
    for (limit, expected, more) in [(1, 1, true), (4, 4, true), (6, 5, false), (100_000, 5, false)] {
        let page = suite.page(table, &Query::new(&pk).limit(limit)).await;
        assert_eq!((page.items.len(), page.next.is_some()), (expected, more), "limit {limit}");
        if let Some(next) = page.next {
            let last = page.items.last().and_then(|item| item.str("sk"));
            assert_eq!(Some(next), last.map(|sort| row(&pk, sort)), "the cursor is the last item's key");
        }
    }
    // At exactly the limit the store need not know that nothing follows.
    assert_eq!(suite.page(table, &Query::new(&pk).limit(5)).await.items.len(), 5);
}

pub async fn a_page_ends_at_one_mib(suite: &Suite) {
    let table = &suite.tables.text;
    let pk = suite.own("p");
    let items: Vec<Item> = (0..9).map(|n| item_of(&pk, &n.to_string(), 300_000)).collect();
    for item in &items {
        suite.put(table, item.clone()).await;
    }
    for descending in [false, true] {
        let mut query = Query::new(&pk);
        query.descending = descending;
        let page = suite.page(table, &query).await;
        assert!(page.next.is_some(), "2.7 MB came as one page");
        let sizes: Vec<_> = page.items.iter().map(Item::size).collect();
        let (total, last) = (sizes.iter().sum::<usize>(), sizes.last().copied().unwrap_or(0));
        assert!(last > 0 && total - last < 1024 * 1024, "a page of {total} bytes");
        let all = suite.all(table, query).await;
        assert_eq!(all.len(), items.len());
        let mut found = sorts(&all);
        if descending {
            found.reverse();
        }
        assert_eq!(found, sorts(&items));
    }
}

pub async fn a_foreign_cursor_is_refused(suite: &Suite) {
    let text = &suite.tables.text;
    let (one, two) = (suite.own("p1"), suite.own("p2"));
    let item = |pk: &str, n: i64| row(pk, &n.to_string()).with("group", pk).with("rank", n);
    suite.put_all(text, [item(&one, 1), item(&one, 2), item(&one, 3), item(&two, 1), item(&two, 2)]).await;
    let cursor = async |query: Query| suite.page(text, &query.limit(2)).await.next;
    let (own, index) = (cursor(Query::new(&one)).await, cursor(Query::new(&one).index(BY_GROUP)).await);
    assert!(own.is_some() && index.is_some());

    let refused = async |why: &str, table: &Table, query: Query| suite.query_refused(why, table, &query).await;
    refused("another partition's cursor", text, Query::new(&two).after(own.clone())).await;
    refused("another index partition's cursor", text, Query::new(&two).index(BY_GROUP).after(index.clone())).await;
    refused("the table's cursor in an index", text, Query::new(&one).index(BY_GROUP).after(own.clone())).await;
    refused("an empty cursor", text, Query::new(&one).after(Some(Item::new()))).await;
    refused("half a cursor", text, Query::new(&one).after(Some(Item::new().with("pk", &one)))).await;
    let wrong = Item::new().with("pk", &one).with("sk", 1);
    refused("a cursor of another type", text, Query::new(&one).after(Some(wrong))).await;
    let outside = Query::new(&one).range(Range::Above("2".into())).after(own);
    refused("a cursor outside the range", text, outside).await;
    let outside = Query::new(&one).index(BY_GROUP).range(Range::AtLeast(3.into())).after(index);
    refused("a cursor outside the index range", text, outside).await;
}
