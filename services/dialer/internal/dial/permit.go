package dial

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"ringfence.dev/services/dialer/internal/dialqueue"
	"ringfence.dev/services/dialer/internal/peers"
)

// permitPatience bounds the question to the gates while an INVITE waits: every Originate must end
// within 10 s.
const permitPatience = 4 * time.Second

// permit decides before each INVITE of a fenced call whether it may leave. It is safe for
// concurrent use: an INVITE that answers a challenge is sent by another goroutine than the first
// one.
type permit struct {
	dialer  *Dialer
	request dialqueue.Request
	// life is the heart's. If it has changed, other processes may have ended the call.
	life int64

	mu     sync.Mutex
	answer peers.Answer
	// stop is why the gates refused, and state is the state of the request then; nil: they have not
	// refused.
	stop  *dialqueue.Refusal
	state dialqueue.State
}

// allow reports whether an INVITE may leave now: the database is reconciled, the fence is this
// process's, and the gates permitted the call less than 2 s ago. If their answer is older, it asks
// them again, for at most permitPatience.
func (p *permit) allow(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, permitPatience)
	defer cancel()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stop != nil || !p.fenced() {
		return false
	}
	if !p.answer.Good() {
		answer, stop, state := p.dialer.askAgain(ctx, p.request)
		if stop != nil && ctx.Err() != nil { // no answer in time
			return false
		}
		if stop != nil {
			slog.InfoContext(ctx, "INVITE not permitted", "call_request_id", p.request.CallRequestID, "code", stop.Code)
			p.stop, p.state = stop, state
			return false
		}
		p.answer = answer
	}
	return p.answer.Good() && p.fenced()
}

// fenced reports whether the fence is this process's in a database that is reconciled.
func (p *permit) fenced() bool { return p.dialer.lives(p.life) && p.dialer.reconciled() }

// result returns the newest answer of the gates that permits the call. If the gates refused it,
// stop is not nil.
func (p *permit) result() (answer peers.Answer, stop *dialqueue.Refusal, state dialqueue.State) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.answer, p.stop, p.state
}
