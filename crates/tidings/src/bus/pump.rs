//! The pumps of push subscriptions. Each message becomes a message of the webhook channel, which delivers it with a
//! signature and retries; the message of the bus stays where it is, under a lock that does not run out, until it is known
//! what became of the other. Then it is completed, or a dead letter of its subscription. So an ordered subscription goes
//! on with the next message of a key when the one before has arrived or is given up.
//!
//! Nothing of this is remembered: after a restart the message is received again, and the webhook message, whose id
//! follows from it, is found.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, broadcast, mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;

use super::definition::{Definition, Push};
use super::line::{Line, LineError};
use super::push::Ending;
use super::state::Taken;
use super::{Bus, Path};
use crate::messages::{Message, Messages};
use crate::workers::turned_true;

/// Messages that are handed over at once.
const BATCH: usize = 32;
/// Messages of one subscription that are under way at the most; the others wait in the bus.
const UNDER_WAY: usize = 256;
const WAIT: Duration = Duration::from_secs(60);
/// How often it is seen to that every push subscription has its pump, and what became of messages of which nobody said
/// anything: who cancels one does not, nor does another node.
const LOOK: Duration = Duration::from_secs(1);
/// The same where each look is paid for.
const LOOK_AMONG_NODES: Duration = Duration::from_secs(5);

/// The tasks that pump, by path and generation of the line.
type Pumps = BTreeMap<(String, String), JoinHandle<()>>;

impl Bus {
    /// Hands the messages of push subscriptions over until told to stop.
    pub async fn push(self: Arc<Self>, messages: Arc<Messages>, mut stop: watch::Receiver<bool>) {
        let mut pumps = Pumps::new();
        loop {
            self.see_to(&mut pumps, &messages);
            tokio::select! {
                () = tokio::time::sleep(LOOK) => {}
                () = self.pushing.notified() => {}
                () = turned_true(&mut stop) => break,
            }
        }
        for task in pumps.into_values() {
            let _ = task.await;
        }
    }

    /// Pumps end by themselves, between two messages.
    fn see_to(self: &Arc<Self>, pumps: &mut Pumps, messages: &Arc<Messages>) {
        pumps.retain(|_, task| !task.is_finished());
        for record in self.records().into_iter().filter(|record| record.definition.push.is_some()) {
            let Some(path) = Path::parse(&record.path) else { continue };
            let Ok(line) = self.line(&path) else { continue };
            let name = (record.path, line.layout.generation().to_owned());
            pumps.entry(name).or_insert_with(|| tokio::spawn(pump(Arc::clone(self), path, line, Arc::clone(messages))));
        }
    }

    /// Where the messages of a line go now, and how; none: to whoever fetches them.
    fn endpoint(&self, path: &Path, line: &Arc<Line>) -> Option<(Push, Definition)> {
        let same = self.line(path).is_ok_and(|now| Arc::ptr_eq(&now, line));
        let definition = self.record(path).filter(|_| same)?.definition;
        Some((definition.push.clone()?, definition))
    }
}

/// A message that was handed over: the webhook message's id, and what is to be ended when that has ended.
struct Handed {
    id: String,
    taken: Taken,
    room: OwnedSemaphorePermit,
}

async fn pump(bus: Arc<Bus>, path: Path, line: Arc<Line>, messages: Arc<Messages>) {
    let (handed, waiting) = mpsc::unbounded_channel();
    // Before the first is handed over: nothing that ends is missed.
    let ended = messages.pushed.subscribe();
    let following = tokio::spawn(follow(Arc::clone(&line), Arc::clone(&messages), waiting, ended));
    let room = Arc::new(Semaphore::new(UNDER_WAY));
    let mut stopping = line.shared.stopping.clone();
    while !*stopping.borrow() && bus.endpoint(&path, &line).is_some() {
        let first = tokio::select! {
            first = Arc::clone(&room).acquire_owned() => first,
            () = turned_true(&mut stopping) => break,
        };
        let Ok(first) = first else { break };
        let most = (room.available_permits() + 1).min(BATCH);
        match line.receive_to_push(most, WAIT).await {
            Ok(taken) => {
                let mut first = Some(first);
                let permits =
                    taken.iter().map_while(|_| first.take().or_else(|| Arc::clone(&room).try_acquire_owned().ok()));
                let permits: Vec<_> = permits.collect();
                // As it is at this moment: whoever has changed it may have had a reason.
                match bus.endpoint(&path, &line) {
                    Some((push, definition)) => {
                        let taken = taken.into_iter().zip(permits).collect();
                        hand_over(&line, taken, (&push, &definition), &messages, &handed).await;
                    }
                    None => taken.iter().for_each(|taken| line.give_back(taken)),
                }
            }
            Err(LineError::Elsewhere) => line.wait_for_ours(LOOK, &mut line.shared.stopping.clone()).await,
            Err(LineError::Gone) => return,
            Err(error) => {
                tracing::warn!(line = line.path, %error, "cannot receive for its push endpoint; it will be tried again");
                tokio::time::sleep(LOOK).await;
            }
        }
    }
    if *stopping.borrow() {
        let _ = following.await;
    }
}

