//! An endpoint between the store and DynamoDB Local that fails on purpose.
//!
//! One request per connection and bytes passed on as they are: enough of HTTP for one client and one server.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};

use super::endpoint;

/// What becomes of one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// Nothing bad.
    Pass,
    /// Held until [`Proxy::release`], then passed on.
    Hold,
    /// Turned away with this code, nothing passed on.
    Refuse(&'static str),
    /// A transaction cancelled with this reason for its last write, nothing passed on; anything else passes.
    Cancel(&'static str),
    /// An internal error, nothing passed on.
    ErrorBefore,
    /// What a load balancer says when nobody is behind it: no JSON and no code.
    Page503,
    /// Passed on, and then an internal error in place of the answer.
    ErrorAfter,
    /// The connection ends, nothing passed on.
    DropBefore,
    /// Passed on, and then the connection ends in place of the answer.
    DropAfter,
}

/// Every way to fail that a patient client survives.
pub const FAULTS: [Fault; 12] = [
    Fault::Refuse("ProvisionedThroughputExceededException"),
    Fault::Refuse("RequestLimitExceeded"),
    Fault::Refuse("ThrottlingException"),
    Fault::Refuse("TransactionInProgressException"),
    Fault::Cancel("TransactionConflict"),
    Fault::Cancel("ThrottlingError"),
    Fault::Cancel("ProvisionedThroughputExceeded"),
    Fault::ErrorBefore,
    Fault::Page503,
    Fault::ErrorAfter,
    Fault::DropBefore,
    Fault::DropAfter,
];

pub struct Proxy {
    pub endpoint: String,
    control: Arc<Control>,
}

struct Control {
    state: Mutex<State>,
    arrived: watch::Sender<usize>,
    answered: watch::Sender<usize>,
    gate: Notify,
}

#[derive(Default)]
struct State {
    /// For the next requests, in order; then by chance.
    planned: VecDeque<Fault>,
    choice: Vec<Fault>,
    per_cent: u64,
    random: u64,
    injected: BTreeMap<Fault, usize>,
    /// Answers made up here, by operation.
    canned: BTreeMap<&'static str, Value>,
    /// The requests as they came.
    bodies: Vec<Vec<u8>>,
}

impl Proxy {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let state = Mutex::default();
        let control = Arc::new(Control {
            state,
            arrived: watch::Sender::new(0),
            answered: watch::Sender::new(0),
            gate: Notify::new(),
        });
        let shared = control.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let control = shared.clone();
                tokio::spawn(async move { serve(stream, &control).await });
            }
        });
        Self { endpoint: format!("http://{address}"), control }
    }

    /// What becomes of the next requests, in order.
    pub fn plan(&self, faults: impl IntoIterator<Item = Fault>) {
        self.control.lock().planned.extend(faults);
    }

    /// Lets so many of a hundred requests meet one of these faults.
    pub fn at_random(&self, per_cent: u64, choice: &[Fault], seed: u64) {
        let mut state = self.control.lock();
        (state.per_cent, state.random) = (per_cent, seed);
        state.choice = choice.to_vec();
    }

    /// Answers an operation that DynamoDB Local does not know.
    pub fn answer_to(&self, operation: &'static str, answer: Value) {
        self.control.lock().canned.insert(operation, answer);
    }

    /// Transactions as they came, by token.
    pub fn transactions(&self) -> BTreeMap<String, Vec<Vec<u8>>> {
        let mut by_token: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for body in &self.control.lock().bodies {
            let parsed: Value = serde_json::from_slice(body).expect("a request");
            if let Some(token) = parsed.get("ClientRequestToken").and_then(Value::as_str) {
                by_token.entry(token.to_owned()).or_default().push(body.clone());
            }
        }
        by_token
    }

    /// Waits until that many requests have come.
    pub async fn arrived(&self, requests: usize) {
        self.control.arrived.subscribe().wait_for(|arrived| *arrived >= requests).await.expect("the proxy is there");
    }

    /// Waits until there were that many answers, whether anybody waits for them or not.
    pub async fn answered(&self, requests: usize) {
        self.control.answered.subscribe().wait_for(|answered| *answered >= requests).await.expect("the proxy is there");
    }

    /// Lets the request that is held go on.
    pub fn release(&self) {
        self.control.gate.notify_one();
    }

    /// How often each fault was met.
    pub fn injected(&self) -> BTreeMap<Fault, usize> {
        self.control.lock().injected.clone()
    }
}

impl Control {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no test panics while it holds the proxy")
    }
}

