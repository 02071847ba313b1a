//! Seeing a change through although whoever asked for it has gone.
//!
//! A change is written first, and then memory hears of it: a token is forgotten, a queue opened, an answer kept. If the
//! connection ends in between, the rest of the handler would be dropped with it, and memory would say something else than
//! the store until the next start.

use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::runtime::Handle;

/// What a handler is to its caller comes in a box already.
type Work<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Waits for the work. If nobody waits any more once it has begun, it goes on by itself.
pub fn see_through<T: Send + 'static>(work: Work<T>) -> SeeThrough<T> {
    SeeThrough { work: Some(work), begun: false }
}

pub struct SeeThrough<T: Send + 'static> {
    /// Absent when it has ended, or has panicked.
    work: Option<Work<T>>,
    begun: bool,
}

impl<T: Send + 'static> Future for SeeThrough<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        let Some(mut work) = self.work.take() else { return Poll::Pending };
        self.begun = true;
        let polled = work.as_mut().poll(cx);
        if polled.is_pending() {
            self.work = Some(work);
        }
        polled
    }
}

impl<T: Send + 'static> Drop for SeeThrough<T> {
    fn drop(&mut self) {
        if let (Some(work), true, Ok(runtime)) = (self.work.take(), self.begun, Handle::try_current()) {
            drop(runtime.spawn(work));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures_util::FutureExt;
    use tokio::sync::{Notify, oneshot};

    use super::*;

    /// Work that waits for a word and then says that it is done.
    fn work(word: &Arc<Notify>) -> (impl Future<Output = u8> + Send + 'static, oneshot::Receiver<()>) {
        let (done, told) = oneshot::channel();
        let word = Arc::clone(word);
        let work = async move {
            word.notified().await;
            let _ = done.send(());
            7
        };
        (work, told)
    }

    #[tokio::test]
    async fn what_was_begun_ends_although_nobody_waits() {
        let word = Arc::new(Notify::new());
        let (work, told) = work(&word);
        let mut waiting = see_through(Box::pin(work));
        assert!((&mut waiting).now_or_never().is_none());
        drop(waiting);
        word.notify_one();
        told.await.expect("it went on");
    }

    #[tokio::test]
    async fn what_was_not_begun_is_not_done() {
        let word = Arc::new(Notify::new());
        word.notify_one();
        let (work, told) = work(&word);
        drop(see_through(Box::pin(work)));
        assert!(told.await.is_err());
    }

    #[tokio::test]
    async fn whoever_waits_gets_it() {
        let word = Arc::new(Notify::new());
        word.notify_one();
        assert_eq!(see_through(Box::pin(work(&word).0)).await, 7);
    }
}
