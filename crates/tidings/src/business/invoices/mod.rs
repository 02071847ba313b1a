//! Invoices: a file comes in, is kept by its content, and is read by Tesseract (EVT_001).
//!
//! `http` receives, `files` keeps, `sniff` says what a file is, `ocr` reads it, `fields` (with `dates` and `amounts`)
//! understands it. The upload, its record and the command on `ocr-processing-queue` are one transaction; `ProcessInvoice`
//! (`Invoices::process`) does the work, once whatever is delivered twice: what is processed stays as it is.

mod amounts;
mod dates;
pub mod fetch;
pub mod fields;
pub mod files;
pub mod http;
pub mod ocr;
pub mod share;
pub mod sniff;

use std::path::PathBuf;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tidings_core::envelope::Envelope;
use tidings_core::time::{self, Clock, Timestamp};
use tidings_store::{Condition, Error, Item, Key, KeyKind, Store, Table, Write};
use uuid::Uuid;

use self::fetch::Fetcher;
use self::fields::Fields;
use self::files::{Files, Kept};
use self::ocr::{Failure, Reader};
use self::sniff::FileType;
use super::event::{self, Kind, OWN_FILE};
use super::origin::{Origin, Told, tell};
use crate::config::Config;
use crate::http::Problem;
use crate::ingest::Ingest;

/// The source of their events.
pub const SOURCE: &str = "tidings/invoices";
/// Bytes of text that an invoice keeps; an item has 400 KB.
const TEXT_BYTES: usize = 256 * 1024;
const TRIES: usize = 10;

#[must_use]
pub fn table() -> &'static Table {
    static TABLE: LazyLock<Table> = LazyLock::new(|| {
        Table::new("tidings-invoices", "invoiceId", KeyKind::S).index(
            "product-index",
            ("userProductId".into(), KeyKind::S),
            Some(("createdAt".into(), KeyKind::S)),
        )
    });
    &TABLE
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    Uploaded,
    Processing,
    Processed,
    Failed,
}

impl Status {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Uploaded => "uploaded",
            Self::Processing => "processing",
            Self::Processed => "processed",
            Self::Failed => "failed",
        }
    }
}

/// An invoice, as it is stored and shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Invoice {
    pub invoice_id: String,
    pub user_product_id: String,
    pub status: Status,
    /// By https, or in our own store.
    pub file_url: String,
    /// What the file is by its content, once it was looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// What Tesseract read.
    #[serde(default)]
    pub text: Option<String>,
    /// What was recognised in it.
    #[serde(default)]
    pub fields: Fields,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pages: Option<u64>,
    /// Why it failed, or why the last attempt did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    pub created_at: String,
    pub updated_at: String,
    pub correlation_id: String,
    /// Counts the changes.
    pub revision: i64,
}

/// What came of an attempt to read an invoice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Processed {
    Done,
    /// It may go better another time.
    Retry(String),
    /// It will not.
    Failed(String),
}

/// The invoices of this installation.
pub struct Invoices {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    ingest: Arc<Ingest>,
    pub files: Files,
    /// Other nodes need them, too.
    is_shared: bool,
    reader: Reader,
    fetcher: Result<Fetcher, String>,
}

impl Invoices {
    #[must_use]
    pub fn new(ingest: &Arc<Ingest>, config: &Config) -> Self {
        let files = Files::new(&config.data_dir);
        files.clean();
        Self {
            store: Arc::clone(&ingest.store),
            clock: Arc::clone(&ingest.clock),
            ingest: Arc::clone(ingest),
            files,
            is_shared: config.store.engine == crate::config::store::Engine::DynamoDb,
            reader: Reader::new(&config.invoices),
            fetcher: Fetcher::new(config),
        }
    }

    /// Lets other nodes have a file that was received here.
    pub async fn share(&self, file: &Kept) -> Result<(), Error> {
        match self.files.path(&file.hash).filter(|_| self.is_shared) {
            Some(path) => share::put(&*self.store, &path, &file.hash).await,
            None => Ok(()),
        }
    }

    pub async fn get(&self, id: &str) -> Result<Option<Invoice>, Error> {
        self.store.get(table(), &Key::new(id)).await?.map(|item| item.to_record()).transpose()
    }

