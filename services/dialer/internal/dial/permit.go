package dial

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"ringfence.dev/services/dialer/internal/dialqueue"
	"ringfence.dev/services/dialer/internal/peers"
)

// permitTimeout limits the dial-time check before an INVITE. Originate itself is limited to 10 s.
const permitTimeout = 4 * time.Second

// invitePermit decides before each INVITE of a call whether the INVITE may be sent. It is safe for
// concurrent use: after the trunk has requested authentication, another goroutine sends the second
// INVITE.
type invitePermit struct {
	dialer  *Dialer
	request dialqueue.Request
	// generation is the generation of the heartbeat (see calls.Heartbeat). After a change of the
	// generation, other processes can have ended the call.
	generation int64

	mu     sync.Mutex
	answer peers.Answer
	// refusal is the refusal by the dial-time check, or nil. refusedState is the state in which the
	// refused request ends.
	refusal      *dialqueue.Refusal
	refusedState dialqueue.State
	// paused is true if an INVITE was not sent because dialing was paused.
	paused bool
}

// mayInvite reports whether an INVITE may be sent now. The database must be reconciled, this
// process must own the fence, and dialing must not be paused. The last result of the gates must
// permit the call. If that result is older than 2 s, mayInvite calls the gates again.
func (p *invitePermit) mayInvite(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, permitTimeout)
	defer cancel()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refusal != nil || !p.ownsFence() {
		return false
	}
	if !p.answer.IsValid() {
		answer, refusal, state := p.dialer.repeatChecks(ctx, p.request)
		if refusal != nil && ctx.Err() != nil { // the gates did not respond in time
			return false
		}
		if refusal != nil {
			slog.InfoContext(
				ctx,
				"INVITE not sent: the call request must not be dialed now",
				"call_request_id",
				p.request.CallRequestID,
				"code",
				refusal.Code,
			)
			p.refusal, p.refusedState = refusal, state
			return false
		}
		p.answer = answer
	}
	// The gates can respond slowly, so the pauses are read after the gates.
	if !p.dialer.limits.Pauses.MayDial(ctx, p.request.WorkspaceID, p.request.AgentID) {
		p.paused = true
		return false
	}
	return p.answer.IsValid() && p.ownsFence()
}

func (p *invitePermit) ownsFence() bool {
	return p.dialer.sameGeneration(p.generation) && p.dialer.reconciled()
}

// result returns the last result of the gates. If the gates refused the call, refusal is not nil,
// and state is the state in which the request ends.
func (p *invitePermit) result() (answer peers.Answer, refusal *dialqueue.Refusal, state dialqueue.State) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.answer, p.refusal, p.refusedState
}

func (p *invitePermit) isPaused() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.paused
}
