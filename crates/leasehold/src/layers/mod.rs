//! Stores around stores: each adds one thing and passes everything on.

mod fault;
mod metrics;
mod telemetry;

pub use fault::{Fault, FaultLayer, Faults};
pub use metrics::MetricsLayer;
pub use telemetry::{EventResult, EventType, LockEvent, Reason, TelemetryLayer};
