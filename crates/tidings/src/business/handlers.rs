//! The four handlers of seed 003, as the bus calls them: a message becomes an envelope, is judged as at the door, and
//! goes to the part that knows what to do. Each does its work once, whatever is delivered twice.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tidings_core::envelope::Envelope;
use tidings_core::time::Clock;
use tidings_store::Error;

use super::event::{self, Kind};
use super::invoices::{Invoices, Processed};
use super::message;
use super::service_requests::notify::Notifier;
use super::transfers::Transfers;
use crate::audit::persist::Persister;
use crate::bus::handler::{Consumer, Delivery, Handler, Verdict};
use crate::bus::message::Stored;
use crate::bus::pool::Pool;
use crate::bus::{Bus, Message, Path, declared};

/// Messages that the four handle at the same time, together.
const WORKERS: usize = 4;

/// Who does the work of each kind.
pub struct Handlers {
    pub clock: Arc<dyn Clock>,
    pub invoices: Arc<Invoices>,
    pub notifier: Notifier,
    pub transfers: Arc<Transfers>,
    pub persister: Persister,
}

/// One of them, as the bus knows it.
struct Named {
    kind: Kind,
    handlers: Arc<Handlers>,
    limit: Duration,
}

#[async_trait]
impl Handler for Named {
    fn name(&self) -> &'static str {
        self.kind.handler()
    }

    async fn handle(&self, delivery: &Delivery) -> Verdict {
        self.handlers.handle(self.kind, delivery, self.limit).await
    }

    async fn given_up(&self, message: &Stored, why: &str) -> Result<(), Error> {
        match (self.kind, self.handlers.read(self.kind, &message.message)) {
            (Kind::InvoiceUploaded, Ok(envelope)) => self.handlers.invoices.give_up(&envelope, why).await,
            _ => Ok(()),
        }
    }
}

/// Lets the four have their messages, with the seed's time limits (S003-14, S003-26, S003-39, S003-52), by workers that
/// they share: the seed's priorities say whose turn it is (S003-54).
pub fn register(bus: &Arc<Bus>, handlers: &Arc<Handlers>) {
    let pool = Pool::new(WORKERS);
    for (kind, path, concurrency) in [
        (Kind::InvoiceUploaded, Path::queue(declared::OCR_QUEUE), 1),
        (Kind::StatusChanged, Path::subscription(declared::DOMAIN_TOPIC, declared::NOTIFICATIONS), 4),
        (Kind::TransferExpired, Path::queue(declared::TRANSFER_QUEUE), 1),
        (Kind::ActionOccurred, Path::subscription(declared::SYSTEM_TOPIC, declared::AUDITING), 1),
    ] {
        let timeout = kind.timeout();
        // A little less than the bus allows, so that what is late can still say so.
        let named =
            Named { kind, handlers: Arc::clone(handlers), limit: timeout.saturating_sub(Duration::from_secs(5)) };
        let pool = Some((Arc::clone(&pool), kind.priority()));
        bus.register(path, Arc::new(named), Consumer { timeout, concurrency, pool, ..Consumer::default() });
    }
}

impl Handlers {
    /// Handles one message of that kind within `limit`.
    async fn handle(&self, kind: Kind, delivery: &Delivery, limit: Duration) -> Verdict {
        let envelope = match self.read(kind, &delivery.message.message) {
            Ok(envelope) => envelope,
            Err(why) => return Verdict::Permanent(why),
        };
        let done = match kind {
            Kind::InvoiceUploaded => return self.process(&envelope, delivery.last, limit).await,
            Kind::StatusChanged => self.notifier.notify(&envelope).await,
            Kind::TransferExpired => {
                let id = event::guid_of(&envelope.data, "transferRequestId").unwrap_or_default();
                self.transfers.expire(&id, &envelope).await
            }
            Kind::ActionOccurred => self.persister.persist(&envelope).await,
        };
        done.map_or_else(|error| failed(&error), |()| Verdict::Done(Vec::new()))
    }

    fn read(&self, kind: Kind, message: &Message) -> Result<Envelope, String> {
        let named = |errors: Vec<tidings_core::envelope::FieldError>| {
            let all: Vec<_> = errors.iter().map(|error| format!("{} {}", error.field, error.message)).collect();
            all.join("; ")
        };
        let envelope = message::read(kind, message, self.clock.now()).map_err(named)?;
        if event::kind_of(&envelope).is_none() {
            return Err(format!("version {} is not understood here; {} is", envelope.event_version, event::MAJOR));
        }
        let errors = event::check(&envelope);
        if errors.is_empty() { Ok(envelope) } else { Err(named(errors)) }
    }

    async fn process(&self, envelope: &Envelope, is_last: bool, limit: Duration) -> Verdict {
        match self.invoices.process(envelope, is_last, limit).await {
            Ok(Processed::Done) => Verdict::Done(Vec::new()),
            Ok(Processed::Retry(why)) => Verdict::Retry(why),
            Ok(Processed::Failed(why)) => Verdict::Permanent(why),
            Err(error) => failed(&error),
        }
    }
}

/// What the store says may be otherwise the next time, unless it refuses the thing itself.
fn failed(error: &Error) -> Verdict {
    match error {
        Error::Invalid(_) | Error::Corrupt(_) => Verdict::Permanent(error.to_string()),
        _ => Verdict::Retry(error.to_string()),
    }
}
