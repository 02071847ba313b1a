//! Forbidden addresses in every spelling, and names that change their mind. SX-20

use std::collections::VecDeque;
use std::io;
use std::net::IpAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;

/// Each lookup takes the next answer; the last one stays.
struct Scripted(Mutex<VecDeque<Vec<IpAddr>>>);

impl Scripted {
    fn new(answers: &[&[&str]]) -> Arc<Self> {
        let answers = answers.iter().map(|ips| ips.iter().map(|ip| ip.parse().unwrap()).collect());
        Arc::new(Self(Mutex::new(answers.collect())))
    }
}

#[async_trait::async_trait]
impl Resolver for Scripted {
    async fn lookup(&self, _: &str) -> io::Result<Vec<IpAddr>> {
        let mut answers = self.0.lock().unwrap();
        let answer = if answers.len() > 1 { answers.pop_front() } else { answers.front().cloned() };
        answer.ok_or_else(|| io::Error::other("no such name"))
    }
}

/// A listener on every address of this machine that answers 200, and how many connections it got.
async fn listener() -> (u16, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("[::]:0").await.unwrap();
    let (port, count) = (listener.local_addr().unwrap().port(), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&count);
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            counted.fetch_add(1, Ordering::SeqCst);
            tokio::spawn(async move {
                let _ = stream.read(&mut [0; 1024]).await;
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok").await;
            });
        }
    });
    (port, count)
}

fn quick() -> Timeouts {
    Timeouts { connect: Duration::from_secs(2), first_byte: Duration::from_secs(2), total: Duration::from_secs(4) }
}

fn guarded(allow: &[&str], resolver: Arc<dyn Resolver>) -> Outbound {
    let config = config::outbound::Outbound { allow: allow.iter().map(|entry| (*entry).to_owned()).collect() };
    Outbound::guarded_with(&config, resolver, quick()).unwrap()
}

async fn get(outbound: &Outbound, url: &str) -> Result<Response, Error> {
    let url = outbound.check(url)?;
    outbound.send(Request { method: Method::POST, url, headers: HeaderMap::new(), body: Bytes::new() }).await
}

/// Hosts that are, or stand for, something that is not on the public internet.
const FORBIDDEN: [&str; 88] = [
    // loopback, in every spelling
    "127.0.0.1",
    "127.1",
    "127.0.1",
    "127.255.255.254",
    "127.0.0.1.",
    "2130706433",
    "0x7f000001",
    "0x7f.1",
    "0x7f.0x0.0x0.0x1",
    "017700000001",
    "0177.0.0.1",
    "0177.1",
    "0x7f.0.0.01",
    "127.0.0.0x1",
    "%31%32%37.0.0.1",
    "１２７.0.0.1",
    "①②⑦.⓪.⓪.①",
    "127。0。0。1",
    "[::1]",
    "[0:0:0:0:0:0:0:1]",
    "[::0001]",
    // unspecified, which connects to this machine
    "0.0.0.0",
    "0",
    "0x0",
    "00",
    "0.0.0.1",
    "0.255.255.255",
    "[::]",
    "[0:0::0]",
    // IPv4 in IPv6 clothes
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
    "[::ffff:10.0.0.1]",
    "[::ffff:169.254.169.254]",
    "[::127.0.0.1]",
    "[::7f00:1]",
    "[::ffff:0:127.0.0.1]",
    "[64:ff9b::7f00:1]",
    "[64:ff9b::10.0.0.1]",
    "[64:ff9b:1::a00:1]",
    "[64:ff9b:1:ffff::1]",
    "[2002:7f00:1::]",
    "[2002:a00:1::1]",
    "[2002:c0a8:101::1]",
    "[2001:0:7f00:1::1]",
    "[2001::ffff:ffff]",
    // private
    "10.0.0.1",
    "10.255.255.255",
    "0x0a000001",
    "012.0.0.1",
    "167772161",
    "172.16.0.1",
    "172.31.255.255",
    "192.168.0.1",
    "192.168.255.255",
    "0xc0a80001",
    "3232235521",
    "[fc00::1]",
    "[fd00::1]",
    "[fdff:ffff::1]",
    "[fec0::1]",
    // link-local and metadata
    "169.254.0.1",
    "169.254.169.254",
    "2852039166",
    "0xa9fea9fe",
    "0251.0376.0251.0376",
    "169.254.170.2",
    "[fe80::1]",
    "[febf::1]",
    "[fd00:ec2::254]",
    "100.100.100.200",
    "192.0.0.192",
    "168.63.129.16",
    // the rest of the registry
    "100.64.0.1",
    "100.127.255.254",
    "192.0.0.1",
    "192.0.2.1",
    "192.88.99.1",
    "198.18.0.1",
    "198.19.255.255",
    "198.51.100.1",
    "203.0.113.1",
    "224.0.0.1",
    "239.255.255.255",
    "240.0.0.1",
    "255.255.255.255",
    "[ff02::1]",
    "[2001:db8::1]",
    "[100::1]",
];

