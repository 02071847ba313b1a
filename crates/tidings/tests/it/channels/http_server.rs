//! An HTTP server that answers whatever the test wants, and remembers what it was asked.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

#[derive(Clone, Debug)]
pub struct Asked {
    pub path: String,
    /// Names in lower case.
    pub headers: BTreeMap<String, String>,
    pub body: Vec<u8>,
}

#[derive(Clone, Debug)]
pub enum Reply {
    Answer {
        status: u16,
        headers: Vec<(&'static str, String)>,
        body: String,
    },
    /// Takes the request and says nothing.
    Hang,
    /// Closes without an answer.
    Drop,
    /// A byte of the body now and then, for ever.
    Trickle,
    /// As much body as anybody reads.
    Endless,
}

impl Reply {
    pub fn status(status: u16) -> Self {
        Self::Answer { status, headers: Vec::new(), body: String::new() }
    }
}

pub struct Server {
    pub address: SocketAddr,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Server {
    pub async fn start(reply: impl Fn(&Asked) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, asked, reply) = (listener.local_addr().unwrap(), Arc::default(), Arc::new(reply));
        let record: Arc<Mutex<Vec<Asked>>> = Arc::clone(&asked);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (record, reply) = (Arc::clone(&record), Arc::clone(&reply));
                tokio::spawn(async move {
                    let mut stream = BufReader::new(stream);
                    while let Some(asked) = read(&mut stream).await {
                        let reply = reply(&asked);
                        record.lock().unwrap().push(asked);
                        if answer(&mut stream, reply).await.is_err() {
                            break;
                        }
                    }
                });
            }
        });
        Self { address, asked }
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }
}

async fn read(stream: &mut BufReader<TcpStream>) -> Option<Asked> {
    let mut line = String::new();
    stream.read_line(&mut line).await.ok().filter(|read| *read > 0)?;
    let path = line.split(' ').nth(1)?.to_owned();
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).await.ok().filter(|read| *read > 0)?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.insert(name.to_lowercase(), value.trim().to_owned());
    }
    let length = headers.get("content-length").map_or(0, |length| length.parse().unwrap());
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.ok()?;
    Some(Asked { path, headers, body })
}

/// An error ends the connection.
async fn answer(stream: &mut BufReader<TcpStream>, reply: Reply) -> Result<(), ()> {
    const FOREVER: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 1000000000\r\n\r\n";
    match reply {
        Reply::Answer { status, headers, body } => {
            let mut head = format!("HTTP/1.1 {status} X\r\n");
            for (name, value) in headers {
                head += &format!("{name}: {value}\r\n");
            }
            // These have no body, and none is announced.
            if !matches!(status, 204 | 304) {
                head += &format!("content-length: {}\r\n", body.len());
            }
            stream.write_all(format!("{head}\r\n{body}").as_bytes()).await.map_err(|_| ())
        }
        Reply::Hang => {
            tokio::time::sleep(Duration::from_secs(60)).await;
            Err(())
        }
        Reply::Drop => Err(()),
        Reply::Trickle => {
            stream.write_all(FOREVER).await.map_err(|_| ())?;
            loop {
                stream.write_all(b".").await.map_err(|_| ())?;
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
        Reply::Endless => {
            stream.write_all(FOREVER).await.map_err(|_| ())?;
            loop {
                stream.write_all(&[b'x'; 16_384]).await.map_err(|_| ())?;
            }
        }
    }
}
