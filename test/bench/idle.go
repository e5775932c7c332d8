package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"ringfence.dev/test/bench/internal/probe"
)

const (
	goalStatements = 2.0
	// goalIdle limits the CPU time of the idle dispatcher, in percent of one core.
	goalIdle = 0.5
	// roles is the common prefix of two database roles: the owner of the schema and the role that
	// the service uses.
	roles     = "webhook_dispatcher"
	idleAfter = 15 * time.Second
)

// Idle makes some deliveries, waits until the dispatcher is idle, and counts the dispatcher's SQL
// statements. The stack connects to its Postgres through the proxy.
func Idle(ctx context.Context, h *WebhookStack, proxy *probe.Proxy) error {
	e, err := h.subscribe(ctx, Take, h.lane(), 0)
	if err != nil {
		return err
	}
	if _, err := h.deliver(ctx, time.Second, steadyRate, e); err != nil {
		return err
	}
	if err := h.awaitSettled(ctx, webhooksStuck); err != nil {
		return err
	}
	if err := webhookPause(ctx, idleAfter); err != nil {
		return err
	}
	m, err := h.watch(ctx, false)
	if err != nil {
		return err
	}
	began, before := time.Now(), proxy.Of(roles)
	if err := webhookPause(ctx, 6*h.Each); err != nil {
		return err
	}
	asked, took := proxy.Of(roles).Less(before), time.Since(began)
	cpu, err := m.stop(ctx)
	if err != nil {
		return err
	}
	perSecond := float64(asked.Sum()) / took.Seconds()
	core := func(d time.Duration) float64 { return 100 * d.Seconds() / took.Seconds() }
	share := core(cpu.dispatcher + cpu.backends)
	fmt.Printf("  statements           %6.2f /s   %s; every one that its roles sent in %.0f s, BEGIN, COMMIT and pings among them\n", perSecond,
		probe.AtMost(perSecond, goalStatements, " /s"), took.Seconds())
	for _, statement := range slices.SortedFunc(maps.Keys(asked), func(a, b string) int { return cmp.Or(cmp.Compare(asked[b], asked[a]), cmp.Compare(a, b)) }) {
		fmt.Printf("    %6.2f /s  %s\n", float64(asked[statement])/took.Seconds(), firstWords(statement))
	}
	fmt.Printf("  share of a core      %6.2f %%    %s; process %.2f %%, its backends %.2f %%\n", share,
		cpu.verdictOrReason(probe.AtMost(share, goalIdle, " %")), core(cpu.dispatcher), core(cpu.backends))
	return nil
}

func firstWords(statement string) string {
	const most = 110
	if runes := []rune(statement); len(runes) > most {
		return string(runes[:most]) + "…"
	}
	return statement
}
