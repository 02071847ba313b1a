//! The notification map from a CSV file: read as it comes in, stored a batch at a time, every bad line named.
//!
//! A line has a product, a support group and users: `checkout,payments,u1;u2;u3`. The first line of a pair replaces what
//! the map had for it; further lines of the pair add to it, so a file with one user on each line works as well. A first
//! line may name the columns, in any order.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use axum::body::Body;
use csv_core::{ReadRecordResult, Reader, ReaderBuilder};
use futures_util::StreamExt;
use schemars::JsonSchema;
use serde::Serialize;
use tidings_core::envelope::FieldError;
use tidings_store::Write;

use super::map;
use super::record::table;
use crate::app::Services;
use crate::audit::Action;
use crate::http::Problem;
use crate::rules::notice::is_user;

/// Entries stored together, beside the audit log's own writes.
const BATCH: usize = 50;
/// Bytes of users stored together: a transaction has 4 MB.
const BATCH_BYTES: usize = 2_000_000;
/// Bytes of one line.
const LINE_BYTES: usize = 1024 * 1024;
/// Columns of one line.
pub(super) const COLUMNS: usize = 20_000;
/// Bad lines after which the rest of the file is not looked at.
const BAD_LINES: usize = 10_000;

/// What became of a file.
#[derive(Debug, Default, Serialize, JsonSchema)]
pub struct Summary {
    /// Lines looked at, without a header.
    pub lines: u64,
    /// Entries of the map that the file has set.
    pub imported: u64,
    /// Lines that were not taken over.
    pub rejected: u64,
    pub errors: Vec<BadLine>,
    /// Whether there were so many bad lines that the rest was not looked at.
    pub stopped: bool,
}

#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct BadLine {
    pub line: u64,
    pub message: String,
}

/// A product and a support group.
pub type Pair = (String, String);

/// An import under way.
pub struct Import<'a> {
    services: &'a Services,
    author: String,
    correlation_id: String,
    summary: Summary,
    /// Known from the first line on.
    columns: Option<Columns>,
    /// Read and not stored yet.
    batch: BTreeMap<Pair, BTreeSet<String>>,
    batch_bytes: usize,
    /// Pairs that the file has set.
    done: HashSet<Pair>,
}

impl<'a> Import<'a> {
    #[must_use]
    pub fn new(services: &'a Services, author: String, correlation_id: String) -> Self {
        Self {
            services,
            author,
            correlation_id,
            summary: Summary::default(),
            columns: None,
            batch: BTreeMap::new(),
            batch_bytes: 0,
            done: HashSet::new(),
        }
    }

    /// Takes one line's cells.
    async fn line(&mut self, number: u64, cells: &[&[u8]]) -> Result<(), Problem> {
        let columns = match self.columns {
            Some(columns) => columns,
            None => match Columns::named(cells) {
                Ok(named) => {
                    let columns = *self.columns.insert(named.unwrap_or_default());
                    if named.is_some() {
                        return Ok(());
                    }
                    columns
                }
                Err(message) => {
                    // Which column is which is not known of any line.
                    self.bad(number, message);
                    self.summary.stopped = true;
                    return Ok(());
                }
            },
        };
        self.summary.lines += 1;
        match read_cells(cells, columns) {
            Ok((pair, users)) => self.take(number, pair, users).await,
            Err(message) => {
                self.bad(number, message);
                Ok(())
            }
        }
    }

    async fn take(&mut self, number: u64, pair: Pair, users: BTreeSet<String>) -> Result<(), Problem> {
        if !self.batch.contains_key(&pair) {
            let known = match self.done.contains(&pair) {
                true => self.services.store.get(table(), &map::key(&pair.0, &pair.1)).await?,
                false => None,
            };
            let known: BTreeSet<String> = known.iter().flat_map(map::users_of).collect();
            self.batch.insert(pair.clone(), known);
        }
        let Some(together) = self.batch.get_mut(&pair) else { return Ok(()) };
        let (before, bytes) = (together.len(), users.iter().map(String::len).sum::<usize>());
        let mut all = std::mem::take(together);
        all.extend(users.iter().cloned());
        if let Err(message) = map::check_sizes(&pair.0, &pair.1, &all) {
            // The lines before it stand.
            all.retain(|user| !users.contains(user));
            *together = all;
            if before == 0 {
                self.batch.remove(&pair);
            }
            self.bad(number, message);
            return Ok(());
        }
        *together = all;
        self.batch_bytes += bytes;
        if self.batch.len() >= BATCH || self.batch_bytes >= BATCH_BYTES { self.store().await } else { Ok(()) }
    }

