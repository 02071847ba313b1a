//! Reading: one item, or one page of a query without those that have expired.

use aws_sdk_dynamodb::operation::query::QueryOutput;
use aws_sdk_dynamodb::types::ReturnConsumedCapacity;
use tidings_store::query::cursor_of;
use tidings_store::{Error, Index, Item, Key, Page, Query, Range, Table, limits};

use crate::Dynamo;
use crate::convert::{from_item, to_item, to_key};
use crate::counts::Counter;
use crate::expression::{Placeholders, key_condition};
use crate::failure::{Failure, classify};

/// Requests for one page: more are needed only where many items have expired and are not yet swept.
const REQUESTS: usize = 8;

/// Items to ask for when the first request of a page met expired ones: the next may, too.
const NEXT_LIMIT: usize = 100;

impl Dynamo {
    pub(crate) async fn get_once(&self, table: &Table, key: &Key) -> Result<Option<Item>, Failure> {
        self.retry.counters.add(Counter::Gets, 1);
        let request = self.client.get_item().table_name(self.name(table)).set_key(Some(to_key(table, key)));
        let request = request.consistent_read(true).return_consumed_capacity(ReturnConsumedCapacity::Total);
        let output = request.send().await.map_err(|error| classify("GetItem", error))?;
        self.retry.counters.charge(Counter::ReadUnits, output.consumed_capacity());
        output.item.map(from_item).transpose().map_err(Failure::Final)
    }

    /// A page of a query that has been checked.
    ///
    /// Expired items are dropped here rather than by a filter expression, which may not name an attribute that is
    /// a key of the index and would cost as much.
    pub(crate) async fn page(&self, table: &Table, index: Option<&Index>, query: &Query) -> Result<Page, Error> {
        if index.is_none() && is_past(table, query) {
            return Ok(Page { items: Vec::new(), next: None });
        }
        let now = self.now();
        let mut page = Page { items: Vec::new(), next: query.after.clone() };
        let mut limit = query.limit;
        let mut bytes = 0;
        for _ in 0..REQUESTS {
            let output = {
                let after = page.next.as_ref();
                self.retry.run(|| Box::pin(self.query_once(table, index, query, limit, after))).await?
            };
            page.next = output.last_evaluated_key.map(from_item).transpose()?;
            let mut some_expired = false;
            for item in output.items.unwrap_or_default() {
                let item = from_item(item)?;
                if table.is_expired(&item, now) {
                    some_expired = true;
                    continue;
                }
                if page.items.len() == query.limit || bytes >= limits::PAGE_BYTES {
                    // More came than the page holds: it ends before this item.
                    page.next = page.items.last().map(|last| cursor_of(table, index, last));
                    return Ok(page);
                }
                bytes += item.size();
                page.items.push(item);
            }
            // Without expired ones, a short page is one that DynamoDB ended at its size.
            if page.next.is_none() || page.items.len() == query.limit || !some_expired {
                return Ok(page);
            }
            limit = NEXT_LIMIT.max(query.limit - page.items.len());
        }
        Ok(page)
    }

    async fn query_once(
        &self,
        table: &Table,
        index: Option<&Index>,
        query: &Query,
        limit: usize,
        after: Option<&Item>,
    ) -> Result<QueryOutput, Failure> {
        self.retry.counters.add(Counter::Queries, 1);
        let mut with = Placeholders::default();
        let condition = key_condition(table, index, query, &mut with);
        let (names, values) = with.into_maps();
        let request = self
            .client
            .query()
            .table_name(self.name(table))
            .set_index_name(index.map(|index| index.name.clone()))
            .key_condition_expression(condition)
            .set_expression_attribute_names(names)
            .set_expression_attribute_values(values)
            .scan_index_forward(!query.descending)
            .limit(i32::try_from(limit).unwrap_or(i32::MAX))
            .set_exclusive_start_key(after.map(|after| to_item(&cursor_of(table, index, after))))
            .consistent_read(index.is_none_or(|index| index.local))
            .return_consumed_capacity(ReturnConsumedCapacity::Total);
        let output = request.send().await.map_err(|error| classify("Query", error))?;
        self.retry.counters.charge(Counter::ReadUnits, output.consumed_capacity());
        Ok(output)
    }
}

/// Whether the page before ended on the very bound of the range, so that nothing can follow. DynamoDB refuses to go on
/// from there instead of saying so.
fn is_past(table: &Table, query: &Query) -> bool {
    let Some(sort) = query.after.as_ref().and_then(|after| table.key_of(after).ok()?.sort) else { return false };
    match &query.range {
        Range::Equal(_) => true,
        Range::Between(_, last) | Range::AtMost(last) if !query.descending => sort == *last,
        Range::Between(last, _) | Range::AtLeast(last) if query.descending => sort == *last,
        _ => false,
    }
}
