package httpapi_test

import (
	"errors"
	"net/http"
	"testing"

	"connectrpc.com/connect"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"google.golang.org/protobuf/proto"

	"ringfence.dev/libs/kafka"
	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/testkit/kafkatest"
	"ringfence.dev/proto/eventv1"
	"ringfence.dev/proto/settingsv1"
	"ringfence.dev/services/billing-wallet/internal/consumer"
	"ringfence.dev/services/billing-wallet/internal/store"
	"ringfence.dev/services/billing-wallet/internal/wallettest"
)

func TestWorkspace_CreatesTheWalletOnce(t *testing.T) {
	t.Parallel()
	s := start(t)
	event := func(id uuid.UUID, currency string) *eventv1.WorkspaceEvent {
		return &eventv1.WorkspaceEvent{
			WorkspaceId: id.String(), Version: 1,
			Event: &eventv1.WorkspaceEvent_Workspace{Workspace: &eventv1.Workspace{Currency: currency}},
		}
	}
	apply := func(as string, ev *eventv1.WorkspaceEvent) error {
		client := settingsv1.NewSettingServiceClient(http.DefaultClient, s.url,
			connect.WithInterceptors(s.keys[as].ClientInterceptor("billing-wallet")))
		_, err := client.ApplySetting(t.Context(), connect.NewRequest(&settingsv1.ApplySettingRequest{
			Setting: &settingsv1.ApplySettingRequest_Workspace{Workspace: ev},
		}))
		return err
	}
	consume := func(ev *eventv1.WorkspaceEvent) error {
		value, err := proto.Marshal(ev)
		if err != nil {
			t.Fatalf("encode event: %v", err)
		}
		handle := consumer.New(s.store, func() {}).Handlers()[kafka.Workspaces.Name]
		return pg.InTx(t.Context(), s.pool, func(tx pgx.Tx) error {
			return kafkatest.Apply(t.Context(), tx, handle, kafka.Record{
				Topic: kafka.Workspaces.Name, Type: string(ev.ProtoReflect().Descriptor().FullName()), Value: value,
			})
		})
	}
	applied, consumed := wallettest.ID(), wallettest.ID()
	steps := []struct {
		name string
		err  error
	}{
		{name: "ApplySetting for a new workspace", err: apply("gateway", event(applied, "CHF"))},
		{name: "event of a workspace that ApplySetting stored", err: consume(event(applied, "CHF"))},
		{name: "event of a new workspace", err: consume(event(consumed, "CHF"))},
		{name: "ApplySetting for a workspace that an event stored", err: apply("gateway", event(consumed, "CHF"))},
	}
	for _, step := range steps {
		if step.err != nil {
			t.Errorf("%s = %v, want nil", step.name, step.err)
		}
	}
	for _, id := range []uuid.UUID{applied, consumed} {
		wallet, err := s.store.Wallet(t.Context(), id)
		if err != nil {
			t.Fatalf("Wallet: %v", err)
		}
		if wallet.Currency != "CHF" {
			t.Errorf("currency = %s, want CHF", wallet.Currency)
		}
	}
	if err := s.store.ApplyCurrency(t.Context(), applied, "EUR"); !errors.Is(err, store.ErrCurrencyFixed) {
		t.Errorf("ApplyCurrency of another currency = %v, want ErrCurrencyFixed", err)
	}
	if err := consume(event(applied, "EUR")); !kafka.IsPark(err) {
		t.Errorf("event with another currency = %v, want a park error", err)
	}
	if got := connect.CodeOf(apply("gateway", event(wallettest.ID(), "usd"))); got != connect.CodeInvalidArgument {
		t.Errorf("ApplySetting with currency usd = %s, want invalid_argument", got)
	}
	if got := connect.CodeOf(apply("calls", event(wallettest.ID(), "USD"))); got != connect.CodePermissionDenied {
		t.Errorf("ApplySetting by calls = %s, want permission_denied", got)
	}
}
