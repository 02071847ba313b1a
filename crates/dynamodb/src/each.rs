//! Transactions handed in together: at once where they have no item in common, one after another where they do.

use std::collections::{BTreeSet, HashMap};

use futures_util::stream::{self, StreamExt};
use tidings_store::{Error, Key, Store, Write};

use crate::Dynamo;

/// Requests on their way at the same time. DynamoDB takes as many as there are; the connections are ours.
const AT_ONCE: usize = 16;

pub async fn transact_each(store: &Dynamo, transactions: Vec<Vec<Write>>) -> Vec<Result<(), Error>> {
    let chains = chains(&transactions);
    let mut waiting: Vec<_> = transactions.into_iter().map(Some).collect();
    let mut take = |number: usize| Some((number, waiting.get_mut(number)?.take()?));
    let chains: Vec<Vec<_>> =
        chains.into_iter().map(|chain| chain.into_iter().filter_map(&mut take).collect()).collect();
    let answers = stream::iter(chains).map(|chain| async move {
        let mut answers = Vec::with_capacity(chain.len());
        for (number, writes) in chain {
            answers.push((number, store.transact(writes).await));
        }
        answers
    });
    let answers: Vec<_> = answers.buffer_unordered(AT_ONCE).collect().await;
    let mut answers: Vec<_> = answers.into_iter().flatten().collect();
    answers.sort_by_key(|(number, _)| *number);
    answers.into_iter().map(|(_, answer)| answer).collect()
}

/// The numbers of the transactions: those that have items in common, if only by way of others, together and in order.
fn chains(transactions: &[Vec<Write>]) -> Vec<BTreeSet<usize>> {
    let mut chains: HashMap<usize, BTreeSet<usize>> = HashMap::new();
    let mut chain_of: HashMap<(&str, Key), usize> = HashMap::new();
    for (number, writes) in transactions.iter().enumerate() {
        // One without a proper key will be refused, and touches nothing.
        let items = || writes.iter().filter_map(|write| Some((write.table().name(), write.key().ok()?)));
        let met: BTreeSet<usize> = items().filter_map(|item| chain_of.get(&item).copied()).collect();
        let mut chain: BTreeSet<_> = met.iter().filter_map(|met| chains.remove(met)).flatten().collect();
        chain.insert(number);
        chains.insert(number, chain);
        chain_of.values_mut().filter(|of| met.contains(of)).for_each(|of| *of = number);
        chain_of.extend(items().map(|item| (item, number)));
    }
    chains.into_values().collect()
}

#[cfg(test)]
mod tests {
    use tidings_store::{KeyKind, Table};

    use super::*;

    #[test]
    fn transactions_with_items_in_common_stay_in_order() {
        let (table, other) = (Table::new("t", "id", KeyKind::S), Table::new("o", "id", KeyKind::S));
        let touch = |ids: &[&str]| ids.iter().map(|id| Write::delete(&table, Key::new(*id))).collect::<Vec<_>>();
        let elsewhere = vec![Write::delete(&other, Key::new("a"))];
        let all = [touch(&["a"]), touch(&["b"]), touch(&["c"]), touch(&["a", "b"]), elsewhere, touch(&["b", "d"])];
        let mut found = chains(&all);
        found.sort();
        assert_eq!(found, [BTreeSet::from([0, 1, 3, 5]), BTreeSet::from([2]), BTreeSet::from([4])]);
        assert_eq!(chains(&[]), Vec::<BTreeSet<usize>>::new());
        assert_eq!(chains(&[Vec::new(), Vec::new()]).len(), 2);
    }
}
