//! What a reload can change.

use super::{good, variables};
use crate::config::Config;
use crate::config::difference::AT_RUN_TIME;

#[test]
fn the_same_configuration_has_no_difference() {
    let config = good("ntfy.token = \"t\"");
    assert_eq!(config.reloadable_difference(&config), crate::config::Difference::default());
}

#[test]
fn sockets_and_the_store_wait_for_a_restart_and_the_rest_does_not() {
    let old = Config::default();
    let new = good(
        r#"listen = "127.0.0.1:1"
public_url = "http://x"
[store]
cache_mb = 100
[push]
listen = ""
[log]
level = "debug"
format = "json"
[limits]
body_bytes = 2048
connections = 5
[[rules]]
name = "r"
pattern = { a = [1] }
targets = [{ channel = "ntfy" }]
"#,
    );
    let difference = old.reloadable_difference(&new);
    assert_eq!(difference.changed, ["limits.body_bytes", "rules"]);
    assert_eq!(
        difference.needs_restart,
        ["limits.connections", "listen", "log.format", "log.level", "public_url", "push.listen", "store.cache_mb"]
    );
    assert_eq!(new.reloadable_difference(&old), difference);
}

// What waits for a restart waits until then, however often the file is read.
#[test]
fn what_is_taken_over_is_no_difference_any_more_and_the_rest_still_is() {
    let new = good(
        r#"stage = "prod"
[process_alerts]
recipients = ["a@b.example"]
authorized_accounts = ["x"]
region = "eu-west-1"
endpoint = "http://127.0.0.1:1"
refresh_seconds = 5
keep_from_arrival = true
subject = "s"
text = "t"
html = "h"
digest_seconds = 5
process_name_fields = ["a"]
work_item_type_fields = ["a"]
field_reference_name_fields = ["a"]
state_name_fields = ["a"]
[notification_center]
link = "https://a.example"
map_file = "Cargo.toml"
[limits]
body_bytes = 2048
event_bytes = 2048
batch_events = 5
request_timeout_seconds = 5
upload_bytes = 4096
connections = 5
[[rules]]
name = "r"
pattern = { a = [1] }
targets = [{ channel = "ntfy" }]
[[monitors]]
name = "m"
metric = "dead_letters"
entity = "q"
[[schedules]]
name = "s"
every = "5m"
message_type = "reminder"
payload = { text = "t" }
[[queues]]
name = "q"
"#,
    );
    let mut current = Config::default();
    let first = current.reloadable_difference(&new);
    let mut changed = AT_RUN_TIME.map(ToOwned::to_owned).to_vec();
    changed.sort();
    assert_eq!(first.changed, changed, "the text above has every key that can change");
    current.take_over(new.clone());
    let second = current.reloadable_difference(&new);
    assert_eq!((second.changed, second.needs_restart), (vec![], first.needs_restart));
    let mut taken = Config::default();
    taken.take_over(new.clone());
    assert_eq!((taken.process_alerts.refresh_seconds, &taken.process_alerts.region), (60, &None));
}

#[test]
fn a_new_value_behind_the_same_reference_is_a_change() {
    let text = "[ntfy]\ntoken = { env = \"T\" }\n[amqp]\nkeys = [{ name = \"a\", key = { env = \"K\" } }]\n";
    let with = |token, key| Config::parse(text, variables(&[("T", token), ("K", key)])).unwrap();
    let difference = with("1", "1").reloadable_difference(&with("2", "1"));
    assert_eq!((difference.changed, difference.needs_restart), (vec![], vec!["ntfy.token".to_owned()]));
    assert_eq!(with("1", "1").reloadable_difference(&with("1", "2")).needs_restart, ["amqp.keys"]);
}
