//! Stores around stores: each adds one thing and passes everything on.

#[cfg(feature = "metrics")]
mod metrics;
mod telemetry;

#[cfg(feature = "metrics")]
pub use metrics::MetricsLayer;
pub use telemetry::{EventResult, EventType, LockEvent, Reason, TelemetryLayer};
