//! Every pair of states, and deliveries from their first attempt to their end.

use super::*;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

fn policy() -> Policy {
    Policy { jitter: false, ..Policy::default() }
}

fn retry(error: &str) -> Input {
    Input::Ended { verdict: Verdict::Retry { after: None, error: error.to_owned(), code: None }, random: 0 }
}

fn reject(error: &str, code: u16) -> Input {
    Input::Ended { verdict: Verdict::Reject { error: error.to_owned(), code: Some(code) }, random: 0 }
}

fn delivered(id: &str) -> Input {
    Input::Ended { verdict: Verdict::Delivered { notification_id: Some(id.to_owned()) }, random: 0 }
}

/// The delivery after all the inputs, one second apart, and the last one's actions.
fn after(inputs: &[Input]) -> (Delivery, Vec<Action>) {
    let (mut delivery, mut actions) = (Delivery::default(), Vec::new());
    for (second, input) in (0..).zip(inputs) {
        (delivery, actions) = step(&delivery, &policy(), input.clone(), at(second)).unwrap();
    }
    (delivery, actions)
}

// S002-43 to S002-48, S002-55
#[test]
fn exactly_five_of_the_25_pairs_are_legal() {
    use Status::{Completed, Created, Failed, Processing, Queued};
    let legal =
        [(Created, Queued), (Created, Processing), (Queued, Processing), (Processing, Completed), (Processing, Failed)];
    let mut pairs = 0;
    for from in Status::ALL {
        for to in Status::ALL {
            pairs += 1;
            assert_eq!(from.may_become(to), legal.contains(&(from, to)), "{from:?} to {to:?}");
        }
    }
    assert_eq!(pairs, 25);
}

// S002-44 to S002-46, S002-68
#[test]
fn the_good_way_ends_completed_with_the_id() {
    let (delivery, actions) = after(&[Input::Queued, Input::TakenUp, delivered("hwQ2YpKdmgXK")]);
    assert_eq!((delivery.status, actions), (Status::Completed, vec![Action::Complete]));
    assert_eq!(delivery.notification_id.as_deref(), Some("hwQ2YpKdmgXK"));
    let attempt = &delivery.attempts[0];
    assert_eq!((attempt.number, attempt.started_at, attempt.ended_at), (1, at(1), Some(at(2))));
    assert_eq!(attempt.outcome, Some(AttemptOutcome::Delivered));
}

