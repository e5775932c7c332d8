package inbox

import "time"

// SetRefusedTime changes how long the consumer retries a record that the database rejects. It must
// be called before Run.
func (c *Consumer) SetRefusedTime(d time.Duration) { c.refusedTime = d }

// SetGroup changes the name of the consumer group. It must be called before Run.
func (c *Consumer) SetGroup(name string) { c.group = name }