// SX-20
#[tokio::test]
async fn no_spelling_of_a_forbidden_address_reaches_the_listener() {
    let (port, connections) = listener().await;
    let outbound = guarded(&[], Arc::new(SystemResolver));
    for host in FORBIDDEN {
        for url in [format!("http://{host}:{port}/x"), format!("https://{host}:{port}/x")] {
            let error = outbound.check(&url).map(|url| url.to_string()).unwrap_err();
            assert!(matches!(error, Error::Forbidden { .. }), "{url}: {error:?}");
            assert!(get(&outbound, &url).await.is_err(), "{url}");
        }
    }
    assert_eq!(connections.load(Ordering::SeqCst), 0);
}

// SX-20
#[tokio::test]
async fn names_are_judged_by_what_they_resolve_to() {
    let (port, connections) = listener().await;
    for addresses in [&["127.0.0.1"][..], &["::1"], &["10.0.0.1", "127.0.0.1"], &["::ffff:127.0.0.1"], &["0.0.0.0"]] {
        let outbound = guarded(&[], Scripted::new(&[addresses]));
        for name in ["internal.example", "localhost", "a.localhost."] {
            let error = get(&outbound, &format!("http://{name}:{port}/")).await.unwrap_err();
            assert!(matches!(error, Error::Forbidden { .. }), "{name} at {addresses:?}: {error:?}");
            let early = outbound.check_resolved(&format!("http://{name}:{port}/")).await.unwrap_err();
            assert_eq!(early, error);
        }
    }
    let system = guarded(&[], Arc::new(SystemResolver));
    assert!(matches!(get(&system, &format!("http://localhost:{port}/")).await, Err(Error::Forbidden { .. })));
    assert_eq!(connections.load(Ordering::SeqCst), 0);
}

// SX-20: judged on creating, then changed; what was judged on connecting is what is connected to.
#[tokio::test]
async fn a_name_that_changes_its_mind_gains_nothing() {
    let (port, connections) = listener().await;
    let outbound = guarded(&[], Scripted::new(&[&["8.8.8.8"], &["127.0.0.1"]]));
    let url = format!("http://rebind.example:{port}/");
    assert!(outbound.check_resolved(&url).await.is_ok(), "the first answer is public");
    assert!(matches!(get(&outbound, &url).await, Err(Error::Forbidden { .. })));
    assert_eq!(connections.load(Ordering::SeqCst), 0);
}

