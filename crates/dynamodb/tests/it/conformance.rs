//! The whole suite on DynamoDB Local. Its tables are shared by the tests, its keys are not.

use std::sync::Arc;

use tidings_store::conformance::{self, Suite};

use crate::support::{clock, unique, with_tables};

async fn setup() -> Suite {
    let clock = clock();
    let store = with_tables("suite-", &conformance::tables(), &clock).await;
    Suite::with_manual_clock(Arc::new(store), clock, unique())
}

tidings_store::conformance_tests!(setup);
