//! One test, two engines: what is proved of the embedded store holds on DynamoDB as well.

use std::cell::Cell;

thread_local! {
    static DYNAMODB: Cell<bool> = const { Cell::new(false) };
}

/// Whether the servers of this test are to work on DynamoDB. `TIDINGS_TEST_ENGINE=dynamodb` says so of all tests of a run.
pub fn is_dynamodb() -> bool {
    DYNAMODB.get() || std::env::var("TIDINGS_TEST_ENGINE").is_ok_and(|engine| engine == "dynamodb")
}

/// Where DynamoDB Local is.
pub fn endpoint() -> String {
    std::env::var("TIDINGS_DYNAMODB_ENDPOINT")
        .expect("this test needs DynamoDB Local: run it with scripts/with-dynamodb-local")
}

/// Runs a test with its servers on DynamoDB Local. A test's own future runs on the thread that called it, whatever
/// else its runtime has.
pub fn run_on_dynamodb(test: fn()) {
    struct Back;
    impl Drop for Back {
        fn drop(&mut self) {
            DYNAMODB.set(false);
        }
    }
    DYNAMODB.set(true);
    let _back = Back;
    test();
}

/// Makes a second test of each of these, which are on the embedded store: the same on DynamoDB Local.
macro_rules! on_dynamodb {
    ($($test:ident),+ $(,)?) => {
        mod on_dynamodb {
            $(
                #[test]
                fn $test() {
                    crate::support::engines::run_on_dynamodb(super::$test);
                }
            )+
        }
    };
}
pub(crate) use on_dynamodb;
