package otel

// PendingAttr marks a span whose work is queued; v1.43.0 does not have it yet.
const PendingAttr = "dagger.io/ui.pending"