impl State {
    fn next(&mut self) -> Fault {
        let chance = self.draw() % 100;
        let drawn = usize::try_from(self.draw() % 1000).unwrap_or(0);
        let by_chance = if chance < self.per_cent { self.choice.iter().cycle().nth(drawn).copied() } else { None };
        let fault = self.planned.pop_front().or(by_chance).unwrap_or(Fault::Pass);
        *self.injected.entry(fault).or_default() += 1;
        fault
    }

    /// splitmix64.
    fn draw(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.random ^ (self.random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

async fn serve(mut stream: TcpStream, control: &Control) {
    let Some((head, body)) = read_request(&mut stream).await else { return };
    control.arrived.send_modify(|arrived| *arrived += 1);
    let (fault, canned) = {
        let mut state = control.lock();
        let canned = state.canned.iter().find(|(operation, _)| head.contains(&format!("_20120810.{operation}\r")));
        let canned = canned.map(|(_, value)| answer("200 OK", value));
        state.bodies.push(body.clone());
        (state.next(), canned)
    };
    let answer = match fault {
        Fault::Pass if canned.is_some() => canned.unwrap_or_default(),
        Fault::Pass => forward(&head, &body).await,
        Fault::Hold => {
            control.gate.notified().await;
            forward(&head, &body).await
        }
        Fault::Refuse(code) => refusal(code, None),
        Fault::Cancel(code) if head.contains("TransactWriteItems") => {
            refusal("TransactionCanceledException", Some(reasons(&body, code)))
        }
        Fault::Cancel(_) => forward(&head, &body).await,
        Fault::ErrorBefore => internal_error(),
        Fault::Page503 => answer("503 Service Unavailable", &Value::from("<html>")),
        Fault::ErrorAfter => {
            forward(&head, &body).await;
            internal_error()
        }
        Fault::DropBefore => return,
        Fault::DropAfter => {
            forward(&head, &body).await;
            return;
        }
    };
    control.answered.send_modify(|answered| *answered += 1);
    let _ = stream.write_all(&answer).await;
    let _ = stream.shutdown().await;
}

async fn read_request(stream: &mut TcpStream) -> Option<(String, Vec<u8>)> {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break end + 4;
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let mut body = bytes.split_off(end);
    let head = String::from_utf8(bytes).ok()?;
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
    })?;
    while body.len() < length {
        if stream.read_buf(&mut body).await.ok()? == 0 {
            return None;
        }
    }
    Some((head, body))
}

/// The whole answer of DynamoDB Local, which ends with the connection.
async fn forward(head: &str, body: &[u8]) -> Vec<u8> {
    let address = endpoint().strip_prefix("http://").expect("a plain endpoint").to_owned();
    let mut stream = TcpStream::connect(address).await.expect("DynamoDB Local");
    let lines = head.trim_end().lines().filter(|line| !line.to_ascii_lowercase().starts_with("connection:"));
    let head: String = lines.chain(["Connection: close", "", ""]).collect::<Vec<_>>().join("\r\n");
    stream.write_all(head.as_bytes()).await.expect("a request");
    stream.write_all(body).await.expect("a request");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.expect("an answer");
    answer
}

/// As many reasons as there are writes; the last is the bad one.
fn reasons(body: &[u8], code: &str) -> Value {
    let body: Value = serde_json::from_slice(body).expect("a request");
    let writes = body.get("TransactItems").and_then(Value::as_array).expect("writes").len();
    (1..=writes).map(|n| json!({"Code": if n == writes { code } else { "None" }})).collect()
}

fn refusal(code: &str, reasons: Option<Value>) -> Vec<u8> {
    let mut body = json!({"__type": format!("com.amazonaws.dynamodb.v20120810#{code}"), "message": "on purpose"});
    if let Some(reasons) = reasons {
        body.as_object_mut().expect("an object").insert("CancellationReasons".to_owned(), reasons);
    }
    answer("400 Bad Request", &body)
}

fn internal_error() -> Vec<u8> {
    let body = json!({"__type": "com.amazonaws.dynamodb.v20120810#InternalServerError", "message": "on purpose"});
    answer("500 Internal Server Error", &body)
}

fn answer(status: &str, body: &Value) -> Vec<u8> {
    let body = body.to_string();
    let length = body.len();
    let head = format!("HTTP/1.1 {status}\r\nContent-Type: application/x-amz-json-1.0\r\nConnection: close\r\n");
    format!("{head}Content-Length: {length}\r\n\r\n{body}").into_bytes()
}
