//! The company's paperwork, through the same calls that anybody would use: invoices with a picture that is really read,
//! service requests that move on, and products that change hands, or do not in time.

use uuid::Uuid;

use crate::app::Services;
use crate::business::invoices::sniff::FileType;
use crate::business::origin::Origin;
use crate::business::transfers::{Answer, NewTransfer};
use crate::http::Problem;

/// Invoices as they come out of a scanner.
const PICTURES: [&[u8]; 3] =
    [include_bytes!("pictures/paper.png"), include_bytes!("pictures/power.png"), include_bytes!("pictures/cloud.png")];
/// Of every so many scans one was cut off: a picture by its first bytes, and nothing that can be read.
const TORN_EVERY: usize = 5;
const TORN_BYTES: usize = 400;

/// People and products have ids, always the same ones.
#[must_use]
pub fn id_of(name: &str) -> Uuid {
    Uuid::new_v5(&Uuid::NAMESPACE_OID, format!("northwind/{name}").as_bytes())
}

fn ids(services: &Services) -> (Uuid, Uuid) {
    let now = services.clock.now();
    (services.ids.uuid(now), services.ids.uuid(now))
}

/// Uploads the `n`th invoice; gives its id.
pub async fn upload(services: &Services, n: usize, product: &str, origin: Origin<'_>) -> Result<String, String> {
    let picture = PICTURES.get(n % PICTURES.len()).copied().unwrap_or_default();
    let is_torn = n % TORN_EVERY == TORN_EVERY - 1;
    let picture = if is_torn { picture.get(..TORN_BYTES).unwrap_or(picture) } else { picture };
    let invoices = &services.business.invoices;
    let mut incoming = invoices.files.receive().map_err(|error| error.to_string())?;
    incoming.write(picture).map_err(|error| error.to_string())?;
    let kept = tokio::task::spawn_blocking(move || incoming.keep()).await.map_err(|error| error.to_string())?;
    let file = (kept.map_err(|error| error.to_string())?, FileType::Png);
    let made = invoices.create(id_of(product).to_string(), file, origin, ids(services)).await;
    made.map(|invoice| invoice.invoice_id).map_err(|why| told(&why))
}

/// Opens a service request; gives its id.
pub async fn request(services: &Services, person: &str, text: String, origin: Origin<'_>) -> Result<String, String> {
    let requests = &services.business.service_requests;
    let made = requests.create(id_of(person).to_string(), text, origin, ids(services)).await;
    made.map(|request| request.service_request_id).map_err(|why| told(&why))
}

/// Moves a service request on.
pub async fn move_on(services: &Services, id: &str, status: &str, origin: Origin<'_>) -> Result<(), String> {
    let event_id = services.ids.uuid(services.clock.now());
    let moved = services.business.service_requests.set_status(id, status, origin, event_id).await;
    moved.map(drop).map_err(|why| told(&why))
}

/// Offers a product to somebody else; gives the transfer's id.
pub async fn offer(
    services: &Services,
    (product, from, to): (&str, &str, &str),
    origin: Origin<'_>,
) -> Result<String, String> {
    let [product_id, from_user_id, to_user_id] = [product, from, to].map(|name| id_of(name).to_string());
    let new = NewTransfer { product_id, from_user_id, to_user_id };
    let made = services.business.transfers.create(new, origin, ids(services)).await;
    made.map(|transfer| transfer.transfer_request_id).map_err(|why| told(&why))
}

/// Answers a transfer, if there is still time.
pub async fn answer(services: &Services, id: &str, accept: bool, origin: Origin<'_>) {
    let answer = if accept { Answer::Accept } else { Answer::Reject };
    let event_id = services.ids.uuid(services.clock.now());
    // Too late is an outcome, too.
    let _ = services.business.transfers.answer(id, answer, origin, event_id).await;
}

fn told(why: &Problem) -> String {
    why.detail.to_string()
}
