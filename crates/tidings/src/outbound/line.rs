//! One connection to somebody, and the exchanges on it, one after the other.
//!
//! Whoever waits for an answer drives the connection meanwhile: a task of its own for each connection would have to be
//! woken for every piece that goes out or comes in. So nobody looks after a connection that nobody uses; whether the other
//! side has closed it shows when it is to be used again.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::{Body, Frame, Incoming};
use hyper::client::conn::TrySendError;
use hyper::client::conn::http1::{Builder, Connection, SendRequest};
use tokio::time::Instant;

use super::pool::Stream;
use crate::alarm::Alarm;

/// A connection that is open, as far as we know.
pub(super) struct Line {
    sender: SendRequest<Full<Bytes>>,
    /// Absent once it has ended: whoever still waits for something then learns that it does not come.
    connection: Option<Connection<Stream, Full<Bytes>>>,
    alarm: Alarm,
}

/// Why there is no answer.
pub(super) enum Unanswered {
    /// With the request if nothing of it was sent.
    Broken(hyper::Error, Option<Box<Request<Full<Bytes>>>>),
    Late,
}

impl Line {
    pub(super) async fn new(stream: Stream) -> Result<Self, hyper::Error> {
        // Head and body in one piece: to copy the one costs less than to have the system put them together.
        let (sender, connection) = Builder::new().writev(false).handshake(stream).await?;
        Ok(Self { sender, connection: Some(connection), alarm: Alarm::default() })
    }

    /// Whether it can be used for the next exchange.
    pub(super) async fn is_free(&mut self) -> bool {
        poll_fn(|cx| {
            self.drive(cx);
            Poll::Ready(())
        })
        .await;
        self.connection.is_some() && self.sender.is_ready()
    }

    /// Sends a request, and waits for the head of its answer, but not beyond that moment.
    pub(super) async fn exchange(
        &mut self,
        request: Request<Full<Bytes>>,
        until: Instant,
    ) -> Result<Response<Incoming>, Unanswered> {
        let mut answer = pin!(self.sender.try_send_request(request));
        let answer = pin!(poll_fn(|cx| {
            // What is to be sent is taken up by the connection.
            drive(&mut self.connection, cx);
            answer.as_mut().poll(cx)
        }));
        let answer = self.alarm.wait(until, answer).await.ok_or(Unanswered::Late)?;
        answer.map_err(|mut failed: TrySendError<_>| {
            let unsent = failed.take_message().map(Box::new);
            Unanswered::Broken(failed.into_error(), unsent)
        })
    }

    /// The next piece of an answer's body.
    pub(super) async fn frame(&mut self, body: &mut Incoming) -> Option<Result<Frame<Bytes>, hyper::Error>> {
        poll_fn(|cx| match Pin::new(&mut *body).poll_frame(cx) {
            Poll::Pending => {
                self.drive(cx);
                Pin::new(&mut *body).poll_frame(cx)
            }
            come => come,
        })
        .await
    }

    fn drive(&mut self, cx: &mut Context<'_>) {
        drive(&mut self.connection, cx);
    }
}

