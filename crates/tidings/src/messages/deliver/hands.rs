//! Hands that stay, each of which does one piece of work after the other: the attempts of a channel. An attempt takes some
//! thousand bytes of memory, and to make and drop that for each would cost as much as a good part of what it does.
//!
//! The hands of a channel are crews, as many as the runtime has threads, and each crew is one task. What hands do is mostly
//! waiting, and the little beside it is done where what they need was a moment ago, not on another core each time; those of
//! a crew that are called at the same time cost one turn of its task.

use std::any::Any;
use std::collections::VecDeque;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use tokio::runtime::Handle;
use tokio::sync::{Notify, mpsc};

/// Hands that stay when there is nothing to do for them.
const KEPT: usize = 128;

/// What is done by hands.
pub(super) trait Work: Send + Sync + 'static {
    type Piece: Send;
    type Done: Send;
    /// What a hand keeps from one piece to the next.
    type Kit: Default + Send;

    fn work(&self, kit: &mut Self::Kit, piece: Self::Piece) -> impl Future<Output = Self::Done> + Send;
}

/// What came of a piece of work, or what a panic said. Whose that was is not known.
pub(super) type Ended<W> = Result<<W as Work>::Done, String>;

/// All of them end with this.
pub(super) struct Hands<W: Work> {
    bench: Arc<Bench<W>>,
    /// Each is called for one more hand in turn.
    crews: Vec<mpsc::UnboundedSender<()>>,
    called: usize,
    /// Pieces that were begun, and of whose end nobody has taken note.
    under_way: usize,
}

/// What is handed over between those who work and who has them do so.
struct Bench<W: Work> {
    what: Arc<W>,
    state: Mutex<State<W>>,
    /// Rung for one of the hands when there is something to do.
    begun: Notify,
    /// Rung when something has ended.
    ended: Notify,
}

struct State<W: Work> {
    /// Nobody has begun with these.
    next: VecDeque<W::Piece>,
    /// Nobody has taken note of these.
    ended: Vec<Ended<W>>,
    hands: usize,
    /// Hands that have something to do, or are about to.
    busy: usize,
}

impl<W: Work> Hands<W> {
    pub(super) fn new(what: Arc<W>) -> Self {
        let state = State { next: VecDeque::new(), ended: Vec::new(), hands: 0, busy: 0 };
        let bench = Arc::new(Bench { what, state: Mutex::new(state), begun: Notify::new(), ended: Notify::new() });
        let crew = |_| {
            let (crew, called) = mpsc::unbounded_channel();
            drop(tokio::spawn(work_together(Arc::clone(&bench), called)));
            crew
        };
        let crews = (0..Handle::current().metrics().num_workers()).map(crew).collect();
        Self { bench, crews, called: 0, under_way: 0 }
    }

    /// How much is under way.
    pub(super) const fn len(&self) -> usize {
        self.under_way
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.under_way == 0
    }

    /// Has a piece of work done.
    pub(super) fn begin(&mut self, piece: W::Piece) {
        self.under_way += 1;
        let mut state = self.bench.state();
        state.next.push_back(piece);
        state.busy += 1;
        let all_are_busy = state.busy > state.hands;
        state.hands += usize::from(all_are_busy);
        drop(state);
        if all_are_busy {
            self.called += 1;
            let crew = self.called.checked_rem(self.crews.len()).and_then(|place| self.crews.get(place));
            // Whoever is called is there for as long as the runtime is.
            let _ = crew.map(|crew| crew.send(()));
        } else {
            // Whoever worked last has everything at hand.
            self.bench.begun.notify_last();
        }
    }

    /// Waits until something has ended; gives all that has. With nothing under way, for ever.
    pub(super) async fn ended(&mut self) -> Vec<Ended<W>> {
        loop {
            let ended = std::mem::take(&mut self.bench.state().ended);
            if !ended.is_empty() {
                self.under_way -= ended.len();
                return ended;
            }
            self.bench.ended.notified().await;
        }
    }
}

impl<W: Work> Bench<W> {
    fn state(&self) -> MutexGuard<'_, State<W>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is to be done next; `None` if there is nothing, and others are there to wait for it.
    async fn next(&self) -> Option<W::Piece> {
        loop {
            let mut begun = pin!(self.begun.notified());
            // From now on it is heard when there is something, also during the look for it.
            begun.as_mut().enable();
            {
                let mut state = self.state();
                if let Some(piece) = state.next.pop_front() {
                    return Some(piece);
                }
                if state.hands > KEPT.max(state.busy) {
                    state.hands -= 1;
                    return None;
                }
            }
            begun.await;
        }
    }
}

