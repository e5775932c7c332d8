package sip

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"ringfence.dev/services/dialer/internal/call"
	"ringfence.dev/services/dialer/internal/carrier"
	"ringfence.dev/services/dialer/internal/signal"
	"ringfence.dev/services/dialer/internal/signal/line"
	"ringfence.dev/services/dialer/internal/store/journal"
	"ringfence.dev/services/dialer/internal/trunk"
)

// firstWord is how long a trunk may say nothing at all to an INVITE.
const firstWord = 5 * time.Second

func transports() map[trunk.Transport]string {
	return map[trunk.Transport]string{trunk.UDP: line.UDP, trunk.TCP: line.TCP, trunk.TLS: line.TLS}
}

func hostPort(host string, port uint16) string {
	return net.JoinHostPort(host, strconv.Itoa(int(port)))
}

// Originate sends one INVITE to the first trunk, after what would end the call is in the journal. It waits for the trunk's first word.
func (c *Carrier) Originate(ctx context.Context, o carrier.Originate) error {
	if !c.asked.First(o.CallID) {
		return fmt.Errorf("originate %s: %w", o.CallID, carrier.ErrAsked)
	}
	active, err := c.trunks.Active(ctx)
	if err == nil && len(active) == 0 {
		err = errors.New("no trunk is active; set one up under /admin/v1/trunks")
	}
	if err != nil {
		return unsent(o, err)
	}
	over := active[0]
	talk, err := c.talks.Begin(ctx, o.CallID, over)
	if err != nil {
		return unsent(o, err)
	}
	said := make(chan error, 1)
	l := &leg{carrier: c, callID: o.CallID, talk: talk, said: said}
	c.enter(l)
	from := over.CallerID(o.From)
	d, err := c.agent.Invite(ctx, wire(over), signal.Invite{
		CallID: o.CallID.String(), From: over.Write(from), To: over.Write(o.To), Body: talk.Offer(), FirstResponse: firstWord, Ring: c.cfg.Ring,
	}, l.observer(journal.Call{CallID: o.CallID, TrunkID: over.TrunkID, From: o.From, To: o.To, DialedAt: &o.DialedAt}))
	if err != nil {
		return c.nothingLeft(ctx, l, o, err)
	}
	l.join(d)
	select {
	case err := <-said:
		if err != nil {
			err = fmt.Errorf("originate %s: %w", o.CallID, err)
		}
		return err
	case <-ctx.Done():
	}
	l.mu.Lock()
	l.said = nil
	l.mu.Unlock()
	select {
	case err := <-said: // in this very instant
		return err
	default:
		return fmt.Errorf("originate %s: %w", o.CallID, ctx.Err())
	}
}

// nothingLeft ends a call whose INVITE was never sent.
func (c *Carrier) nothingLeft(ctx context.Context, l *leg, o carrier.Originate, why error) error {
	l.talk.End()
	c.leave(l)
	if errors.Is(why, journal.ErrBegun) { // another process has it
		return fmt.Errorf("originate %s: %w", o.CallID, carrier.ErrAsked)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	if err := c.journal.Forget(ctx, o.CallID); err != nil {
		c.warn("a call that never left stays in the journal", o.CallID, err)
	}
	return unsent(o, why)
}

func unsent(o carrier.Originate, why error) error {
	return &carrier.Refused{Cause: call.NetworkOutOfOrder, Unsent: true, Err: fmt.Errorf("originate %s: %w", o.CallID, why)}
}
