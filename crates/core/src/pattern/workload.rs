//! Rules and events to measure the matcher with, the same for the same seed.
//!
//! The mix by operator: 40 % exact, 15 % prefix, 10 % suffix, 10 % anything-but, 8 % numeric, 5 % ignore-case,
//! 5 % exists, 5 % wildcard, 2 % cidr. Nine rules of ten are also bound to a tenant. A tenant has about 20 rules, so
//! more rules mean more tenants, as more customers would. The other tenth watches all tenants, each rule for something
//! rare: a rule that matches most events costs its matches, with any index. Of these, those with only anything-but or
//! exists look at optional fields that few events have. Events have about 1 KB.

use std::fmt::Write as _;

/// A rule for each of this many is another tenant.
const RULES_PER_TENANT: u64 = 20;

/// Optional fields of which an event carries one in ten times.
const OPTIONAL_FIELDS: u64 = 500;

/// The source of rules and events.
#[derive(Debug, Clone)]
pub struct Workload {
    tenants: u64,
    random: SplitMix,
}

impl Workload {
    /// For a set of `rules` rules.
    pub fn new(rules: usize, seed: u64) -> Workload {
        Workload { tenants: (rules as u64 / RULES_PER_TENANT).max(1), random: SplitMix(seed) }
    }

    /// For rules of this many tenants, however many rules each of them has.
    #[must_use]
    pub fn with_tenants(self, tenants: usize) -> Workload {
        Workload { tenants: (tenants as u64).max(1), ..self }
    }

    /// The next rule's pattern.
    pub fn pattern(&mut self) -> String {
        let keyed = self.random.below(10) < 9;
        let data = self.data_pattern(keyed);
        if keyed {
            return format!(r#"{{"tenant":["{}"],"data":{{{data}}}}}"#, self.tenant());
        }
        format!(r#"{{"data":{{{data}}}}}"#)
    }

    /// The next event.
    pub fn event(&mut self) -> String {
        let mut text = String::with_capacity(1_200);
        let id = self.random.next();
        let (tenant, amount) = (self.tenant(), self.random.below(1_000_000));
        let (resource, owner, ip) = (self.resource(), self.owner(), self.address());
        let status = self.pick(&["open", "closed", "waiting", "failed", "retried"]);
        let old_status = self.pick(&["open", "closed", "waiting"]);
        let env = self.pick(&["prod", "stage", "test"]);
        // Writing to a String cannot fail.
        let _ = write!(
            text,
            r#"{{"eventId":"{id:016x}-{id:016x}","eventType":"document.{status}","source":"/billing/eu-central/worker-{}","time":"2026-03-14T09:26:53.589Z","tenant":"{tenant}","severity":"{}","correlationId":"c-{id:016x}","specversion":"1.0","datacontenttype":"application/json","data":{{"env":"{env}","status":"{status}","resource":"{resource}","owner":"{owner}","amount":{}.{:02},"attempt":{},"ip":"{ip}","#,
            id % 16,
            self.pick(&["info", "warning", "critical"]),
            amount / 100,
            amount % 100,
            id % 7,
        );
        if self.random.below(10) == 0 {
            let _ = write!(text, r#""option{}":"{status}","#, self.random.below(OPTIONAL_FIELDS));
        }
        let _ = write!(
            text,
            r#""message":"The document was taken over from the previous run and is now {status}; nobody needs to do anything unless the amount looks wrong.","tags":["billing","{env}","run-{}"],"old":{{"status":"{old_status}","revision":{}}},"new":{{"status":"{status}","revision":{}}},"lines":[{{"sku":"A-{:05}","quantity":{},"note":"first line of the document"}},{{"sku":"B-{:05}","quantity":2,"note":"second line of the document"}}],"links":{{"self":"https://documents.example.com/api/v2/{id:016x}","parent":null}},"archived":false}}}}"#,
            id % 1000,
            id % 40,
            id % 40 + 1,
            id % 100_000,
            id % 9,
            id / 7 % 100_000,
        );
        text
    }

    fn data_pattern(&mut self, keyed: bool) -> String {
        match self.random.below(100) {
            0..40 => format!(r#""resource":["{}"]"#, self.resource()),
            40..55 => format!(r#""resource":[{{"prefix":"{}"}}]"#, cut(&self.resource(), 16)),
            55..65 => format!(r#""resource":[{{"suffix":"{}"}}]"#, tail(&self.resource(), 12)),
            65..75 if keyed => {
                format!(r#""status":[{{"anything-but":["{}","closed"]}}]"#, self.pick(&["open", "failed"]))
            }
            65..75 => format!(r#""option{}":[{{"anything-but":"closed"}}]"#, self.random.below(OPTIONAL_FIELDS)),
            75..83 => {
                let low = self.random.below(10_000);
                format!(r#""amount":[{{"numeric":[">=",{low},"<",{}]}}]"#, low + if keyed { 2_000 } else { 5 })
            }
            83..88 => format!(r#""owner":[{{"equals-ignore-case":"{}"}}]"#, self.owner().to_uppercase()),
            88..93 if keyed => r#""ip":[{"exists":true}]"#.to_owned(),
            88..93 => format!(r#""option{}":[{{"exists":true}}]"#, self.random.below(OPTIONAL_FIELDS)),
            93..98 => {
                let resource = self.resource();
                format!(r#""resource":[{{"wildcard":"{}*{}"}}]"#, cut(&resource, 14), tail(&resource, 6))
            }
            _ => format!(r#""ip":[{{"cidr":"{}/24"}}]"#, self.address()),
        }
    }

    fn tenant(&mut self) -> String {
        format!("t-{:06}", self.random.below(self.tenants))
    }

    fn resource(&mut self) -> String {
        let kind = self.pick(&["invoice", "order", "receipt", "contract"]);
        let ending = self.pick(&["pdf", "xml", "json"]);
        format!("/{kind}/{:05}/{:06}.{ending}", self.random.below(100_000), self.random.below(1_000_000))
    }

    fn owner(&mut self) -> String {
        format!("Owner-{:05}@Example.com", self.random.below(50_000))
    }

    fn address(&mut self) -> String {
        let bits = self.random.next().to_le_bytes();
        let [a, b, c, ..] = bits;
        format!("10.{a}.{b}.{c}")
    }

    fn pick(&mut self, words: &[&'static str]) -> &'static str {
        let position = self.random.below(words.len() as u64);
        words.get(position as usize).copied().unwrap_or_default()
    }
}

/// Steele, Lea and Flood's generator: small, and good enough to shuffle test data.
#[derive(Debug, Clone)]
struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

fn cut(text: &str, length: usize) -> &str {
    text.get(..length).unwrap_or(text)
}

fn tail(text: &str, length: usize) -> &str {
    text.get(text.len().saturating_sub(length)..).unwrap_or(text)
}