    fn bad(&mut self, line: u64, message: String) {
        self.summary.rejected += 1;
        self.summary.errors.push(BadLine { line, message });
        self.summary.stopped = self.summary.errors.len() >= BAD_LINES;
    }

    async fn store(&mut self) -> Result<(), Problem> {
        let batch = std::mem::take(&mut self.batch);
        self.batch_bytes = 0;
        if batch.is_empty() {
            return Ok(());
        }
        let mut writes = Vec::with_capacity(batch.len());
        for ((product, group), users) in &batch {
            let users: Vec<String> = users.iter().cloned().collect();
            writes.push(Write::put(table(), map::item(product, group, &users)));
        }
        let name = |pair: Option<&Pair>| pair.map(|(product, group)| format!("{product}#{group}")).unwrap_or_default();
        let (first, last) = (name(batch.keys().next()), name(batch.keys().next_back()));
        let details = serde_json::json!({ "entries": batch.len(), "first": first, "last": last });
        let action = Action::new("notification-map.import", "notification-map", first).details(details);
        self.services.audit.record_with(&self.author, &self.correlation_id, action, writes).await?;
        for pair in batch.into_keys() {
            self.summary.imported += u64::from(self.done.insert(pair));
        }
        Ok(())
    }
}

/// Reads the whole body. What was stored before a failure stays; importing the file again is safe.
pub async fn run(mut import: Import<'_>, body: Body, services: &Services) -> Result<Summary, Problem> {
    let most = services.config.limits.upload_bytes;
    let mut pieces = body.into_data_stream();
    let mut lines = Lines::default();
    let mut read = 0_u64;
    loop {
        let piece = match tokio::time::timeout(services.limits.timeout(), pieces.next()).await {
            Ok(Some(Ok(piece))) => piece,
            Ok(Some(Err(_))) => return Err(Problem::bad_request("the file ended too early, or cannot be unpacked")),
            Ok(None) => bytes::Bytes::new(),
            Err(_) => {
                let status = axum::http::StatusCode::REQUEST_TIMEOUT;
                return Err(Problem::new(status, "timeout", "the file stopped coming"));
            }
        };
        read += piece.len() as u64;
        if import.summary.stopped {
            // The rest is read all the same, within bounds: a client listens when it has sent everything.
            if piece.is_empty() || read > most {
                break;
            }
            continue;
        }
        if read > most {
            return Err(Problem::too_large(format!("the file is larger than {most} bytes; send it in parts")));
        }
        let is_end = piece.is_empty();
        lines.take(&piece, &mut import).await?;
        if is_end {
            break;
        }
    }
    import.store().await?;
    if read == 0 {
        return Err(Problem::invalid(vec![FieldError::new("", "the file is empty")]));
    }
    Ok(import.summary)
}

/// CSV cut into lines, piece by piece.
struct Lines {
    reader: Reader,
    /// The line being read: its bytes so far, and where its cells end.
    bytes: Vec<u8>,
    ends: Vec<usize>,
    filled: usize,
    cells: usize,
    /// Lines that have begun, and the one on which the present record begins, if it has begun.
    lines: u64,
    began: Option<u64>,
    too_long: bool,
}

impl Default for Lines {
    fn default() -> Self {
        Self {
            reader: ReaderBuilder::new().build(),
            bytes: vec![0; LINE_BYTES],
            ends: vec![0; COLUMNS],
            filled: 0,
            cells: 0,
            lines: 1,
            began: None,
            too_long: false,
        }
    }
}

