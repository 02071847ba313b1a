//! Which new items of one call become a sheaf: those that follow each other, go into the same table and start alike.
//!
//! In an index that sorts as the table does, what leads to them mostly starts alike, too: the events of a batch have one
//! source. One entry then leads to the sheaf, and none is made for an item. Only where they turn out to differ, or too few
//! belong together, entries are made after all.

use fjall::Slice;

use super::keys::Parts;
use super::plan::{self, Action, Plan, Step, Stored, list_bytes, same_sort};
use super::scratch::Scratch;
use super::sheaf::{BYTES, LEAST, MOST, Place, Sheaf, packed};
use super::tables::{Opened, Tables};
use crate::codec::{Encoded, put_bytes};
use crate::item::Item;

/// Runs of items that may become sheaves, as they come.
pub struct Runs {
    all: Vec<Run>,
    /// Whether there may be enough of them.
    is_wanted: bool,
    /// Where what leads to an item is put together.
    start: Vec<u8>,
}

struct Run {
    table: usize,
    shared: Vec<u8>,
    /// How each index leads to its items.
    led: Vec<Led>,
    count: usize,
    bytes: usize,
}

/// How an index leads to the items of a run.
enum Led {
    /// By entries that start like this up to the sort key; or not at all.
    Alike(Option<Vec<u8>>),
    /// To each in its own way.
    Apart,
}

/// That an item is in a run.
#[derive(Debug, Clone, Copy)]
pub struct Member {
    run: usize,
    /// The indexes for which it has no entry yet, a bit for each.
    left_out: u64,
}

impl Member {
    /// Whether an entry is to be made for the index at this place.
    pub const fn wants(self, index: usize) -> bool {
        !has(self.left_out, index)
    }
}

const fn has(bits: u64, place: usize) -> bool {
    place < 64 && bits >> place & 1 == 1
}

impl Runs {
    /// For a call of so many transactions.
    pub fn of(transactions: usize) -> Self {
        Self { all: Vec::new(), is_wanted: transactions >= LEAST, start: Vec::new() }
    }

    /// Takes note of a new item, which must be one that expires.
    pub fn meet(&mut self, opened: &Opened, table: usize, item_key: &[u8], item: &Item) -> Option<Member> {
        let shared = if self.is_wanted { opened.sheaf_start_of(item_key) } else { None }?;
        let number = self.all.len();
        if let Some(run) = self.all.last_mut().filter(|run| run.goes_on(table, shared)) {
            let left_out = run.add(opened, item, &mut self.start);
            return Some(Member { run: number - 1, left_out });
        }
        let led = indexes(opened).map(|(id, name)| match name {
            Some(name) => {
                let mut start = Vec::new();
                Led::Alike(put_start(&mut start, id, item, name).map(|()| start))
            }
            None => Led::Apart,
        });
        self.all.push(Run { table, shared: shared.to_vec(), led: led.collect(), count: 1, bytes: 0 });
        // The first has its entries: it may stay the only one.
        Some(Member { run: number, left_out: 0 })
    }

    /// Takes note of the bytes of the item that was met last.
    pub fn grow(&mut self, member: Member, bytes: usize) {
        if let Some(run) = self.all.get_mut(member.run) {
            run.bytes += bytes;
        }
    }

    /// Makes sheaves of what the plans of one call put, where enough belongs together.
    pub fn bind(&self, tables: &Tables, plans: &mut [Plan]) -> Vec<Sheaf> {
        let mut sheaves = Vec::new();
        if self.all.is_empty() {
            return sheaves;
        }
        let mut scratch = Scratch::take();
        let mut members: Vec<(&Slice, &mut Stored)> = Vec::new();
        let mut open = None;
        for Step { item_key, action, .. } in plans.iter_mut().flat_map(|plan| &mut plan.steps) {
            let Action::Put(stored) = action else { continue };
            let Some(member) = stored.member else { continue };
            if open != Some(member.run) {
                sheaves.extend(self.close(open, tables, &mut members, &mut scratch, sheaves.len()));
                open = Some(member.run);
            }
            members.push((item_key, stored));
        }
        sheaves.extend(self.close(open, tables, &mut members, &mut scratch, sheaves.len()));
        scratch.keep();
        sheaves
    }

    /// What becomes of a run: a sheaf, or as many entries as if there were none.
    fn close(
        &self,
        run: Option<usize>,
        tables: &Tables,
        members: &mut Vec<(&Slice, &mut Stored)>,
        scratch: &mut Scratch,
        number: usize,
    ) -> Option<Sheaf> {
        let run = run.and_then(|run| self.all.get(run))?;
        let opened = tables.at(run.table).ok()?;
        let is_sheaf = members.len() >= LEAST;
        let alike = if is_sheaf { run.alike() } else { 0 };
        scratch.bytes.clear();
        for (place, (item_key, stored)) in members.iter_mut().enumerate() {
            let made = stored.member.map_or(u64::MAX, |member| !member.left_out);
            stored.make(opened, item_key, !made & !alike);
            stored.drop_entries(opened, made & alike);
            if is_sheaf {
                stored.sheaf = Some(Place { sheaf: number, item: place });
                put_bytes(&mut scratch.bytes, item_key.get(run.shared.len()..).unwrap_or_default());
                put_bytes(&mut scratch.bytes, &stored.bytes);
            }
        }
        let count = members.len();
        members.clear();
        is_sheaf.then(|| {
            let (shared, value) = (Slice::from(&*run.shared), packed(&scratch.bytes));
            Sheaf { table: run.table, shared, value, count, alike, lists: run.lists(opened).collect() }
        })
    }
}