// SX-20
#[tokio::test]
async fn the_allow_list_opens_exactly_what_it_names() {
    for (allow, host, resolved) in [
        ("127.0.0.1", "127.0.0.1", "127.0.0.1"),
        ("127.0.0.0/8", "2130706433", "127.0.0.1"),
        ("127.0.0.1", "[::ffff:127.0.0.1]", "127.0.0.1"),
        ("::1", "[::1]", "::1"),
        ("hooks.internal", "hooks.internal", "127.0.0.1"),
        ("127.0.0.0/8", "hooks.internal", "127.0.0.1"),
    ] {
        let (port, connections) = listener().await;
        let outbound = guarded(&[allow], Scripted::new(&[&[resolved]]));
        let answer = get(&outbound, &format!("http://{host}:{port}/")).await;
        assert_eq!(answer.map(|answer| answer.status), Ok(200), "{allow} for {host}");
        assert_eq!(connections.load(Ordering::SeqCst), 1);
        let other = get(&outbound, &format!("http://169.254.169.254:{port}/")).await.unwrap_err();
        assert!(matches!(other, Error::Forbidden { .. }));
    }
    let (port, connections) = listener().await;
    let by_name = guarded(&["hooks.internal"], Scripted::new(&[&["127.0.0.1"]]));
    assert!(get(&by_name, &format!("http://127.0.0.1:{port}/")).await.is_err(), "a name allows no address");
    assert!(get(&by_name, &format!("http://x.hooks.internal:{port}/")).await.is_err());
    assert_eq!(connections.load(Ordering::SeqCst), 0);
}

// SX-20
#[tokio::test]
async fn an_open_and_a_closed_port_read_the_same() {
    let (open, _) = listener().await;
    let closed = 1;
    let outbound = guarded(&[], Scripted::new(&[&["127.0.0.1"]]));
    for host in ["127.0.0.1", "name.example"] {
        let text = async |port: u16| {
            let error = get(&outbound, &format!("http://{host}:{port}/")).await.unwrap_err();
            error.to_string().replace(&format!(":{port}"), ":PORT")
        };
        assert_eq!(text(open).await, text(closed).await);
    }
}

#[test]
fn urls_of_other_kinds_are_refused() {
    let outbound = guarded(&[], Arc::new(SystemResolver));
    let long = format!("http://example.com/{}", "x".repeat(MAX_URL_BYTES));
    for url in [
        "",
        "example.com",
        "//example.com",
        "gopher://example.com/",
        "file:///etc/passwd",
        "ftp://example.com/",
        "javascript:alert(1)",
        "data:text/plain,x",
        "http://",
        "http://user@example.com/",
        "http://user:pw@example.com/",
        "http://:pw@example.com/",
        "http://exa mple.com/",
        "unix:/run/docker.sock",
        "http://[::1",
        "http://1.2.3.4.5/",
        &long,
    ] {
        assert!(matches!(outbound.check(url), Err(Error::Url(_))), "{url}");
    }
    for url in ["http://example.com", "HTTPS://Example.com:8443/a?b#c", "http://8.8.8.8/", "http://[2606:4700::1]/"] {
        assert!(outbound.check(url).is_ok(), "{url}");
    }
}

#[tokio::test]
async fn redirects_are_handed_back_not_followed() {
    let (port, connections) = listener().await;
    let redirecting = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let from = redirecting.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut stream, _) = redirecting.accept().await.unwrap();
        let _ = stream.read(&mut [0; 1024]).await;
        let answer = format!("HTTP/1.1 302 Found\r\nlocation: http://[::1]:{port}/\r\ncontent-length: 0\r\n\r\n");
        stream.write_all(answer.as_bytes()).await.unwrap();
    });
    let outbound = guarded(&["127.0.0.1"], Arc::new(SystemResolver));
    assert_eq!(get(&outbound, &format!("http://{from}/")).await.unwrap().status, 302);
    assert_eq!(connections.load(Ordering::SeqCst), 0);
}

// SX-20: canaries in path, query and fragment stay out of every error
#[tokio::test]
async fn errors_show_the_origin_only() {
    let outbound = guarded(&[], Scripted::new(&[&["127.0.0.1"]]));
    let trusted = Outbound::trusted_with(quick()).unwrap();
    for (client, url) in [
        (&outbound, "http://name.example:81/CANARY?k=CANARY#CANARY"),
        (&outbound, "http://127.0.0.1/CANARY?k=CANARY"),
        (&outbound, "http://CANARY:CANARY@example.com/"),
        (&trusted, "http://127.0.0.1:1/CANARY?k=CANARY"),
        (&trusted, "http://no-such-name.invalid/CANARY?k=CANARY"),
    ] {
        let error = get(client, url).await.unwrap_err();
        assert!(!format!("{error} {error:?}").contains("CANARY"), "{error:?}");
    }
}
