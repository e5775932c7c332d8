// Package peers sends requests to other services: contacts-compliance (pre-check), billing-wallet
// (hold) and the dialer (withdraw, hang-up, agents). Each request is idempotent, so a failed
// request is repeated once. If a service does not respond in time, the error is 503.
package peers

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"connectrpc.com/connect"
	"connectrpc.com/otelconnect"

	"ringfence.dev/libs/apierr"
	"ringfence.dev/libs/serviceauth"
	"ringfence.dev/libs/settings"
	"ringfence.dev/proto/billingv1"
	"ringfence.dev/proto/compliancev1"
	"ringfence.dev/proto/dialerv1"
	"ringfence.dev/proto/eventv1"
	"ringfence.dev/proto/settingsv1"
)

// requestTimeout limits one request to another service, so that a client does not wait too long for
// the response to its POST.
const requestTimeout = 2 * time.Second

type Config struct {
	ContactsURL string `env:"CONTACTS_URL,required" help:"Base URL of contacts-compliance, without a path."`
	WalletURL   string `env:"WALLET_URL,required" help:"Base URL of billing-wallet, without a path."`
	DialerURL   string `env:"DIALER_URL,required" help:"Base URL of the dialer, without a path."`
}

// Clients are the clients of the other services.
type Clients struct {
	// Timeout limits one request to another service, including its repetition. The default is 2 s.
	// Set Timeout only before the first request.
	Timeout time.Duration

	contacts compliancev1.PreCheckServiceClient
	wallet   billingv1.HoldServiceClient
	dialer   dialerv1.WithdrawServiceClient
	hangups  dialerv1.HangupServiceClient
	agents   settingsv1.SettingServiceClient
}

// New returns clients. Each client connects when it sends its first request.
func New(cfg Config, keys *serviceauth.Keys) (*Clients, error) {
	traced, err := otelconnect.NewInterceptor(otelconnect.WithoutMetrics())
	if err != nil {
		return nil, fmt.Errorf("trace requests: %w", err)
	}
	client := serviceauth.Client()
	as := func(aud string) connect.ClientOption {
		return connect.WithInterceptors(traced, keys.ClientInterceptor(aud))
	}
	return &Clients{
		Timeout:  requestTimeout,
		contacts: compliancev1.NewPreCheckServiceClient(client, cfg.ContactsURL, as("contacts-compliance")),
		wallet:   billingv1.NewHoldServiceClient(client, cfg.WalletURL, as("billing-wallet")),
		dialer:   dialerv1.NewWithdrawServiceClient(client, cfg.DialerURL, as("dialer")),
		hangups:  dialerv1.NewHangupServiceClient(client, cfg.DialerURL, as("dialer")),
		agents:   settingsv1.NewSettingServiceClient(client, cfg.DialerURL, as("dialer")),
	}, nil
}

// PreCheck checks whether the number may be called, and finds or creates its contact.
func (p *Clients) PreCheck(ctx context.Context,
	request *compliancev1.PreCheckRequest) (*compliancev1.PreCheckResponse, error) {
	return callPeer(ctx, p.Timeout, "The compliance check", apierr.Unavailable, p.contacts.PreCheck, request)
}

// Hold reserves the price of the longest possible call.
func (p *Clients) Hold(ctx context.Context, request *billingv1.HoldRequest) (*billingv1.HoldResponse, error) {
	return callPeer(ctx, p.Timeout, "The wallet", apierr.Unavailable, p.wallet.Hold, request)
}

// Withdraw removes a queued request from the dialer's queue. The response states whether the dialer
// withdrew the request.
func (p *Clients) Withdraw(ctx context.Context, request *dialerv1.WithdrawRequest) (*dialerv1.WithdrawResponse, error) {
	return callPeer(ctx, p.Timeout, "The dialer", apierr.Unanswered, p.dialer.Withdraw, request)
}

// RequestHangup requests the hang-up of a call. The response states whether the call was live.
func (p *Clients) RequestHangup(
	ctx context.Context, request *dialerv1.RequestHangupRequest,
) (*dialerv1.RequestHangupResponse, error) {
	return callPeer(ctx, p.Timeout, "The dialer", apierr.Unanswered, p.hangups.RequestHangup, request)
}

// ApplyAgent sends a committed agent to the dialer and returns after the dialer has stored the
// agent. The errors are those of settings.Confirm. The error message begins with messagePrefix.
func (p *Clients) ApplyAgent(ctx context.Context, messagePrefix string, event *eventv1.AgentEvent) error {
	return settings.Confirm(ctx, messagePrefix,
		map[string]func(context.Context) error{"dialer": func(ctx context.Context) error {
			_, err := p.agents.ApplySetting(ctx, connect.NewRequest(&settingsv1.ApplySettingRequest{
				Setting: &settingsv1.ApplySettingRequest_Agent{Agent: event},
			}))
			return err
		}})
}

func callPeer[Q, A any](ctx context.Context, timeout time.Duration, peer string,
	unavailable func(string) *apierr.Error, call func(context.Context, *connect.Request[Q]) (*connect.Response[A],
		error), request *Q) (*A, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	response, err := call(ctx, connect.NewRequest(request))
	if connect.CodeOf(err) == connect.CodeUnavailable && ctx.Err() == nil {
		// retry once, because the peer may have restarted or closed an idle connection
		response, err = call(ctx, connect.NewRequest(request))
	}
	if err == nil {
		return response.Msg, nil
	}
	switch connect.CodeOf(err) {
	case connect.CodeUnauthenticated, connect.CodePermissionDenied, connect.CodeInvalidArgument, connect.CodeUnimplemented:
		// this error means that the configuration or the code is wrong, so the client gets 500
		return nil, fmt.Errorf("request to %q: %w", peer, err)
	default:
		// the cause is logged, because the 503 response does not contain it
		slog.WarnContext(ctx, "request to another service failed", "peer", peer, "error", err)
		return nil, unavailable(peer)
	}
}
