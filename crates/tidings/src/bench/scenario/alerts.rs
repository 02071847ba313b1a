//! The scenarios about process change alerts: storing them, and reading a day of their history.

use serde::Deserialize;
use serde::de::IgnoredAny;
use tidings_core::time::{Clock, Timestamp};

use super::events::EventIds;
use super::{Caller, Load, Options};
use crate::bench::client::{self, Response};
use crate::clock::SystemClock;

/// Alerts that are there before their history is read, unless `--preload` says otherwise.
pub const STORED: u64 = 20_000;
const ROWS: usize = 1000;
/// Over how many days the alerts are spread; all of them are within the 90 that the history shows.
const DAYS: u64 = 80;
const DAY_SECONDS: u64 = 86_400;

/// `POST /ingest/azure-devops` with `options.batch` audit events of the last weeks.
pub fn store(options: &Options) -> Box<dyn Load> {
    Box::new(Storing { token: options.token.clone(), batch: options.batch, newest: SystemClock::default().now() })
}

/// `GET /alerts?limit=1000` of one day after the other, in no order.
pub fn read(options: &Options) -> Box<dyn Load> {
    Box::new(Reading { token: options.token.clone(), newest: SystemClock::default().now() })
}

struct Storing {
    token: String,
    batch: u32,
    newest: Timestamp,
}

impl Load for Storing {
    fn batch(&self) -> u32 {
        self.batch
    }

    fn caller(&self) -> Box<dyn Caller> {
        let (token, batch, newest) = (self.token.clone(), self.batch, self.newest);
        Box::new(Storer { token, batch, newest, ids: EventIds::new(), request: Vec::new() })
    }
}

struct Storer {
    token: String,
    batch: u32,
    newest: Timestamp,
    ids: EventIds,
    request: Vec<u8>,
}

impl Caller for Storer {
    fn request(&mut self) -> &[u8] {
        let mut body = String::from("[");
        for place in 0..self.batch {
            let id = self.ids.next();
            let id = String::from_utf8_lossy(&id);
            let back = i64::try_from(number(&id) % (DAYS * DAY_SECONDS)).unwrap_or(0);
            let at = self.newest.as_second() - back;
            let comma = if place > 0 { "," } else { "" };
            body.push_str(&format!(
                "{comma}{{\"id\":\"{id}\",\"correlationId\":\"{id}\",\"actorUserId\":\"3f2c1d9e-aaaa-4bbb-8ccc-{actor:012}\",\
                 \"actorUPN\":\"ana@contoso.example\",\"actorDisplayName\":\"Ana Ruiz\",\"timestamp\":{at},\
                 \"ipAddress\":\"203.0.113.7\",\"actionId\":\"Process.Field.Add\",\"area\":\"Process\",\
                 \"category\":\"create\",\"scopeDisplayName\":\"contoso (Organization)\",\"userAgent\":\"Mozilla/5.0\",\
                 \"data\":{{\"ProcessName\":\"Contoso Agile\",\"WorkItemTypeReferenceName\":\"ContosoAgile.UserStory\",\
                 \"FieldReferenceName\":\"Custom.RiskScore\"}},\
                 \"details\":\"Field \\\"Custom.RiskScore\\\" created on work item type \\\"ContosoAgile.UserStory\\\".\"}}",
                actor = number(&id) % 1000,
            ));
        }
        body.push(']');
        let content = Some(("application/json", body.as_bytes()));
        self.request = client::request("POST", "/ingest/azure-devops", &self.token, content);
        &self.request
    }

    fn check(&mut self, response: Response<'_>) -> Option<u64> {
        #[derive(Deserialize)]
        struct Answer {
            accepted: u64,
        }
        let answer = serde_json::from_slice::<Answer>(response.body).ok().filter(|_| response.status == 202);
        answer.map(|answer| answer.accepted).filter(|accepted| *accepted == u64::from(self.batch))
    }
}

/// A number that an id's first digits make.
fn number(id: &str) -> u64 {
    u64::from_str_radix(id.get(..8).unwrap_or_default(), 16).unwrap_or(0)
}

struct Reading {
    token: String,
    newest: Timestamp,
}

impl Load for Reading {
    fn caller(&self) -> Box<dyn Caller> {
        let (token, newest) = (self.token.clone(), self.newest);
        Box::new(Reader { token, newest, ids: EventIds::new(), request: Vec::new() })
    }
}

struct Reader {
    token: String,
    newest: Timestamp,
    ids: EventIds,
    request: Vec<u8>,
}

impl Caller for Reader {
    fn request(&mut self) -> &[u8] {
        // Not the first and the last of the days, which the alerts fill in part.
        let id = self.ids.next();
        let back = 1 + number(&String::from_utf8_lossy(&id)) % (DAYS - 2);
        let day = self.newest.saturating_sub(std::time::Duration::from_secs(back * DAY_SECONDS));
        let day = day.unwrap_or(self.newest).strftime("%Y-%m-%d");
        let path = format!("/alerts?limit={ROWS}&startDate={day}&endDate={day}");
        self.request = client::request("GET", &path, &self.token, None);
        &self.request
    }

    fn check(&mut self, response: Response<'_>) -> Option<u64> {
        #[derive(Deserialize)]
        struct Page {
            items: Vec<IgnoredAny>,
        }
        let page = response.is_success().then(|| serde_json::from_slice::<Page>(response.body).ok()).flatten();
        // Reading an empty day is quick and says nothing.
        page.filter(|page| !page.items.is_empty()).map(|_| 1)
    }
}