impl Run {
    fn goes_on(&self, table: usize, shared: &[u8]) -> bool {
        self.table == table && self.shared == shared && self.count < MOST && self.bytes < BYTES
    }

    /// Adds an item; gives the indexes that lead to it as to those before it.
    fn add(&mut self, opened: &Opened, item: &Item, start: &mut Vec<u8>) -> u64 {
        self.count += 1;
        let mut alike = 0;
        for (place, (led, (id, name))) in self.led.iter_mut().zip(indexes(opened)).enumerate() {
            let (Led::Alike(known), Some(name)) = (&*led, name) else { continue };
            start.clear();
            let found = put_start(start, id, item, name).map(|()| &**start);
            if place < 64 && found == known.as_deref() {
                alike |= 1 << place;
            } else {
                *led = Led::Apart;
            }
        }
        alike
    }

    /// The indexes that lead to all its items alike.
    fn alike(&self) -> u64 {
        let alike = self.led.iter().enumerate().filter(|(_, led)| matches!(led, Led::Alike(_)));
        alike.fold(0, |bits, (place, _)| if place < 64 { bits | 1 << place } else { bits })
    }

    /// What the entries of these start with, up to where the sort keys differ.
    fn lists(&self, opened: &Opened) -> impl Iterator<Item = Slice> {
        let sort = opened.sheaf_start().and_then(|(_, bytes)| self.shared.get(self.shared.len().checked_sub(bytes)?..));
        let sort = sort.unwrap_or_default();
        let starts = self.led.iter().filter_map(|led| if let Led::Alike(start) = led { start.as_ref() } else { None });
        starts.map(move |start| [start, sort].concat().into())
    }
}

/// The indexes of a table: the id, and the attribute that tells who is in it if it sorts as the table does and has lists.
fn indexes(opened: &Opened) -> impl Iterator<Item = (u16, Option<&str>)> {
    let Opened { table, ids, .. } = opened;
    table.indexes().iter().zip(&ids.indexes).map(|(index, id)| {
        let may_be_alike = same_sort(table, index) && list_bytes(table, index).is_some();
        (*id, may_be_alike.then_some(&*index.partition.0))
    })
}

/// Appends what an entry starts with that leads to an item.
fn put_start(out: &mut Vec<u8>, id: u16, item: &Item, name: &str) -> Option<()> {
    out.extend(id.to_be_bytes());
    item.put_part(out, name)
}

impl Stored {
    /// Makes the entries of these indexes.
    fn make(&mut self, opened: &Opened, item_key: &[u8], indexes: u64) {
        if indexes == 0 {
            return;
        }
        let made = Encoded::read(&self.bytes).and_then(|item| plan::entries_of(opened, item_key, &item, indexes));
        self.entries.extend(made.expect("what was just encoded can be read"));
    }

    /// Drops the entries of these indexes.
    fn drop_entries(&mut self, opened: &Opened, indexes: u64) {
        if indexes != 0 {
            self.entries.retain(|entry| !leads_by(opened, &entry.key, indexes));
        }
    }
}

/// Whether an entry is one of these indexes.
fn leads_by(opened: &Opened, entry: &[u8], indexes: u64) -> bool {
    let id = entry.first_chunk().map(|id| u16::from_be_bytes(*id));
    opened.ids.indexes.iter().enumerate().any(|(place, known)| has(indexes, place) && Some(*known) == id)
}

/// The value of a list that stands for a sheaf: no entry is as long as this says its first one is.
const SHEAF: [u8; 2] = [0xFF, 0xFF];

/// The value of a list whose entries lead to the items of a sheaf.
pub fn list_of_sheaf(sheaf_key: &[u8]) -> Slice {
    [&SHEAF, sheaf_key].concat().into()
}

/// The sheaf that a list stands for, if it stands for one.
pub fn sheaf_of_list(list: &[u8]) -> Option<&[u8]> {
    list.strip_prefix(&SHEAF)
}

/// The rest of an entry that leads to an item of a sheaf, given the rest of its key.
pub fn entry_rest(shared: &[u8], bytes: usize, rest: &[u8]) -> Option<Vec<u8>> {
    let partition = shared.get(2..shared.len().checked_sub(bytes)?)?;
    Some([rest, partition].concat())
}
