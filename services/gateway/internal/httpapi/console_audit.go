package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"

	"github.com/google/uuid"

	"ringfence.dev/services/gateway/internal/audit"
	"ringfence.dev/services/gateway/internal/proxy"
)

// serveAudited serves a route of the console or of the operator API. It writes the audit entry of a
// change that a route of the console makes. The routes of the operator API write their own entries.
func (c *Console) serveAudited(w http.ResponseWriter, r *http.Request, match proxy.Match, person visitor) error {
	object, audited := audit.ObjectOf(r.Method, match.Template, match.Path)
	if !audited || !strings.HasPrefix(match.Template, consolePath) {
		return c.serveRouter(c.router, w, r)
	}
	if err := proxy.BufferBody(w, r); err != nil {
		return err
	}
	var workspaceID *uuid.UUID
	if person.workspaceID != uuid.Nil {
		workspaceID = &person.workspaceID
	}
	pending, err := actorOf(r).pendingEntry(r, match.Template, workspaceID)
	if err != nil {
		return err
	}
	if r.Method != http.MethodPost {
		before := c.capture(r, http.MethodGet) //nolint:bodyclose // the body is in memory
		if before.StatusCode == http.StatusOK {
			pending.Before = audit.State(object.Type, peekBody(before, audit.MaxState))
		}
	}
	ctx := context.WithoutCancel(r.Context())
	if err := c.store.AddPending(ctx, pending); err != nil {
		return err
	}
	response := c.capture(r, r.Method) //nolint:bodyclose // the body is in memory
	if workspaceID == nil {
		pending.WorkspaceID = workspaceIn(peekBody(response, audit.MaxState))
	}
	c.public.audits.conclude(ctx, pending, response, nil)
	for name, values := range response.Header {
		w.Header()[name] = values
	}
	w.WriteHeader(response.StatusCode)
	_, _ = io.Copy(w, response.Body) // an error means that the client disconnected
	return nil
}

// workspaceIn returns the workspace in the body of an accepted invitation. It returns nil for other
// bodies.
func workspaceIn(body []byte) *uuid.UUID {
	var object struct {
		WorkspaceID *uuid.UUID `json:"workspace_id"`
	}
	if json.Unmarshal(body, &object) != nil {
		return nil
	}
	return object.WorkspaceID
}

// capture serves a copy of the request with the given method, and returns the response. The client
// does not receive this response.
func (c *Console) capture(r *http.Request, method string) *http.Response {
	captured := &capturedResponse{header: http.Header{}, status: http.StatusOK}
	request := r.Clone(r.Context())
	request.Method = method
	if method != r.Method {
		request.Body, request.ContentLength = http.NoBody, 0
	}
	ctx, cancel := context.WithTimeout(request.Context(), consoleTimeout)
	defer cancel()
	c.router.ServeHTTP(captured, request.WithContext(ctx))
	return &http.Response{
		StatusCode: captured.status, Header: captured.header, Body: io.NopCloser(&captured.body),
	}
}

// capturedResponse is a response in memory. Responses of the console are small enough for this.
type capturedResponse struct {
	header  http.Header
	status  int
	written bool
	body    bytes.Buffer
}

func (c *capturedResponse) Header() http.Header { return c.header }

func (c *capturedResponse) WriteHeader(status int) {
	if !c.written {
		c.status, c.written = status, true
	}
}

func (c *capturedResponse) Write(data []byte) (int, error) {
	c.WriteHeader(http.StatusOK)
	return c.body.Write(data)
}
