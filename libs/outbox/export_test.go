package outbox

import "time"

// SetAckTimeout changes how long the relay waits for Kafka's next acknowledgement. It must be
// called before Run.
func (r *Relay) SetAckTimeout(timeout time.Duration) { r.ackTimeout = timeout }
