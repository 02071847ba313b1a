//! Ownership transfers: one user offers a product to another, who has 72 hours to answer (EVT_003).
//!
//! With a transfer goes a message on `transfer-expiration-queue` that is delivered when the time is over; an answer
//! withdraws it in the same transaction. `ExpireOwnershipTransfer` (`Transfers::expire`) looks at the state again, so
//! that neither a second delivery nor one that could not be withdrawn in time changes anything.

pub mod http;
mod status;

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::json;
use tidings_core::envelope::Envelope;
use tidings_core::time::{self, Clock, Timestamp};
use tidings_store::{Condition, Error, Item, Key, KeyKind, Store, Table, Write};
use uuid::Uuid;

pub use status::{Answer, Status};

use super::event::Kind;
use super::origin::{Origin, Told, tell};
use crate::bus::{self, Bus, Prepared};
use crate::config::Config;
use crate::http::Problem;
use crate::ingest::Ingest;

/// The source of their events.
pub const SOURCE: &str = "tidings/transfers";
const TRIES: usize = 20;

#[must_use]
pub fn table() -> &'static Table {
    static TABLE: LazyLock<Table> = LazyLock::new(|| {
        Table::new("tidings-transfers", "transferRequestId", KeyKind::S).index(
            "product-index",
            ("productId".into(), KeyKind::S),
            Some(("createdAt".into(), KeyKind::S)),
        )
    });
    &TABLE
}

/// A transfer, as it is stored and shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Transfer {
    pub transfer_request_id: String,
    pub product_id: String,
    pub from_user_id: String,
    pub to_user_id: String,
    /// `pending`, `accepted`, `rejected`, `cancelled` or `expired`.
    pub status: Status,
    pub created_at: String,
    pub expires_at: String,
    pub updated_at: String,
    /// Of the call that made it.
    pub correlation_id: String,
}

impl Transfer {
    fn expiry(&self) -> Option<Timestamp> {
        self.expires_at.parse().ok()
    }
}

/// What somebody asks for; checked already.
#[derive(Debug, Clone)]
pub struct NewTransfer {
    pub product_id: String,
    pub from_user_id: String,
    pub to_user_id: String,
}

/// The transfers of this installation.
pub struct Transfers {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    ingest: Arc<Ingest>,
    bus: Arc<Bus>,
    lasting: Duration,
}

impl Transfers {
    #[must_use]
    pub fn new(ingest: &Arc<Ingest>, bus: Arc<Bus>, config: &Config) -> Self {
        Self {
            store: Arc::clone(&ingest.store),
            clock: Arc::clone(&ingest.clock),
            ingest: Arc::clone(ingest),
            bus,
            lasting: Duration::from_secs(config.transfers.expire_seconds),
        }
    }

    pub async fn get(&self, id: &str) -> Result<Option<Transfer>, Error> {
        self.store.get(table(), &Key::new(id)).await?.map(|item| item.to_record()).transpose()
    }

    /// Makes a transfer, and the message that will end it. The ids make it the same one if the call comes again.
    pub async fn create(
        &self,
        new: NewTransfer,
        origin: Origin<'_>,
        (id, event_id): (Uuid, Uuid),
    ) -> Result<Transfer, Problem> {
        let now = self.clock.now();
        let expires_at = now.saturating_add(self.lasting).unwrap_or(Timestamp::MAX);
        let transfer = Transfer {
            transfer_request_id: id.to_string(),
            product_id: new.product_id,
            from_user_id: new.from_user_id,
            to_user_id: new.to_user_id,
            status: Status::Pending,
            created_at: time::iso_micros(now),
            expires_at: time::iso_micros(expires_at),
            updated_at: time::iso_micros(now),
            correlation_id: origin.correlation_id.to_owned(),
        };
        let expiry = expiry(&transfer, expires_at, event_id);
        let expiry = self.bus.prepare(Kind::TransferExpired.entity(), expiry).await?;
        let insert = Write::insert(table(), Item::from_record(&transfer)?);
        let told = told("transfer.requested", event_id, &transfer, now, origin);
        match self.tell(told, origin, insert, expiry).await {
            Ok(true) => Ok(transfer),
            Ok(false) => self.get(&transfer.transfer_request_id).await?.ok_or_else(not_found),
            Err(error) => Err(error.into()),
        }
    }