    /// An invoice of a file that is on disk. The ids make it the same one if the call comes again.
    pub async fn create(
        &self,
        user_product_id: String,
        (file, file_type): (Kept, FileType),
        origin: Origin<'_>,
        (id, event_id): (Uuid, Uuid),
    ) -> Result<Invoice, Problem> {
        let now = self.clock.now();
        let mut invoice = uploaded(&id.to_string(), &user_product_id, &file.url(), origin.correlation_id, now);
        invoice.content_type = Some(file_type.media_type().to_owned());
        invoice.size = Some(file.bytes);
        let told = Told {
            event_type: Kind::InvoiceUploaded.event_type(),
            event_id,
            source: SOURCE,
            subject: format!("invoice/{id}"),
            at: now,
            data: json!({ "invoiceId": id.to_string(), "userProductId": user_product_id, "fileUrl": invoice.file_url }),
        };
        let writes = vec![Write::insert(table(), Item::from_record(&invoice)?)];
        match tell(&self.ingest, told, origin, writes).await?.status {
            "accepted" => Ok(invoice),
            _ => self.get(&invoice.invoice_id).await?.ok_or_else(not_found),
        }
    }

    /// `ProcessInvoice`: reads the invoice of a command. One that is processed stays as it is (S003-111). `is_last`: there
    /// will be no other attempt by itself.
    pub async fn process(&self, envelope: &Envelope, is_last: bool, limit: Duration) -> Result<Processed, Error> {
        let Some(invoice) = self.take_up(envelope).await? else { return Ok(Processed::Done) };
        let origin = Origin::following("handler:ProcessInvoice", envelope);
        let read = match self.file(&invoice, limit).await {
            Ok(file) => self.reader.read(&file.path(), limit).await,
            Err(failure) => Err(failure),
        };
        match read {
            Ok(read) => {
                let after = Invoice {
                    status: Status::Processed,
                    fields: fields::recognise(&read.text),
                    text: Some(crate::channel::byte_prefix(&read.text, TEXT_BYTES).to_owned()),
                    pages: Some(read.pages as u64),
                    error: None,
                    ..invoice
                };
                self.end(after, "invoice.processed", origin, envelope).await?;
                Ok(Processed::Done)
            }
            Err(Failure::File(why)) => {
                let after = Invoice { status: Status::Failed, error: Some(why.clone()), ..invoice };
                self.end(after, "invoice.failed", origin, envelope).await?;
                Ok(Processed::Failed(why))
            }
            Err(Failure::Here(why)) if is_last => {
                let after = Invoice { status: Status::Failed, error: Some(why.clone()), ..invoice };
                self.end(after, "invoice.failed", origin, envelope).await?;
                Ok(Processed::Retry(why))
            }
            Err(Failure::Here(why)) => {
                // It shows what is wrong, and is not at its end.
                self.put(&Invoice { error: Some(why.clone()), ..invoice }).await?;
                Ok(Processed::Retry(why))
            }
        }
    }

    /// Nobody will read the invoice of a command any more: it has failed, unless its end is known already. An attempt
    /// that ended with its process could not say so (S003-12, S003-13).
    pub async fn give_up(&self, envelope: &Envelope, why: &str) -> Result<(), Error> {
        let id = event::guid_of(&envelope.data, "invoiceId").unwrap_or_default();
        let Some(invoice) = self.get(&id).await? else { return Ok(()) };
        if matches!(invoice.status, Status::Processed | Status::Failed) {
            return Ok(());
        }
        let error = Some(invoice.error.clone().unwrap_or_else(|| why.to_owned()));
        let after = Invoice { status: Status::Failed, error, ..invoice };
        self.end(after, "invoice.failed", Origin::following("handler:ProcessInvoice", envelope), envelope).await
    }

