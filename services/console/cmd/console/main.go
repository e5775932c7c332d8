// Command console serves the console: the pages with which people see and control calls. It has no
// database and no credentials. A page shows only what the gateway returns for the session of the
// person.
package main

import (
	"context"
	"net/http"

	"ringfence.dev/libs/httpserver"
	"ringfence.dev/libs/service"
	"ringfence.dev/libs/telemetry"
	"ringfence.dev/services/console/internal/gateway"
	"ringfence.dev/services/console/internal/pages"
)

func main() {
	service.Main("console", service.Commands[Config]{Serve: serve})
}

func serve(ctx context.Context, cfg Config) error {
	tel, err := telemetry.Start(ctx, cfg.Telemetry, "console")
	if err != nil {
		return err
	}
	defer tel.Close(ctx)
	parsed, err := cfg.parse()
	if err != nil {
		return err
	}
	client := gateway.NewClient(parsed.gateway)
	tel.Ready("gateway", client.Ping)
	hub := gateway.NewHub(client)
	handler, err := pages.New(pages.Config{Gateway: client, Hub: hub, URL: parsed.url, Hosts: parsed.hosts})
	if err != nil {
		return err
	}
	server := &httpserver.Server{Addr: cfg.HTTP.Addr, Handler: tel.Edge(httpserver.Recover(http.Handler(handler)))}
	return service.Run(ctx,
		service.Part{Name: "private port", Run: tel.Private},
		service.Part{Name: "event streams", Run: hub.Run},
		service.Part{Name: "http", Run: server.Run},
	)
}
