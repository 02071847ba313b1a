//! What a reload can change.

use super::{good, variables};
use crate::config::Config;

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

#[test]
fn a_new_value_behind_the_same_reference_is_a_change() {
    let text = "[ntfy]\ntoken = { env = \"T\" }\n[amqp]\nkeys = [{ name = \"a\", key = { env = \"K\" } }]\n";
    let with = |token, key| Config::parse(text, variables(&[("T", token), ("K", key)])).unwrap();
    let difference = with("1", "1").reloadable_difference(&with("2", "1"));
    assert_eq!((difference.changed, difference.needs_restart), (vec![], vec!["ntfy.token".to_owned()]));
    assert_eq!(with("1", "1").reloadable_difference(&with("1", "2")).needs_restart, ["amqp.keys"]);
}