// S002-47, S002-49, S002-50, S003-91
#[test]
fn five_retries_then_a_dead_letter() {
    let (mut delivery, _) = after(&[Input::Queued]);
    let (mut now, mut waits) = (0, Vec::new());
    loop {
        let (next, actions) = step(&delivery, &policy(), Input::TakenUp, at(now)).unwrap();
        assert_eq!(actions, [Action::Send { attempt: waits.len() as u32 + 1 }]);
        let (next, actions) = step(&next, &policy(), retry("connection refused"), at(now)).unwrap();
        delivery = next;
        match &actions[..] {
            [Action::RetryAt(then)] => {
                assert_eq!((delivery.status, delivery.next_attempt_at), (Status::Processing, Some(*then)));
                let wait = then.as_second() - at(now).as_second();
                waits.push(wait);
                assert_eq!(delivery.retry_count as usize, waits.len());
                now += wait;
            }
            [Action::DeadLetter { reason }] => {
                assert_eq!(reason, "connection refused (after 6 attempts)");
                break;
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(waits, [1, 2, 4, 8, 16]);
    assert_eq!((delivery.status, delivery.attempts.len(), delivery.next_attempt_at), (Status::Failed, 6, None));
    assert_eq!(delivery.error_message.as_deref(), Some("connection refused (after 6 attempts)"));
}

// S002-47, S002-50
#[test]
fn a_permanent_error_fails_at_once() {
    let (delivery, actions) = after(&[Input::TakenUp, reject("404 topic not found", 404)]);
    assert_eq!(actions, [Action::DeadLetter { reason: "404 topic not found".to_owned() }]);
    assert_eq!((delivery.status, delivery.retry_count, delivery.attempts[0].code), (Status::Failed, 0, Some(404)));
}

// S002-50
#[test]
fn retry_after_moves_the_next_attempt() {
    let (delivery, _) = after(&[Input::TakenUp]);
    let verdict = Verdict::Retry { after: Some(Duration::from_secs(90)), error: "429".to_owned(), code: Some(429) };
    let (_, actions) = step(&delivery, &policy(), Input::Ended { verdict, random: 0 }, at(10)).unwrap();
    assert_eq!(actions, [Action::RetryAt(at(100))]);
}

// S002-51
#[test]
fn a_crash_in_processing_is_taken_up_again_and_counts() {
    let (mut delivery, actions) = after(&[Input::Queued, Input::TakenUp, Input::TakenUp]);
    assert_eq!(actions, [Action::Send { attempt: 2 }]);
    assert_eq!((delivery.status, delivery.retry_count), (Status::Processing, 1));
    assert_eq!(delivery.attempts[0].outcome, Some(AttemptOutcome::Lost));
    // A message that kills every worker ends as well.
    let mut last = Vec::new();
    while delivery.status == Status::Processing {
        (delivery, last) = step(&delivery, &policy(), Input::TakenUp, at(9)).unwrap();
    }
    assert!(matches!(last[..], [Action::DeadLetter { .. }]), "{last:?}");
    assert_eq!((delivery.status, delivery.attempts.len()), (Status::Failed, 6));
}

// S002-48, S002-53
#[test]
fn what_is_final_stays_final() {
    for end in [delivered("x"), reject("no", 400)] {
        let (done, _) = after(&[Input::TakenUp, end]);
        for input in [Input::Queued, Input::TakenUp, delivered("y"), retry("e"), reject("e", 400), Input::Cancelled] {
            let mut same = done.clone();
            let conflict = same.step(&policy(), input, at(60)).unwrap_err();
            assert_eq!(conflict.status, done.status);
            assert_eq!(same, done);
        }
    }
}

#[test]
fn only_what_was_taken_up_can_end() {
    for inputs in [&[][..], &[Input::Queued][..], &[Input::TakenUp, retry("e")][..]] {
        let (delivery, _) = after(inputs);
        assert!(step(&delivery, &policy(), delivered("x"), at(60)).is_err(), "{inputs:?}");
    }
    let (queued, _) = after(&[Input::Queued]);
    assert!(step(&queued, &policy(), Input::Queued, at(1)).is_err());
}

#[test]
fn cancelling_fails_what_is_not_under_way() {
    for inputs in [&[][..], &[Input::Queued][..], &[Input::TakenUp, retry("e")][..]] {
        let (delivery, _) = after(inputs);
        let (cancelled, actions) = step(&delivery, &policy(), Input::Cancelled, at(60)).unwrap();
        assert_eq!((cancelled.status, cancelled.next_attempt_at, actions), (Status::Failed, None, vec![]));
        assert_eq!(cancelled.error_message.as_deref(), Some("cancelled"));
    }
    let (sending, _) = after(&[Input::TakenUp]);
    let conflict = step(&sending, &policy(), Input::Cancelled, at(60)).unwrap_err();
    assert_eq!(conflict.to_string(), "a message that is processing cannot be cancelled");
}

// SX-06
#[test]
fn the_policy_overrules_the_channel() {
    let policy = Policy { retry_on: vec![404], fail_on: vec![503], jitter: false, ..Policy::default() };
    let (delivery, _) = after(&[Input::TakenUp]);
    let (_, actions) = step(&delivery, &policy, reject("404", 404), at(1)).unwrap();
    assert_eq!(actions, [Action::RetryAt(at(2))]);
    let verdict = Verdict::Retry { after: None, error: "503".to_owned(), code: Some(503) };
    let (failed, _) = step(&delivery, &policy, Input::Ended { verdict, random: 0 }, at(1)).unwrap();
    assert_eq!(failed.status, Status::Failed);
}

#[test]
fn errors_are_shortened_and_time_never_runs_backward() {
    let (delivery, _) = after(&[Input::TakenUp]);
    let (next, _) = step(&delivery, &policy(), retry(&"é".repeat(5000)), at(-7200)).unwrap();
    assert_eq!(next.error_message.as_deref().map(|error| error.chars().count()), Some(ERROR_CHARS));
    assert_eq!(next.attempts[0].ended_at, Some(next.attempts[0].started_at));
}

#[test]
fn a_delivery_survives_json() {
    let (delivery, _) = after(&[Input::Queued, Input::TakenUp, retry("e"), Input::TakenUp]);
    let text = serde_json::to_string(&delivery).unwrap();
    assert!(text.contains(r#""started_at":"2027-01-15T08:00:01.000000Z""#), "{text}");
    assert_eq!(serde_json::from_str::<Delivery>(&text).unwrap(), delivery);
}

// S000-50: who stops in the middle goes on where it was, also in the last attempt.
#[test]
fn an_attempt_that_we_end_ourselves_uses_up_no_retry() {
    let interrupted = || Input::Ended { verdict: Verdict::Interrupted { error: "stopped".to_owned() }, random: 0 };
    let mut inputs = vec![Input::Queued];
    for _ in 0..5 {
        inputs.extend([Input::TakenUp, retry("connection refused")]);
    }
    inputs.extend([Input::TakenUp, interrupted()]);
    let (delivery, actions) = after(&inputs);
    let ended = at(12);
    assert_eq!(
        (delivery.status, delivery.retry_count, &actions[..]),
        (Status::Processing, 5, &[Action::RetryAt(ended)][..])
    );
    assert_eq!((delivery.next_attempt_at, delivery.in_flight()), (Some(ended), false));
    assert_eq!(delivery.error_message.as_deref(), Some("stopped"));
    inputs.extend([Input::TakenUp, delivered("n")]);
    assert_eq!(after(&inputs).0.status, Status::Completed);
}
