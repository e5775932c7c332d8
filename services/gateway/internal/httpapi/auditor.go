package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/libs/apierr"
	"ringfence.dev/libs/serviceauth"
	"ringfence.dev/services/gateway/internal/audit"
	"ringfence.dev/services/gateway/internal/proxy"
	"ringfence.dev/services/gateway/internal/store"
)

// auditTimeout limits the time to write an audit entry after a service has responded.
const auditTimeout = 5 * time.Second

// maxTranscript is the maximum size of a response, in bytes, that auditor searches for a
// transcript. A larger response is recorded as a read.
const maxTranscript = 4 << 20

// auditor writes the audit entries of requests.
type auditor struct {
	store *store.Store
	peers *proxy.Upstreams
}

// begin prepares the audit entry of a request. For a change, begin stores a pending entry. The
// returned function writes the audit entry before the client receives the response. The function
// is nil if the request needs no entry.
func (a auditor) begin(
	w http.ResponseWriter, r *http.Request, match proxy.Match, caller serviceauth.Caller,
) (proxy.Observe, error) {
	object, audited := audit.ObjectOf(r.Method, match.Template, match.Path)
	if !audited {
		return nil, nil
	}
	if r.Method == http.MethodGet {
		return a.observeRead(r, match, object, caller.WorkspaceID), nil
	}
	if err := proxy.BufferBody(w, r); err != nil {
		return nil, err
	}
	ctx := context.WithoutCancel(r.Context()) // a disconnect of the client must not interrupt a change
	pending, err := actorOf(r).pendingEntry(r, match.Template, &caller.WorkspaceID)
	if err != nil {
		return nil, err
	}
	pending.Before, err = a.previousState(ctx, match, proxy.OwnerRequest{
		Owner: match.Owner, Method: r.Method, Path: match.Path, Header: r.Header, Caller: caller,
	})
	if err != nil {
		return nil, err
	}
	if isCallOfKey(r, match) {
		return func(response *http.Response, err error) error {
			a.recordCall(ctx, pending, response, err)
			return nil
		}, nil
	}
	if err := a.store.AddPending(ctx, pending); err != nil {
		return nil, err
	}
	return func(response *http.Response, err error) error {
		a.conclude(ctx, pending, response, err)
		return nil
	}, nil
}

// isCallOfKey reports whether an API key creates a call request. No pending entry is stored
// for such a request, because the additional commit would slow down each call.
func isCallOfKey(r *http.Request, match proxy.Match) bool {
	return r.Method == http.MethodPost && match.Template == "/v1/calls" && actorOf(r).Type == audit.APIKey
}

// observeRead returns the function that records a read of a transcript or a recording. The entry
// commits before the client receives the response. For a read by a person or an operator, the
// commit also waits until the entry is on disk. If the entry cannot be stored, the client receives
// 503.
func (a auditor) observeRead(
	r *http.Request, match proxy.Match, object audit.Object, workspaceID uuid.UUID,
) proxy.Observe {
	return func(response *http.Response, err error) error {
		if err != nil || response.StatusCode != http.StatusOK {
			return nil //nolint:nilerr // a response with an error contains nothing to record
		}
		if actorOf(r).hidden {
			response.Body = hideTranscripts(response.Body)
			response.Header.Del("Content-Length")
			return nil
		}
		objects := []audit.Object{object}
		if !match.Stream {
			objects = audit.ReadsIn(object, match.Template, peekBody(response, maxTranscript))
		}
		for _, read := range objects {
			if err := a.record(r, match.Template, workspaceID, read); err != nil {
				slog.ErrorContext(r.Context(), "audit entry of a read not written", "error", err)
				return apierr.Unavailable("The audit log")
			}
		}
		return nil
	}
}

func (a auditor) record(r *http.Request, template string, workspaceID uuid.UUID, read audit.Object) error {
	act := actorOf(r)
	pending, err := act.pendingEntry(r, template, &workspaceID)
	if err != nil {
		return err
	}
	pending.Object = read
	entry := doneEntry(pending, http.StatusOK)
	ctx, cancel := context.WithTimeout(r.Context(), auditTimeout)
	defer cancel()
	if act.Type == audit.APIKey {
		return a.store.RecordUnflushed(ctx, entry)
	}
	return a.store.Record(ctx, entry)
}

