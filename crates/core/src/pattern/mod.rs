//! EventBridge patterns.
