//! `/invoices`: upload, look at.

use std::time::Duration;

use axum::extract::multipart::{Field, MultipartError};
use axum::extract::{DefaultBodyLimit, FromRequest, Multipart, Path, Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use schemars::JsonSchema;
use serde::Serialize;
use tidings_core::envelope::FieldError;

use super::Invoice;
use super::files::{Files, Incoming, Kept};
use super::sniff::FileType;
use crate::app::Services;
use crate::business::event::check_guid;
use crate::business::origin::{Origin, path_id};
use crate::http::{
    Content, CorrelationId, IDEMPOTENCY_KEY, Json, Problem, RequestIds, Route, bearer_of, body, media_type,
};
use crate::tokens::{Caller, Scope};

const ID: &str = "invoiceId";
const PATH: &str = "/invoices";
/// Bytes at a file's start that tell what it is.
const START_BYTES: usize = 4096;
/// Bytes of a form's other fields, and what surrounds the file in the request.
const FIELD_BYTES: usize = 1024;
const AROUND_BYTES: u64 = 64 * 1024;
/// What is too large is read on all the same, up to so many times what is allowed, and for so long: most clients listen only
/// when they have sent everything, and to a connection that is closed before they never do.
const DRAINED_TIMES: u64 = 8;
const DRAINED_FOR: Duration = Duration::from_secs(20);

#[must_use]
pub fn routes() -> Vec<Route> {
    let upload = Route::new(Method::POST, PATH, "Upload an invoice, which is then read", upload)
        .scopes(&[Scope::Ingest, Scope::Operate])
        .parts()
        .body_as::<UploadForm>("multipart/form-data")
        .answer::<UploadAnswer>(202, "The file is kept, and will be read")
        .answer_empty(413, "The file is larger than limits.upload_bytes");
    vec![
        upload,
        Route::new(
            Method::GET,
            "/invoices/{invoiceId}",
            "One invoice, with its text and what was recognised in it",
            get,
        )
        .scopes(&[Scope::Read, Scope::Operate, Scope::Ingest])
        .answer::<Invoice>(200, "The invoice"),
    ]
}

#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "describes the form, which is read part by part")]
struct UploadForm {
    /// A PDF, PNG, JPEG or TIFF; its content decides, not its name.
    #[schemars(extend("format" = "binary"))]
    file: String,
    /// A UUID.
    user_product_id: String,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct UploadAnswer {
    invoice_id: String,
    status: &'static str,
}

async fn get(State(services): State<Services>, Path(id): Path<String>) -> Result<impl IntoResponse, Problem> {
    let invoice = services.business.invoices.get(&path_id(ID, &id)?).await?;
    Ok(Json(StatusCode::OK, invoice.ok_or_else(super::not_found)?))
}

async fn upload(
    State(services): State<Services>,
    caller: Caller,
    correlation: CorrelationId,
    request: Request,
) -> Result<Response, Problem> {
    let headers = request.headers().clone();
    if media_type(&headers) != "multipart/form-data" {
        let detail = "send multipart/form-data with the parts `file` and `userProductId`";
        return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported-media-type", detail));
    }
    let most = services.config.limits.upload_bytes;
    if is_announced_too_large(&headers, most) {
        // Most clients listen only when they have sent everything; who asks first hears it before sending.
        if !headers.contains_key(header::EXPECT) {
            body::drain(request.into_body(), most.saturating_mul(DRAINED_TIMES), DRAINED_FOR).await;
        }
        return Err(too_large(most));
    }
    let patience = services.limits.timeout();
    let received = tokio::time::timeout(patience, receive(request, &services.business.invoices.files, most)).await;
    let form = received.unwrap_or_else(|_| {
        let detail = format!("the upload did not arrive within {} s", patience.as_secs());
        Err(Problem::new(StatusCode::REQUEST_TIMEOUT, "timeout", detail))
    })?;
    let (product, file, file_type) = form.checked()?;
    let kept = tokio::task::spawn_blocking(move || file.keep()).await;
    let kept = kept.map_err(|error| unkept(&error))?.map_err(|error| unkept(&error))?;
    services.business.invoices.share(&kept).await?;
    Box::pin(answer(&services, &caller, &correlation, &headers, product, (kept, file_type))).await
}

/// Once for each key, as the gate does it for calls with a document; here the file stands for itself by its hash.
async fn answer(
    services: &Services,
    caller: &Caller,
    correlation: &CorrelationId,
    headers: &HeaderMap,
    product: String,
    file: (Kept, FileType),
) -> Result<Response, Problem> {
    let by = caller.name();
    let origin = Origin::of(&by, correlation);
    if !headers.contains_key(&IDEMPOTENCY_KEY) {
        let ids = RequestIds::Fresh(&*services.ids, services.clock.now());
        return made(services, product, file, origin, &ids).await;
    }
    let body = Bytes::from(format!("{}\n{product}", file.0.hash));
    let bearer = bearer_of(headers).unwrap_or_default();
    let key = services.idempotency.key((caller, &bearer), (PATH, PATH), headers)?;
    let making = async |seed, _| {
        let ids = RequestIds::Seeded(seed);
        made(services, product, file, origin, &ids).await.unwrap_or_else(IntoResponse::into_response)
    };
    Box::pin(services.idempotency.once(key, Content::Whole(body), making)).await
}

async fn made(
    services: &Services,
    product: String,
    file: (Kept, FileType),
    origin: Origin<'_>,
    ids: &RequestIds<'_>,
) -> Result<Response, Problem> {
    let invoice = services.business.invoices.create(product, file, origin, (ids.uuid(0), ids.uuid(1))).await?;
    let location = HeaderValue::from_str(&format!("{PATH}/{}", invoice.invoice_id)).ok();
    let view = UploadAnswer { invoice_id: invoice.invoice_id, status: "uploaded" };
    let mut response = Json(StatusCode::ACCEPTED, view).into_response();
    response.headers_mut().extend(location.map(|location| (header::LOCATION, location)));
    Ok(response)
}

/// The parts of the form, as far as they came.
#[derive(Default)]
struct Form {
    product: Option<String>,
    file: Option<(Incoming, Vec<u8>)>,
    errors: Vec<FieldError>,
}

impl Form {
    /// Everything that is wrong with it, or what is right.
    fn checked(mut self) -> Result<(String, Incoming, FileType), Problem> {
        let product = match &self.product {
            None => Err("is required".to_owned()),
            Some(product) => check_guid(product),
        };
        if let Err(why) = product {
            self.errors.push(FieldError::new("userProductId", why));
        }
        let file_type = self.file.as_ref().and_then(|(_, start)| FileType::of(start));
        match (&self.file, file_type) {
            (None, _) => self.errors.push(FieldError::new("file", "is required")),
            (Some((file, _)), _) if file.bytes() == 0 => self.errors.push(FieldError::new("file", "is empty")),
            (Some(_), None) => {
                self.errors.push(FieldError::new("file", "is no PDF, PNG, JPEG or TIFF by its content"));
            }
            (Some(_), Some(_)) => {}
        }
        match (self.product, self.file, file_type) {
            (Some(product), Some((file, _)), Some(file_type)) if self.errors.is_empty() => {
                Ok((product.to_lowercase(), file, file_type))
            }
            _ => Err(Problem::invalid(self.errors)),
        }
    }
}

async fn receive(mut request: Request, files: &Files, most: u64) -> Result<Form, Problem> {
    // The size is counted here, by the configured limit.
    DefaultBodyLimit::disable().apply(&mut request);
    let mut parts =
        Multipart::from_request(request, &()).await.map_err(|error| Problem::bad_request(error.body_text()))?;
    let mut form = Form::default();
    while let Some(part) = parts.next_field().await.map_err(|error| unread(&error))? {
        let name = part.name().unwrap_or_default().to_owned();
        match name.as_str() {
            "file" if form.file.is_some() => {
                form.errors.push(FieldError::new("file", "is there twice"));
                read_field(part).await?;
            }
            "file" => form.file = Some(read_file(part, files, most).await?),
            "userProductId" if form.product.is_some() => {
                form.errors.push(FieldError::new("userProductId", "is there twice"));
                read_field(part).await?;
            }
            "userProductId" => form.product = Some(read_field(part).await?),
            _ => {
                read_field(part).await?;
            }
        }
    }
    Ok(form)
}

/// Straight to disk: a large file needs no more memory than a small one.
async fn read_file(mut part: Field<'_>, files: &Files, most: u64) -> Result<(Incoming, Vec<u8>), Problem> {
    let mut incoming = files.receive().map_err(|error| unkept(&error))?;
    let mut start = Vec::new();
    while let Some(piece) = part.chunk().await.map_err(|error| unread(&error))? {
        if incoming.bytes() + piece.len() as u64 > most {
            drop(incoming);
            drain(&mut part, most).await;
            return Err(too_large(most));
        }
        if start.len() < START_BYTES {
            start.extend(piece.iter().take(START_BYTES - start.len()));
        }
        incoming.write(&piece).map_err(|error| unkept(&error))?;
    }
    Ok((incoming, start))
}

/// A short text; what is longer is nothing we know.
async fn read_field(mut part: Field<'_>) -> Result<String, Problem> {
    let mut bytes = Vec::new();
    while let Some(piece) = part.chunk().await.map_err(|error| unread(&error))? {
        if bytes.len() + piece.len() > FIELD_BYTES {
            return Err(Problem::too_large(format!("a part other than `file` has more than {FIELD_BYTES} bytes")));
        }
        bytes.extend_from_slice(&piece);
    }
    Ok(String::from_utf8_lossy(&bytes).trim().to_owned())
}

fn is_announced_too_large(headers: &HeaderMap, most: u64) -> bool {
    let announced = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    announced.is_some_and(|length| length > most.saturating_add(AROUND_BYTES))
}

/// Reads on for a while what is too large, so that its sender comes to listen.
async fn drain(part: &mut Field<'_>, most: u64) {
    let rest = async {
        let mut left = most.saturating_mul(DRAINED_TIMES);
        while let (Ok(Some(piece)), true) = (part.chunk().await, left > 0) {
            left = left.saturating_sub(piece.len() as u64);
        }
    };
    let _ = tokio::time::timeout(DRAINED_FOR, rest).await;
}

fn too_large(most: u64) -> Problem {
    Problem::too_large(format!("the file is larger than {most} bytes (limits.upload_bytes)"))
}

fn unread(error: &MultipartError) -> Problem {
    Problem::bad_request(format!("the form cannot be read: {}", error.body_text()))
}

fn unkept(error: &dyn std::error::Error) -> Problem {
    tracing::error!(%error, "an uploaded file cannot be kept");
    let detail = "the file cannot be kept; the log says why";
    Problem::new(StatusCode::INSUFFICIENT_STORAGE, "disk-full", detail).retry_after(30)
}
