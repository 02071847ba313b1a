//! The company's own queue: labels to print are put in, a printer takes them out, and now and then one is poison.

use std::time::Duration;

use bytes::Bytes;
use serde_json::json;

use crate::app::Services;
use crate::bus::message::Message;
use crate::bus::path::Path;
use crate::bus::settle::Settlement;

pub const QUEUE: &str = "shipping-labels";

/// Puts the label of an invoice's parcel into the queue, and prints what has waited a while.
pub async fn label(services: &Services, n: usize, invoice_id: &str, correlation_id: &str) -> Result<(), String> {
    let body = json!({ "invoiceId": invoice_id, "parcels": 1 + n % 3, "city": if n % 3 == 2 { "" } else { "Lisbon" } });
    let message = Message {
        id: format!("{invoice_id}-{correlation_id}"),
        body: Bytes::from(body.to_string()),
        content_type: Some("application/json".to_owned()),
        correlation_id: Some(correlation_id.to_owned()),
        subject: Some("label.requested".to_owned()),
        ..Message::default()
    };
    services.bus.send(QUEUE, vec![message]).await.map_err(|error| error.to_string())?;
    let line = services.bus.line(&Path::queue(QUEUE)).map_err(|error| error.to_string())?;
    // Some always wait, so that there is something to look at.
    if line.figures().active <= 5 {
        return Ok(());
    }
    let taken = line.receive(1, Duration::ZERO, Some("label-printer")).await.map_err(|error| error.to_string())?;
    for taken in taken {
        let readable = std::str::from_utf8(&taken.held.message.message.body).is_ok_and(|body| body.contains("Lisbon"));
        let settlement = if readable {
            Settlement::Complete
        } else {
            Settlement::dead_letter("BadAddress", "the label has no city")
        };
        line.settle_one(taken.token, settlement).await.map_err(|error| error.to_string())?;
    }
    Ok(())
}