    /// The invoice in our hands; `None` if it is processed already. One that came by an event alone is made here.
    async fn take_up(&self, envelope: &Envelope) -> Result<Option<Invoice>, Error> {
        let guid = |name: &str| event::guid_of(&envelope.data, name).unwrap_or_default();
        let id = guid("invoiceId");
        for _ in 0..TRIES {
            let known = self.get(&id).await?;
            if known.as_ref().is_some_and(|invoice| invoice.status == Status::Processed) {
                return Ok(None);
            }
            let is_new = known.is_none();
            let (product, url) = (guid("userProductId"), event::text_of(&envelope.data, "fileUrl").unwrap_or_default());
            let before =
                known.unwrap_or_else(|| uploaded(&id, &product, &url, &envelope.correlation_id, self.clock.now()));
            let mut after = Invoice { status: Status::Processing, ..before };
            let condition =
                if is_new { Condition::NotExists } else { Condition::Equals("revision".into(), after.revision.into()) };
            self.touch(&mut after);
            let write = Write::put(table(), Item::from_record(&after)?).when(condition);
            match self.store.transact(vec![write]).await {
                Ok(()) => return Ok(Some(after)),
                Err(Error::Conflict { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Err(Error::Throttled("the invoice is contended".to_owned()))
    }

    fn touch(&self, invoice: &mut Invoice) {
        invoice.updated_at = time::iso_micros(self.clock.now()).max(std::mem::take(&mut invoice.updated_at));
        invoice.revision += 1;
    }

    async fn put(&self, invoice: &Invoice) -> Result<(), Error> {
        let mut after = invoice.clone();
        self.touch(&mut after);
        let unchanged = Condition::Equals("revision".into(), invoice.revision.into());
        match self.store.transact(vec![Write::put(table(), Item::from_record(&after)?).when(unchanged)]).await {
            // Somebody else is at it; theirs is the newer word.
            Ok(()) | Err(Error::Conflict { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The end of an invoice, with its event.
    async fn end(
        &self,
        mut after: Invoice,
        event_type: &str,
        origin: Origin<'_>,
        envelope: &Envelope,
    ) -> Result<(), Error> {
        let unchanged = Condition::Equals("revision".into(), after.revision.into());
        self.touch(&mut after);
        let name = format!("{event_type}\n{}\n{}\n{}", envelope.event_id, after.invoice_id, after.revision);
        let told = Told {
            event_type,
            event_id: Uuid::new_v5(&Uuid::NAMESPACE_OID, name.as_bytes()),
            source: SOURCE,
            subject: format!("invoice/{}", after.invoice_id),
            at: self.clock.now(),
            data: json!({
                "invoiceId": after.invoice_id, "userProductId": after.user_product_id, "status": after.status.as_str(),
                "fields": after.fields, "error": after.error,
            }),
        };
        let write = Write::put(table(), Item::from_record(&after)?).when(unchanged);
        match tell(&self.ingest, told, origin, vec![write]).await {
            Ok(_) | Err(Error::Conflict { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The file of an invoice: ours, or fetched by https within the limit.
    async fn file(&self, invoice: &Invoice, limit: Duration) -> Result<File, Failure> {
        if let Some(hash) = invoice.file_url.strip_prefix(OWN_FILE) {
            let mut path = self.files.path(hash).filter(|path| path.exists());
            if path.is_none() && self.is_shared {
                let fetched = share::fetch(&*self.store, &self.files, hash).await;
                path = fetched.map_err(|error| Failure::Here(error.to_string()))?;
            }
            return path.map(File::Ours).ok_or_else(|| Failure::File("there is no such file in the store".to_owned()));
        }
        match &self.fetcher {
            Ok(fetcher) => fetcher.fetch(&invoice.file_url, limit).await.map(File::Fetched),
            Err(why) => Err(Failure::Here(why.clone())),
        }
    }
}

/// A file to read; one that was fetched goes with this value.
enum File {
    Ours(PathBuf),
    Fetched(tempfile::TempPath),
}

impl File {
    fn path(&self) -> PathBuf {
        match self {
            Self::Ours(path) => path.clone(),
            Self::Fetched(path) => path.to_path_buf(),
        }
    }
}

fn uploaded(id: &str, user_product_id: &str, file_url: &str, correlation_id: &str, now: Timestamp) -> Invoice {
    Invoice {
        invoice_id: id.to_owned(),
        user_product_id: user_product_id.to_owned(),
        status: Status::Uploaded,
        file_url: file_url.to_owned(),
        content_type: None,
        size: None,
        text: None,
        fields: Fields::default(),
        pages: None,
        error: None,
        created_at: time::iso_micros(now),
        updated_at: time::iso_micros(now),
        correlation_id: correlation_id.to_owned(),
        revision: 1,
    }
}

fn not_found() -> Problem {
    Problem::not_found("there is no invoice of this id")
}