impl Lines {
    /// Hands every line that ends in this piece to the import; an empty piece is the end.
    async fn take(&mut self, mut piece: &[u8], import: &mut Import<'_>) -> Result<(), Problem> {
        loop {
            let bytes = self.bytes.get_mut(self.filled..).unwrap_or_default();
            let ends = self.ends.get_mut(self.cells..).unwrap_or_default();
            let (result, taken, filled, cells) = self.reader.read_record(piece, bytes, ends);
            self.count(piece.get(..taken).unwrap_or_default());
            piece = piece.get(taken..).unwrap_or_default();
            self.filled += filled;
            self.cells += cells;
            match result {
                ReadRecordResult::InputEmpty => return Ok(()),
                ReadRecordResult::End => return Ok(()),
                ReadRecordResult::OutputFull | ReadRecordResult::OutputEndsFull => {
                    self.too_long = true;
                    (self.filled, self.cells) = (0, 0);
                }
                ReadRecordResult::Record => {
                    let number = self.began.take().unwrap_or(self.lines);
                    if std::mem::take(&mut self.too_long) {
                        import.summary.lines += 1;
                        import.bad(number, format!("is longer than {LINE_BYTES} bytes or {COLUMNS} columns"));
                    } else {
                        import.line(number, &self.line()).await?;
                    }
                    (self.filled, self.cells) = (0, 0);
                    if import.summary.stopped {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// Counts lines. A line end may still be to come when its record is given out, and empty lines are no records.
    fn count(&mut self, bytes: &[u8]) {
        for byte in bytes {
            if self.began.is_none() && !matches!(byte, b'\r' | b'\n') {
                self.began = Some(self.lines);
            }
            self.lines += u64::from(*byte == b'\n');
        }
    }

    fn line(&self) -> Vec<&[u8]> {
        let mut from = 0;
        let ends = self.ends.iter().take(self.cells);
        ends.map(|end| self.bytes.get(std::mem::replace(&mut from, *end)..*end).unwrap_or_default()).collect()
    }
}

/// Where a line has its product and its support group; all other cells are users.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Columns {
    product: usize,
    group: usize,
}

impl Default for Columns {
    fn default() -> Self {
        Self { product: 0, group: 1 }
    }
}

impl Columns {
    /// What a first line says of the columns, if it names them instead of having something in them; or what is wrong with
    /// what it says. One name may well be a product's or a user's, two are no accident.
    pub(super) fn named(cells: &[&[u8]]) -> Result<Option<Self>, String> {
        let names: Vec<String> = cells.iter().map(|cell| name_of(cell)).collect();
        let places = |known: &[&str]| -> Vec<usize> {
            (0..).zip(&names).filter(|(_, name)| known.contains(&name.as_str())).map(|(place, _)| place).collect()
        };
        let products = places(&["product", "productid"]);
        let groups = places(&["supportgroup", "supportgroupid", "group"]);
        let users = places(&["users", "user"]);
        if [&products, &groups, &users].iter().filter(|places| !places.is_empty()).count() < 2 {
            return Ok(None);
        }
        let ([product], [group]) = (products.as_slice(), groups.as_slice()) else {
            return Err("names the columns, and must name `product` and `supportGroup` once each".to_owned());
        };
        let unknown = |place: &usize| place != product && place != group && !users.contains(place);
        if !users.is_empty()
            && let Some(place) = (0..names.len()).find(unknown)
        {
            let name = cells.get(place).map(|cell| String::from_utf8_lossy(cell).chars().take(60).collect::<String>());
            let name = name.unwrap_or_default();
            return Err(format!("names the column `{name}`; there are `product`, `supportGroup` and `users`"));
        }
        Ok(Some(Self { product: *product, group: *group }))
    }
}

/// A column's name as it is compared: `Product ID`, `product_id` and `productId` are one.
fn name_of(cell: &[u8]) -> String {
    let text = String::from_utf8_lossy(cell);
    let letters = text.chars().filter(|c| !c.is_whitespace() && !matches!(c, '_' | '-' | '\u{feff}'));
    letters.flat_map(char::to_lowercase).collect()
}

/// The pair and the users of a line, or what is wrong with it.
pub(super) fn read_cells(cells: &[&[u8]], columns: Columns) -> Result<(Pair, BTreeSet<String>), String> {
    let mut texts = Vec::with_capacity(cells.len());
    for cell in cells {
        texts.push(std::str::from_utf8(cell).map_err(|_| "is not UTF-8".to_owned())?.trim());
    }
    let (Some(product), Some(group)) = (texts.get(columns.product), texts.get(columns.group)) else {
        return Err("must have a product, a support group and users".to_owned());
    };
    let rest = (0..).zip(&texts).filter(|(place, _)| *place != columns.product && *place != columns.group);
    // A byte order mark, as some programs put before the first line.
    let product = product.trim_start_matches('\u{feff}');
    map::check_name(product).map_err(|why| format!("the product {why}"))?;
    map::check_name(group).map_err(|why| format!("the support group {why}"))?;
    let mut users = BTreeSet::new();
    for user in rest.flat_map(|(_, cell)| cell.split(';')).map(str::trim).filter(|user| !user.is_empty()) {
        if !is_user(user) {
            return Err(format!("`{}` cannot be a user's id", user.chars().take(60).collect::<String>()));
        }
        users.insert(user.to_owned());
    }
    if users.is_empty() {
        return Err("names no users".to_owned());
    }
    Ok(((product.to_owned(), (*group).to_owned()), users))
}