    /// Answers a transfer that is pending, and withdraws its expiry.
    pub async fn answer(
        &self,
        id: &str,
        answer: Answer,
        origin: Origin<'_>,
        event_id: Uuid,
    ) -> Result<Transfer, Problem> {
        for _ in 0..TRIES {
            let before = self.get(id).await?.ok_or_else(not_found)?;
            let wanted = answer.leads_to();
            if before.status == wanted {
                return Ok(before);
            }
            let now = self.clock.now();
            // The time may be over although nobody has come to say so yet.
            let over = before.expiry().is_some_and(|at| at <= now);
            if !before.status.may_become(wanted) || over {
                let state = if over && before.status == Status::Pending { "expired" } else { before.status.as_str() };
                return Err(Problem::conflict(format!(
                    "the transfer is {state}; it cannot become {}",
                    wanted.as_str()
                )));
            }
            let (after, write) = moved(&before, wanted, now)?;
            let (withdrawn, _) = self.bus.prepare_cancel(Kind::TransferExpired.entity(), id).await?;
            let told = told(answer.event_type(), event_id, &after, now, origin);
            match self.tell(told, origin, write, withdrawn).await {
                Ok(true) => return Ok(after),
                // The same call came again.
                Ok(false) => return self.get(id).await?.ok_or_else(not_found),
                Err(Error::Conflict { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(Error::Throttled("the transfer is contended".to_owned()).into())
    }

    /// `ExpireOwnershipTransfer`: ends a transfer that nobody has answered in time. Whatever else it is now, it stays
    /// (S003-30), and so does one whose time is not over, whoever says it is.
    pub async fn expire(&self, id: &str, command: &Envelope) -> Result<(), Error> {
        let origin = Origin::following("handler:ExpireOwnershipTransfer", command);
        for _ in 0..TRIES {
            let Some(before) = self.get(id).await? else { return Ok(()) };
            if before.status != Status::Pending {
                return Ok(());
            }
            let now = self.clock.now();
            if let Some(at) = before.expiry().filter(|at| *at > now) {
                return self.wait_on(&before, at, command).await;
            }
            let (after, write) = moved(&before, Status::Expired, now)?;
            // Follows from the transfer: there is one end.
            let event_id = Uuid::new_v5(&Uuid::NAMESPACE_OID, format!("transfer expired\n{id}").as_bytes());
            let told = told("transfer.expired", event_id, &after, now, origin);
            match tell(&self.ingest, told, origin, vec![write]).await {
                Ok(_) => return Ok(()),
                Err(Error::Conflict { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Err(Error::Throttled("the transfer is contended".to_owned()))
    }

    /// What comes before its time changes nothing. Was it the transfer's own message, because the clock was set back
    /// since, there must be another one.
    async fn wait_on(&self, transfer: &Transfer, at: Timestamp, command: &Envelope) -> Result<(), Error> {
        let (queue, id) = (Kind::TransferExpired.entity(), &transfer.transfer_request_id);
        let failed = |error| Error::failed("a transfer's expiry cannot be scheduled", error);
        let (withdrawn, waiting) = self.bus.prepare_cancel(queue, id).await.map_err(failed)?;
        withdrawn.aborted();
        if waiting == 0 {
            let name = format!("transfer expiry\n{id}\n{}", command.event_id);
            let again = expiry(transfer, at, Uuid::new_v5(&Uuid::NAMESPACE_OID, name.as_bytes()));
            self.bus.send_own(queue, vec![again]).await.map_err(failed)?;
        }
        Ok(())
    }

    /// The record, its event and what it means for the bus in one transaction; `false`: the event was known.
    async fn tell(&self, told: Told<'_>, origin: Origin<'_>, record: Write, with: Prepared) -> Result<bool, Error> {
        let writes = [vec![record], with.writes()].concat();
        match tell(&self.ingest, told, origin, writes).await {
            Ok(receipt) if receipt.status == "accepted" => {
                with.committed();
                Ok(true)
            }
            Ok(_) => {
                with.aborted();
                Ok(false)
            }
            Err(error) => {
                // A conflict wrote nothing; of anything else that is not known, and the bus looks for itself.
                if matches!(error, Error::Conflict { .. } | Error::Invalid(_)) {
                    with.aborted();
                }
                Err(error)
            }
        }
    }
}

fn moved(before: &Transfer, status: Status, now: Timestamp) -> Result<(Transfer, Write), Error> {
    let after = Transfer { status, updated_at: time::iso_micros(now).max(before.updated_at.clone()), ..before.clone() };
    let unchanged = Condition::Equals("status".into(), before.status.as_str().into());
    let write = Write::put(table(), Item::from_record(&after)?).when(unchanged);
    Ok((after, write))
}

/// The message that is delivered when the time is over, with the transfer's id as its business key (S003-30). Its own id
/// is nobody's to guess: what was handled under it is not handled again.
fn expiry(transfer: &Transfer, at: Timestamp, message_id: Uuid) -> bus::Message {
    let id = &transfer.transfer_request_id;
    let message_id = format!("transfer-expiry-{message_id}");
    let envelope = json!({
        "eventId": message_id, "eventType": Kind::TransferExpired.event_type(), "eventVersion": "1.0",
        "eventTimestamp": time::iso_micros(at), "correlationId": transfer.correlation_id, "source": SOURCE,
        "subject": format!("transfer/{id}"), "data": { "transferRequestId": id },
    });
    bus::Message {
        id: message_id,
        body: envelope.to_string().into(),
        content_type: Some("application/json".to_owned()),
        correlation_id: Some(transfer.correlation_id.clone()),
        subject: Some(Kind::TransferExpired.event_type().to_owned()),
        key: Some(id.clone()),
        deliver_at: Some(at),
        ..bus::Message::default()
    }
}

fn told<'a>(event_type: &'a str, event_id: Uuid, transfer: &Transfer, at: Timestamp, origin: Origin<'_>) -> Told<'a> {
    Told {
        event_type,
        event_id,
        source: SOURCE,
        subject: format!("transfer/{}", transfer.transfer_request_id),
        at,
        data: json!({
            "transferRequestId": transfer.transfer_request_id, "productId": transfer.product_id,
            "fromUserId": transfer.from_user_id, "toUserId": transfer.to_user_id, "status": transfer.status.as_str(),
            "expiresAt": transfer.expires_at, "by": origin.by,
        }),
    }
}

fn not_found() -> Problem {
    Problem::not_found("there is no transfer of this id")
}
