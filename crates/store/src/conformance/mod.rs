//! The conformance suite: what every engine and every decorator must do, one behaviour per function.
//!
//! An engine's test binary names a function that makes a [`Suite`] around a store which has the tables of
//! [`tables`], and gets one test per case:
//!
//! ```text
//! mod memory {
//!     async fn setup() -> Suite { … }
//!     tidings_store::conformance_tests!(setup);
//! }
//! ```
//!
//! Keys start with the suite's `run`, so that the cases can share a database that outlives them. Nothing waits
//! for time to pass: expiry is tested with moments before and after the present, and with a clock that the
//! case moves only where the suite has one.

pub mod concurrency;
pub mod conditions;
pub mod cursors;
pub mod expiry;
pub mod indexes;
pub mod items;
pub mod limits;
pub mod queries;
pub mod suite;
pub mod updates;

pub use suite::{Suite, Tables};

use std::pin::Pin;

use crate::Table;

/// One case: a behaviour to prove; it panics where the store behaves otherwise.
pub type Case = for<'s> fn(&'s Suite) -> Pin<Box<dyn Future<Output = ()> + Send + 's>>;

/// The tables the cases write to; the store must have them before.
#[must_use]
pub fn tables() -> Vec<Table> {
    Tables::default().all()
}

/// Makes one test per case; `$setup` is an `async fn() -> Suite`. The crate needs tokio with `macros` and
/// `rt-multi-thread`.
///
/// The list of cases stands here, and only here.
#[macro_export]
macro_rules! conformance_tests {
    ($setup:path) => { $crate::conformance_tests! { @cases tests ($setup) } };
    (@cases $what:ident ($($arguments:tt)*)) => {
        $crate::conformance_tests! { @$what ($($arguments)*)
            items::puts_gets_overwrites_and_deletes
            items::deleting_nothing_is_no_error
            items::a_read_sees_the_last_write
            items::every_type_of_value_comes_back
            items::numbers_come_back_exactly
            items::keys_may_be_text_numbers_or_bytes
            items::items_with_similar_keys_stay_apart
            items::a_fresh_put_stores_the_item
            items::a_packed_item_is_stored_as_any_other
            limits::a_key_must_be_complete_and_of_its_type
            limits::a_key_must_not_be_empty
            limits::a_partition_key_has_at_most_2048_bytes
            limits::a_sort_key_has_at_most_1024_bytes
            limits::an_index_key_keeps_the_same_limits
            limits::an_item_has_at_most_400_kib
            limits::an_update_cannot_outgrow_an_item
            limits::a_transaction_has_1_to_100_writes
            limits::a_transaction_has_at_most_4_mib
            limits::a_transaction_names_an_item_once
            limits::items_nest_at_most_32_levels
            limits::an_attribute_has_a_name
            conditions::every_condition_holds_when_it_should
            conditions::conditions_nest
            conditions::every_kind_of_write_obeys_its_condition
            conditions::an_insert_refuses_what_is_there
            conditions::a_failed_condition_stops_the_whole_transaction
            conditions::a_conflict_names_every_failed_write_and_what_it_found
            conditions::conditions_see_the_items_before_the_transaction
            conditions::a_check_needs_a_condition
            updates::an_update_changes_what_it_names
            updates::an_update_creates_what_is_not_there
            updates::adding_and_appending_start_from_nothing
            updates::additions_are_exact
            updates::an_update_that_cannot_be_made_changes_nothing
            updates::an_update_cannot_change_the_key
            updates::an_update_names_each_attribute_once
            updates::an_update_needs_a_change
            indexes::an_index_has_only_the_items_with_its_keys
            indexes::an_entry_moves_with_its_item
            indexes::an_entry_goes_with_its_item
            indexes::an_index_key_must_be_of_its_type
            indexes::an_index_key_must_not_be_empty
            indexes::an_index_gives_whole_items
            indexes::an_index_gives_items_as_they_are_now
            indexes::an_index_may_lack_a_sort_key
            indexes::a_local_index_keeps_to_its_partition
            indexes::an_unknown_index_is_refused
            queries::text_is_in_the_order_of_its_bytes
            queries::numbers_are_in_the_order_of_their_values
            queries::bytes_are_in_order
            queries::index_numbers_are_in_the_order_of_their_values
            queries::index_bytes_are_in_order
            queries::a_prefix_finds_what_starts_so
            queries::a_query_keeps_to_its_partition
            queries::a_query_keeps_to_its_partition_of_bytes
            queries::an_empty_partition_gives_an_empty_page
            queries::a_table_without_sort_key_gives_the_one_item
            queries::ranges_that_cannot_be_are_refused
            cursors::pages_neither_repeat_nor_skip
            cursors::pages_hold_under_writes
            cursors::pages_of_a_range_stay_in_it
            cursors::pages_of_equal_index_keys_neither_repeat_nor_skip
            cursors::a_cursor_outlives_its_item
            cursors::a_page_ends_at_its_limit
            cursors::a_page_ends_at_one_mib
            cursors::a_foreign_cursor_is_refused
            expiry::an_expired_item_is_not_there
            expiry::an_expired_item_is_not_in_queries
            expiry::conditions_do_not_see_an_expired_item
            expiry::an_expired_item_can_be_written_anew
            expiry::an_update_of_an_expired_item_starts_anew
            expiry::an_update_of_an_expired_item_obeys_its_condition
            expiry::an_expiry_may_be_a_fraction_and_of_any_size
            expiry::an_expiry_that_is_no_number_never_comes
            expiry::an_expiry_can_be_put_off_or_removed
            expiry::an_item_expires_in_its_second
            concurrency::concurrent_additions_all_count
            concurrency::concurrent_additions_to_an_expired_item_all_count
            concurrency::concurrent_inserts_have_one_winner
            concurrency::transactions_of_one_call_stand_alone
            concurrency::concurrent_transactions_all_land
            concurrency::concurrent_decisions_lose_nothing
        }
    };
    (@tests ($setup:path) $($module:ident :: $case:ident)*) => {$(
        #[::tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $case() {
            let suite = $setup().await.case(stringify!($case));
            $crate::conformance::$module::$case(&suite).await;
        }
    )*};
    (@list () $($module:ident :: $case:ident)*) => {
        /// Every case by name, for those who run them otherwise than with `conformance_tests!`.
        pub const CASES: &[(&str, Case)] = &[$((stringify!($case), |suite| Box::pin($module::$case(suite)))),*];
    };
}

conformance_tests! { @cases list () }
