//! The names of all metrics, and what each says.

use metrics::{Unit, describe_counter, describe_gauge, describe_histogram};

pub(crate) const OPERATIONS: &str = "leasehold_operations_total";
pub(crate) const OPERATION_SECONDS: &str = "leasehold_operation_seconds";
pub(crate) const CONTENTION: &str = "leasehold_contention_total";
pub(crate) const HELD_LOCKS: &str = "leasehold_held_locks";
pub(crate) const WAIT_SECONDS: &str = "leasehold_wait_seconds";
pub(crate) const HOLD_SECONDS: &str = "leasehold_hold_seconds";
pub(crate) const LOST: &str = "leasehold_lost_total";
pub(crate) const STORE_CLOCK_STEPS: &str = "leasehold_store_clock_steps_total";

/// Describes what a store records to the recorder of this program. To do so twice does no harm.
pub(crate) fn describe_store() {
    describe_counter!(OPERATIONS, "Operations of the store, by operation and outcome.");
    describe_histogram!(OPERATION_SECONDS, Unit::Seconds, "How long operations of the store took.");
    describe_counter!(CONTENTION, "Acquires that found the lock taken.");
}

/// Describes what a handle records.
pub(crate) fn describe_handle() {
    describe_gauge!(HELD_LOCKS, "Locks that this program holds now.");
    describe_histogram!(WAIT_SECONDS, Unit::Seconds, "How long acquires waited, by outcome.");
    describe_histogram!(HOLD_SECONDS, Unit::Seconds, "How long locks were held.");
    describe_counter!(LOST, "Locks that were lost while they were held, by reason.");
    describe_counter!(STORE_CLOCK_STEPS, "Times that the clock of the store was set, by direction.");
}
