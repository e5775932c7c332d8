// Command gateway serves the public API and the operator API. It forwards each request to the
// service that owns the route.
package main

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"

	"ringfence.dev/libs/app"
	"ringfence.dev/libs/httpserver"
	"ringfence.dev/libs/service"
	"ringfence.dev/libs/telemetry"
	"ringfence.dev/services/gateway/internal/auth"
	"ringfence.dev/services/gateway/internal/httpapi"
	"ringfence.dev/services/gateway/internal/proxy"
	"ringfence.dev/services/gateway/internal/secrets"
	"ringfence.dev/services/gateway/internal/store"
)

func main() { app.Run(spec()) }

func spec() app.Spec[Config] {
	return app.Spec[Config]{
		Name: "gateway", Migrations: store.Migrations, Start: start,
		Check:    func(cfg Config) error { _, err := cfg.parse(); return err },
		Commands: consoleCommands(),
	}
}

func start(ctx context.Context, cfg Config, rt *app.Runtime) ([]service.Part, error) {
	parsed, errs := cfg.parse()
	docs, err := httpapi.NewDocs()
	errs = errors.Join(errs, err)
	peers, err := proxy.New(rt.Keys, cfg.owners())
	if errs = errors.Join(errs, err); errs != nil {
		return nil, errs
	}
	st := store.New(rt.Pool, rt.Relay)
	if len(parsed.operators) > 0 {
		if err := st.SeedOperators(ctx, parsed.operators); err != nil {
			return nil, err
		}
	} else {
		slog.WarnContext(ctx, "OPERATOR_TOKENS is empty: only the operators in the database can use /admin/v1")
	}
	if parsed.certificate != nil {
		if err := telemetry.Certificate(rt.Telemetry.Metrics, "TLS_CERT_FILE", parsed.certificate.Current); err != nil {
			return nil, err
		}
	}
	authenticator := auth.New(st, parsed.pepper, parsed.proxies)
	public := &httpserver.Server{
		Addr: cfg.HTTP.Addr, Handler: httpapi.NewPublic(authenticator, st, peers, parsed.ready, docs, rt.Telemetry),
		Header: httpapi.Uncounted(), Certificate: parsed.certificate,
	}
	admin := &httpserver.Server{
		Addr: cfg.AdminAddr, Variable: "ADMIN_ADDR", Certificate: parsed.certificate,
		Handler: httpapi.NewAdmin(authenticator, st, peers, parsed.pepper, parsed.ready, parsed.console.url, docs,
			rt.Telemetry),
	}
	parts := []service.Part{
		{Name: "peers", Run: func(ctx context.Context) error { <-ctx.Done(); peers.Close(); return nil }},
		{Name: "certificate", Run: parsed.certificate.Run},
		{Name: "expiry", Run: auth.NewExpiryJob(st).Run},
		{Name: "admin", Run: admin.Run},
		{Name: "public", Run: public.Run},
	}
	if cfg.Console.Addr == "" {
		return parts, nil
	}
	if len(cfg.TrustedProxies) == 0 && !isLoopback(cfg.Console.Addr) {
		slog.WarnContext(ctx, "TRUSTED_PROXIES is empty: if the console runs on another host, add its address; "+
			"otherwise all people share one limit of sign-ins")
	}
	console := &httpserver.Server{
		Addr: cfg.Console.Addr, Variable: "CONSOLE_ADDR", Certificate: parsed.certificate,
		Handler: httpapi.NewConsole(httpapi.ConsoleConfig{
			Auth: authenticator, Store: st, Peers: peers, Pepper: parsed.pepper, Ready: parsed.ready, Docs: docs,
			Codes: cfg.Console.Codes, OIDC: parsed.console.oidc, URL: parsed.console.url, Passkeys: parsed.console.passkeys,
		}, rt.Telemetry),
	}
	return append(parts, service.Part{Name: "console", Run: console.Run}), nil
}

// isLoopback reports whether only programs of this machine can connect to an address.
func isLoopback(address string) bool {
	parsed, err := netip.ParseAddrPort(address)
	return err == nil && parsed.Addr().IsLoopback()
}

// parsedConfig contains the parsed form of settings that are text in Config.
type parsedConfig struct {
	pepper    secrets.Pepper
	operators []store.Operator
	proxies   auth.Proxies
	ready     *httpapi.Readiness
	// certificate is nil if the listeners serve HTTP.
	certificate *httpserver.Certificate
	console     consoleSignIn
}

// parse returns the parsed settings. If several settings are invalid, the error joins all errors.
func (c Config) parse() (p parsedConfig, err error) {
	var errs [6]error
	p.pepper, errs[0] = secrets.NewPepper(c.APIKeyPepper)
	p.operators, errs[1] = c.operators(p.pepper)
	p.proxies, errs[2] = auth.ParseProxies(c.TrustedProxies)
	p.ready, errs[3] = httpapi.NewReadiness(c.ReadyURLs)
	p.certificate, errs[4] = httpserver.TLSConfig{CertFile: c.TLSCertFile, KeyFile: c.TLSKeyFile}.Load()
	p.console, errs[5] = c.Console.parse()
	return p, errors.Join(errs[:]...)
}
