package inbox

import (
	"context"
	"time"
)

// SetViolationTimeout changes how long the consumer retries a record that the database rejects. It
// must be called before Run.
func (c *Consumer) SetViolationTimeout(d time.Duration) { c.violationTimeout = d }

// SetGroup changes the name of the consumer group. It must be called before Run.
func (c *Consumer) SetGroup(name string) { c.group = name }

// ReplayPass makes one pass of a replay of one key. It returns the number of applied records and,
// for each partition that was read, the offset after the last record that was read.
func (c *Consumer) ReplayPass(ctx context.Context, topic, key string) (applied int, next map[int32]int64, err error) {
	r := c.newReplay(replayScope{topic: topic, oneKey: true, key: key})
	parked, first, err := c.countParked(ctx, r.scope)
	if err != nil {
		return 0, nil, err
	}
	applied, err = r.pass(ctx, parked, first)
	return applied, r.next, err
}