fn drive(connection: &mut Option<Connection<Stream, Full<Bytes>>>, cx: &mut Context<'_>) {
    // Why it ended is told to whoever waits for an answer.
    if connection.as_mut().is_some_and(|open| Pin::new(open).poll(cx).is_ready()) {
        *connection = None;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use http::{HeaderMap, Method};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};
    use tokio::sync::Notify;

    use super::super::{Error, Outbound, Request, Response};
    use super::*;

    #[derive(Default)]
    struct Seen {
        connections: AtomicUsize,
        closed: Notify,
    }

    /// A server that gives on each connection one of these answers after the other and then closes it; its address, and
    /// what it saw.
    async fn server(answers: &'static [&'static str]) -> (String, Arc<Seen>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/path?query", listener.local_addr().unwrap());
        let seen = Arc::new(Seen::default());
        let all = Arc::clone(&seen);
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                all.connections.fetch_add(1, Ordering::SeqCst);
                let all = Arc::clone(&all);
                tokio::spawn(async move {
                    let mut asked = [0; 4096];
                    for answer in answers {
                        let read = stream.read(&mut asked).await.unwrap();
                        assert!(read == 0 || asked.starts_with(b"POST /path?query HTTP/1.1\r\n"));
                        // In pieces, as a network may bring it.
                        for piece in answer.as_bytes().chunks(50) {
                            stream.write_all(piece).await.unwrap();
                            tokio::task::yield_now().await;
                        }
                    }
                    drop(stream);
                    all.closed.notify_one();
                });
            }
        });
        (url, seen)
    }

    async fn post(outbound: &Outbound, url: &str) -> Result<Response, Error> {
        let url = outbound.check(url)?;
        let body = Bytes::from_static(b"{}");
        outbound.send(Request { method: Method::POST, url, headers: HeaderMap::new(), body }).await
    }

    /// Returns when the runtime has heard of all that happened on connections before: something new happens on one.
    async fn heard() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::try_join!(listener.accept(), TcpStream::connect(address)).unwrap();
    }

    const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

    #[tokio::test]
    async fn a_connection_is_used_again() {
        let (url, seen) = server(&[OK, OK, OK]).await;
        let outbound = Outbound::trusted().unwrap();
        for _ in 0..3 {
            assert_eq!(post(&outbound, &url).await.unwrap().body, "ok");
        }
        assert_eq!(seen.connections.load(Ordering::SeqCst), 1);
    }

    #[tokio::test]
    async fn as_many_connections_as_exchanges_at_once() {
        let (url, seen) = server(&[OK, OK]).await;
        let outbound = Outbound::trusted().unwrap();
        for _ in 0..2 {
            let all = futures_util::future::join_all((0..5).map(|_| post(&outbound, &url))).await;
            assert!(all.iter().all(|answer| answer.as_ref().is_ok_and(|answer| answer.status == 200)));
        }
        assert_eq!(seen.connections.load(Ordering::SeqCst), 5);
    }

    #[tokio::test]
    async fn what_was_closed_meanwhile_is_not_used() {
        let (url, seen) = server(&[OK]).await;
        let outbound = Outbound::trusted().unwrap();
        for _ in 0..3 {
            assert_eq!(post(&outbound, &url).await.unwrap().status, 200);
            seen.closed.notified().await;
            heard().await;
        }
        assert_eq!(seen.connections.load(Ordering::SeqCst), 3);
    }

    #[tokio::test]
    async fn answers_end_as_they_say() {
        for (answer, status, body) in [
            ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n", 200, "abcde"),
            ("HTTP/1.1 200 OK\r\n\r\nuntil it is closed", 200, "until it is closed"),
            ("HTTP/1.0 200 OK\r\ncontent-length: 3\r\n\r\nold", 200, "old"),
            ("HTTP/1.1 204 No Content\r\n\r\n", 204, ""),
            ("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 503 Busy\r\ncontent-length: 4\r\n\r\nwait", 503, "wait"),
        ] {
            let answers: &'static [&'static str] = Box::leak(Box::new([answer]));
            let (url, _) = server(answers).await;
            let outbound = Outbound::trusted().unwrap();
            let answer = post(&outbound, &url).await.unwrap();
            assert_eq!((answer.status, &*answer.body), (status, body.as_bytes()));
        }
    }

    #[tokio::test]
    async fn an_answer_that_breaks_off_is_an_error() {
        for answer in ["HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nok", "HTTP/1.1 200", "no HTTP at all\r\n\r\n", ""] {
            let answers: &'static [&'static str] = Box::leak(Box::new([answer]));
            let (url, _) = server(answers).await;
            let error = post(&Outbound::trusted().unwrap(), &url).await.unwrap_err();
            assert!(matches!(error, Error::Broken { .. }) && error.was_sent(), "{error:?}");
        }
    }
}