/// The task of a crew, for as long as more hands may be called.
async fn work_together<W: Work>(bench: Arc<Bench<W>>, mut called: mpsc::UnboundedReceiver<()>) {
    let mut hands = FuturesUnordered::new();
    loop {
        tokio::select! {
            more = called.recv() => match more {
                Some(()) => hands.push(work(Arc::clone(&bench))),
                None => return,
            },
            // One that was not needed any more has gone.
            Some(()) = hands.next() => {}
        }
    }
}

/// Does one piece after the other.
async fn work<W: Work>(bench: Arc<Bench<W>>) {
    let mut kit = W::Kit::default();
    while let Some(piece) = bench.next().await {
        let ended = AssertUnwindSafe(bench.what.work(&mut kit, piece)).catch_unwind().await;
        let mut state = bench.state();
        state.busy -= 1;
        state.ended.push(ended.map_err(|panic| said(&*panic)));
        drop(state);
        bench.ended.notify_one();
    }
}

fn said(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("it does not say why").to_owned()
}

#[cfg(test)]
mod tests {
    use tokio::sync::Semaphore;

    use super::*;

    /// Work that goes on as soon as it is let.
    struct Letting(Semaphore);

    impl Work for Letting {
        type Piece = usize;
        type Done = usize;
        type Kit = ();

        async fn work(&self, (): &mut (), piece: usize) -> usize {
            self.0.acquire().await.unwrap().forget();
            assert!(piece != 13, "an unlucky one");
            piece
        }
    }

    async fn all_ended(hands: &mut Hands<Letting>) -> Vec<Ended<Letting>> {
        let mut all = Vec::new();
        while !hands.is_empty() {
            all.extend(hands.ended().await);
        }
        all
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn everything_is_done_once_and_those_who_have_nothing_to_do_are_few() {
        let mut hands = Hands::new(Arc::new(Letting(Semaphore::new(0))));
        for round in 1..=20 {
            let many = if round % 2 == 0 { KEPT * 3 } else { round };
            (100..100 + many).for_each(|piece| hands.begin(piece));
            assert_eq!(hands.len(), many);
            hands.bench.what.0.add_permits(many);
            let mut done: Vec<_> = all_ended(&mut hands).await.into_iter().map(Result::unwrap).collect();
            done.sort_unstable();
            assert!(done.into_iter().eq(100..100 + many), "round {round}");
        }
        let state = hands.bench.state();
        assert!(state.busy == 0 && state.hands >= KEPT && state.hands <= KEPT * 3);
    }

    #[tokio::test]
    async fn as_many_work_at_once_as_there_is_to_do() {
        let mut hands = Hands::new(Arc::new(Letting(Semaphore::new(0))));
        for many in [1, KEPT * 2, 3] {
            (100..100 + many).for_each(|piece| hands.begin(piece));
            // All of them wait to be let: one who lets them all lets nobody wait for another's end.
            while !hands.bench.state().next.is_empty() {
                tokio::task::yield_now().await;
            }
            hands.bench.what.0.add_permits(many);
            assert_eq!(all_ended(&mut hands).await.len(), many);
        }
        while hands.bench.state().hands > KEPT {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn a_panic_ends_one_piece_alone() {
        let mut hands = Hands::new(Arc::new(Letting(Semaphore::new(9))));
        [12, 13, 14].into_iter().for_each(|piece| hands.begin(piece));
        let ended = all_ended(&mut hands).await;
        assert_eq!(ended.iter().filter(|ended| ended.is_ok()).count(), 2);
        assert!(ended.contains(&Err("an unlucky one".to_owned())));
        hands.begin(15);
        assert_eq!(all_ended(&mut hands).await, [Ok(15)]);
        assert_eq!(hands.bench.state().hands, 3);
    }

    /// Work of which one piece always has something to do at once.
    struct Restless;

    impl Work for Restless {
        type Piece = usize;
        type Done = usize;
        type Kit = ();

        async fn work(&self, (): &mut (), piece: usize) -> usize {
            loop {
                tokio::task::consume_budget().await;
                if piece > 0 {
                    return piece;
                }
            }
        }
    }

    #[tokio::test]
    async fn who_never_has_to_wait_holds_up_nobody() {
        let mut hands = Hands::new(Arc::new(Restless));
        (0..KEPT * 2).for_each(|piece| hands.begin(piece));
        let mut done = Vec::new();
        while hands.len() > 1 {
            done.extend(hands.ended().await.into_iter().map(Result::unwrap));
        }
        done.sort_unstable();
        assert!(done.into_iter().eq(1..KEPT * 2));
    }
}