/// Makes webhook messages of messages, all at once.
async fn hand_over(
    line: &Arc<Line>,
    taken: Vec<(Taken, OwnedSemaphorePermit)>,
    (push, definition): (&Push, &Definition),
    messages: &Messages,
    handed: &mpsc::UnboundedSender<Handed>,
) {
    let (mut going, mut made): (Vec<Handed>, Vec<Message>) = (Vec::new(), Vec::new());
    let mut failed = None;
    for (taken, room) in taken {
        let message = line.webhook(&taken.held, push, definition, messages);
        match message.to_item().and_then(|item| messages.table.check_item(&item)) {
            Ok(()) => {
                going.push(Handed { id: message.message_id.clone(), taken, room });
                made.push(message);
            }
            // It will not get better.
            Err(error) => {
                if let Err(error) = line.end_push(&taken, Ending::Unfit(error.to_string())).await {
                    line.give_back(&taken);
                    failed = Some(error.to_string());
                }
            }
        }
    }
    match messages.create(made).await {
        Ok(_) => going.into_iter().for_each(|one| drop(handed.send(one))),
        Err(error) => {
            // Those that were stored are found when they are handed over again.
            going.iter().for_each(|one| line.give_back(&one.taken));
            failed = Some(error.to_string());
        }
    }
    if let Some(error) = failed {
        tracing::warn!(line = line.path, error, "cannot hand over to its push endpoint; it will be tried again");
        tokio::time::sleep(LOOK).await;
    }
}

/// Ends messages that were handed over when their webhook messages have ended.
async fn follow(
    line: Arc<Line>,
    messages: Arc<Messages>,
    mut handed: mpsc::UnboundedReceiver<Handed>,
    mut ended: broadcast::Receiver<String>,
) {
    let mut stopping = line.shared.stopping.clone();
    let every = if line.shared.nodes.is_some() { LOOK_AMONG_NODES } else { LOOK };
    let mut under_way: HashMap<String, (Taken, OwnedSemaphorePermit)> = HashMap::new();
    let mut looks = tokio::time::interval(every);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let asked: Vec<String> = tokio::select! {
            one = handed.recv(), if !handed.is_closed() || !handed.is_empty() => match one {
                Some(Handed { id, taken, room }) => {
                    under_way.insert(id.clone(), (taken, room));
                    // It may have ended before we knew of it.
                    vec![id]
                }
                None => Vec::new(),
            },
            // Whoever has nothing under way need not hear of others; of what comes then it hears by looking.
            one = ended.recv(), if !under_way.is_empty() => match one {
                Ok(id) => vec![id],
                Err(RecvError::Lagged(_)) => under_way.keys().cloned().collect(),
                Err(RecvError::Closed) => return,
            },
            _ = looks.tick(), if !under_way.is_empty() => {
                // What is another node's by now, that one receives anew.
                under_way.retain(|_, (taken, _)| taken.held.epoch == line.epoch());
                under_way.keys().cloned().collect()
            }
            () = turned_true(&mut stopping) => return,
        };
        for id in asked {
            let Some((taken, _)) = under_way.get(&id) else { continue };
            match conclude(&line, &messages, &id, taken).await {
                Ok(true) => drop(under_way.remove(&id)),
                Ok(false) => {}
                Err(error) => {
                    tracing::warn!(line = line.path, %error, "what became of a push cannot be stored yet");
                }
            }
        }
        if line.is_closed() || (under_way.is_empty() && handed.is_closed() && handed.is_empty()) {
            return;
        }
    }
}

/// Ends a message if its webhook message has ended; says whether there is nothing more to do.
async fn conclude(line: &Arc<Line>, messages: &Messages, id: &str, taken: &Taken) -> Result<bool, LineError> {
    let Some(stored) = messages.get(id).await? else {
        // Somebody threw it away: it is handed over again.
        line.give_back(taken);
        return Ok(true);
    };
    let Some(ending) = Ending::of(&stored.message) else { return Ok(false) };
    match line.end_push(taken, ending).await {
        Ok(()) | Err(LineError::Elsewhere | LineError::LockLost) => Ok(true),
        Err(error) => Err(error),
    }
}
