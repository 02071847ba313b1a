//! What the clock demands of a line, carried out: messages that expire, that were delivered too often, that wait again.

use std::sync::Arc;

use tidings_store::{Condition, Error};

use super::history::End;
use super::layout::{Delta, Place};
use super::line::Line;
use super::message::{EXPIRED, Stored};
use super::prepared::Prepared;
use super::state::{Action, Return};

impl Line {
    /// Carries out what the clock demands.
    pub(super) async fn carry_out(self: Arc<Self>, actions: Vec<Action>) {
        for action in actions {
            let outcome = match action {
                Action::DeadLetter { place, message, reason } => {
                    let description = "the message was delivered as often as maxDeliveryCount allows";
                    let outcome = match self.tell_given_up(&message, description).await {
                        Ok(()) => self.dispose(place, &message, Some((reason, description))).await,
                        Err(error) => Err(error),
                    };
                    self.disposed(place, message, outcome)
                }
                Action::Expire { place, message } => {
                    let outcome = self.expire(place, &message).await;
                    self.disposed(place, message, outcome)
                }
                Action::Return(back) => self.carry_back(back).await,
            };
            if let Err(error) = outcome {
                tracing::warn!(line = self.path, %error, "a message could not be moved; it will be tried again");
            }
            self.wake(1);
        }
    }

    fn disposed(&self, place: Place, message: Arc<Stored>, outcome: Result<(), Error>) -> Result<(), Error> {
        let mut state = self.state();
        match (place, &outcome) {
            (Place::Lane(lane, position), Ok(())) => state.lane(lane).gone(position),
            // It waits again, and the next one who comes by sees to it.
            (Place::Lane(lane, position), Err(_)) => state.lane(lane).put_back(position, message),
            (Place::Deferred(_), _) => state.free(place),
        }
        outcome
    }

    /// Stores that a delivery has failed.
    async fn carry_back(self: &Arc<Self>, back: Return) -> Result<(), Error> {
        let mut prepared = Prepared::default();
        let outcome = match self.put_return(back.place, Stored::clone(&back.message), back.due, &mut prepared) {
            Ok(()) => {
                prepared.fence(self, back.epoch);
                prepared.run(&*self.shared.store).await.map(drop)
            }
            Err(error) => Err(error),
        };
        let gone = matches!(&outcome, Err(Error::Conflict { .. }));
        let settings = self.settings();
        self.state().returned(back, &settings, outcome.is_ok() || gone);
        self.shared.alarm.notify_one();
        if gone {
            self.shared.doubt();
            return Ok(());
        }
        outcome
    }

    /// Takes away a message whose time is over.
    pub(super) async fn expire(self: &Arc<Self>, place: Place, message: &Stored) -> Result<(), Error> {
        let description = "the message was not received within its time to live";
        let dead = self.settings().dead_letter_expired;
        self.dispose(place, message, dead.then_some((EXPIRED, description))).await
    }

    /// Takes away a message that nobody has a lock on, if it is still there.
    async fn dispose(
        self: &Arc<Self>,
        place: Place,
        message: &Stored,
        letter: Option<(&'static str, &str)>,
    ) -> Result<(), Error> {
        let mut prepared = Prepared::default();
        self.take_away(place, message, Delta::default(), &mut prepared);
        // It may have gone by another way: then it is not counted twice.
        prepared.demand_first(Condition::Exists);
        if let Some((reason, description)) = letter {
            self.put_dead(message, reason, Some(description), &mut prepared).await?;
        } else {
            let row = self.row(message, End::Expired, message.deliveries);
            row.into_iter().for_each(|row| prepared.write(row));
        }
        match prepared.run(&*self.shared.store).await {
            Ok(_) => Ok(()),
            Err(Error::Conflict { .. }) => {
                self.shared.doubt();
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}