// conclude replaces a pending entry by the audit entry. If nothing was changed, conclude only
// deletes the pending entry. If the database fails, auth.ExpiryJob later writes an audit entry with
// the outcome unknown.
func (a auditor) conclude(ctx context.Context, pending audit.PendingEntry, response *http.Response, err error) {
	switch {
	case err != nil:
		a.closePending(ctx, pending, err)
		return
	case response.StatusCode >= http.StatusMultipleChoices:
		a.closePending(ctx, pending, &apierr.Error{Status: response.StatusCode})
		return
	case response.Header.Get(replayedHeader) != "":
		a.dropPending(ctx, pending)
		return
	}
	entry := doneEntry(pending, response.StatusCode)
	entry.After = audit.State(pending.Object.Type, peekBody(response, audit.MaxState))
	ctx, cancel := context.WithTimeout(ctx, auditTimeout)
	defer cancel()
	if err := a.store.Conclude(ctx, entry); err != nil {
		slog.ErrorContext(ctx, "audit entry of a completed change not written", "entry_id", pending.ID, "error", err)
	}
}

// recordCall writes the audit entry of a call request of an API key. If the request was refused or
// repeated, it writes none.
func (a auditor) recordCall(ctx context.Context, pending audit.PendingEntry, response *http.Response, err error) {
	entry := audit.Entry{PendingEntry: pending, Outcome: audit.Unknown}
	switch {
	case err != nil && isRefusal(err):
		return
	case err != nil || response.StatusCode >= http.StatusInternalServerError:
	case response.StatusCode >= http.StatusMultipleChoices || response.Header.Get(replayedHeader) != "":
		return
	default:
		entry = doneEntry(pending, response.StatusCode)
		entry.After = audit.State(pending.Object.Type, peekBody(response, audit.MaxState))
	}
	ctx, cancel := context.WithTimeout(ctx, auditTimeout)
	defer cancel()
	if err := a.store.RecordUnflushed(ctx, entry); err != nil {
		slog.ErrorContext(ctx, "audit entry of a call request not written", "entry_id", pending.ID, "error", err)
	}
}

// isRefusal reports whether an error means that the called service has changed nothing.
func isRefusal(err error) bool {
	var refused *apierr.Error
	return errors.Is(err, proxy.ErrUnreached) ||
		(errors.As(err, &refused) && refused.Status < http.StatusInternalServerError)
}

// peekBody returns the body of a response. The client still receives the whole body. peekBody
// returns nil if the body has more than limit bytes.
func peekBody(response *http.Response, limit int64) []byte {
	body, err := io.ReadAll(io.LimitReader(response.Body, limit+1))
	whole := response.Body
	response.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(body), whole), whole}
	if err != nil || int64(len(body)) > limit {
		return nil // after a read error, the client receives the same error
	}
	return body
}

// closePending deletes the pending entry of a change that returned err. Unless the change was
// refused, it also writes an audit entry with the outcome unknown.
func (a auditor) closePending(ctx context.Context, pending audit.PendingEntry, err error) {
	if isRefusal(err) {
		a.dropPending(ctx, pending)
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), auditTimeout)
	defer cancel()
	logStillPending(ctx, pending, a.store.Conclude(ctx, audit.Entry{PendingEntry: pending, Outcome: audit.Unknown}))
}

func (a auditor) dropPending(ctx context.Context, pending audit.PendingEntry) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), auditTimeout)
	defer cancel()
	logStillPending(ctx, pending, a.store.DropPending(ctx, pending))
}

// logStillPending logs a failed write of the database, after which a pending entry remains.
func logStillPending(ctx context.Context, pending audit.PendingEntry, err error) {
	if err != nil {
		slog.WarnContext(ctx, "pending audit entry not deleted; the expiry job writes it with the outcome unknown",
			"entry_id", pending.ID, "error", err)
	}
}

// previousState sends a GET to the path of a change and returns the state that the change will
// replace. It returns nil for a POST, for an erasure, and if the GET returns an error status.
func (a auditor) previousState(
	ctx context.Context, match proxy.Match, request proxy.OwnerRequest,
) (json.RawMessage, error) {
	object, _ := audit.ObjectOf(request.Method, match.Template, match.Path)
	if request.Method == http.MethodPost || match.Template == erasureRoute {
		return nil, nil
	}
	request.Method, request.Body, request.Query = http.MethodGet, nil, ""
	response, err := a.peers.Do(ctx, request)
	if err != nil {
		return nil, err
	}
	if !response.OK() {
		return nil, nil
	}
	return audit.State(object.Type, response.Body), nil
}
