package inbox

import "time"

// SetRefusedTime changes how long the consumer tries a record again that the database refuses. It
// must be called before Run.
func (c *Consumer) SetRefusedTime(d time.Duration) { c.refusedTime = d }

// SetGroup changes the consumer group. It must be called before Run.
func (c *Consumer) SetGroup(name string) { c.group = name }
