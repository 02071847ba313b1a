//! The inbox: what each user has been told, and who is told of what (seed 001). `record` and `counter` are what is
//! stored, `page` and `view` how it is read, `mark` how it is changed, `order` what keeps the newest first, `live` who hears of new entries at once; `map` says
//! whose inbox a product's news go to, `import` fills it, and `sync` keeps it in line with a file.

pub mod counter;
pub mod http;
pub mod import;
pub mod live;
pub mod map;
mod map_http;
pub mod mark;
pub mod order;
pub mod page;
pub mod record;
mod stream;
pub mod sync;
pub mod view;

use std::sync::Arc;

use quick_cache::Weighter;
use quick_cache::sync::Cache;
use tidings_core::ids::IdSource;
use tidings_core::time::Clock;
use tidings_store::{Error, Item, Store};

pub use counter::Count;
pub use live::Live;
pub use page::Filter;
pub use record::{Entry, Kind, Status};

/// Bytes of pages kept in memory, about.
const CACHE_BYTES: u64 = 32 * 1024 * 1024;
/// Looks at a merged page while its user's entries change, before it is given as it is.
const LOOKS: usize = 3;
const DAY_SECONDS: i64 = 86_400;

/// Everybody's inbox.
pub struct Inbox {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn IdSource>,
    pub live: Arc<Live>,
    pages: Cache<Place, Arc<Rendered>, Bytes>,
}

/// Which page of which list.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Place {
    pub filter: Filter,
    pub limit: usize,
    /// The time of the entry that the page comes after.
    pub after: Option<String>,
}

/// A page as it goes out.
#[derive(Debug)]
pub struct Rendered {
    /// The entries as a JSON array.
    pub items: Vec<u8>,
    /// The place of the last entry, if more follow.
    pub next: Option<String>,
    /// The state of the inbox it was read at: nothing about it changes without one of these.
    revision: i64,
    day: i64,
}

#[derive(Clone)]
struct Bytes;

impl Weighter<Place, Arc<Rendered>> for Bytes {
    fn weight(&self, place: &Place, page: &Arc<Rendered>) -> u64 {
        (page.items.len() + place.filter.user.len() + 256) as u64
    }
}

impl Inbox {
    pub fn new(store: Arc<dyn Store>, clock: Arc<dyn Clock>, ids: Arc<dyn IdSource>, live: Arc<Live>) -> Self {
        let pages = Cache::with_weighter(10_000, CACHE_BYTES, Bytes);
        Self { store, clock, ids, live, pages }
    }

    /// How many entries of a user are unread: one look, whatever the inbox holds.
    pub async fn count(&self, user: &str) -> Result<Count, Error> {
        let counter = self.store.get(record::table(), &counter::key(user)).await?;
        mark::settled_count(&*self.store, counter.as_ref(), self.clock.now()).await
    }

    /// One page and the count of the unread. What was rendered before is used again while the user's revision is the
    /// same; entries expire at the turn of a day only.
    pub async fn page(&self, place: Place) -> Result<(Arc<Rendered>, Count), Error> {
        let day = self.clock.now().as_second().div_euclid(DAY_SECONDS);
        let count = self.count(&place.filter.user).await?;
        if let Some(known) = self.pages.get(&place)
            && (known.revision, known.day) == (count.revision, day)
        {
            return Ok((known, count));
        }
        let mut count = count;
        let mut looks = 0;
        let entries = loop {
            // Read after the revision: what comes in between makes the page newer than it says, never older.
            let entries = page::read(&*self.store, &place.filter, place.limit, place.after.as_deref()).await?;
            looks += 1;
            if !place.filter.is_merged() || looks == LOOKS {
                break entries;
            }
            let again = self.count(&place.filter.user).await?;
            if again.revision == count.revision {
                break entries;
            }
            count = again;
        };
        let rendered = Arc::new(render(&place.filter, &entries, count.revision, day));
        self.pages.insert(place, Arc::clone(&rendered));
        Ok((rendered, count))
    }

    /// One entry as it is stored. What can be no entry's time is no key either, and not found.
    pub async fn entry(&self, user: &str, time: &str) -> Result<Option<Item>, Error> {
        // Others that write to the table name entries by plain numbers, as the seed does.
        let is_number = (1..=20).contains(&time.len()) && time.bytes().all(|byte| byte.is_ascii_digit());
        if !is_number && !live::is_time(time) {
            return Ok(None);
        }
        self.store.get(record::table(), &record::key(user, time)).await
    }
}

fn render(filter: &Filter, entries: &page::Entries, revision: i64, day: i64) -> Rendered {
    let mut items = Vec::with_capacity(512 * entries.items.len() + 2);
    items.push(b'[');
    for (place, item) in entries.items.iter().enumerate() {
        if place > 0 {
            items.push(b',');
        }
        view::write(&mut items, item);
    }
    items.push(b']');
    let last = entries.items.last().filter(|_| entries.more);
    Rendered { items, next: last.and_then(|last| filter.place_of(last)).map(ToOwned::to_owned), revision, day }
}
