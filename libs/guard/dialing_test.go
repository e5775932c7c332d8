package guard

import (
	"context"
	"errors"
	"net"
	"testing"
)

var errFree, errGuarded = errors.New("free"), errors.New("guarded")

// Nothing is dialled: both ways only say that they were taken.
func TestDialing_OnlyTheOperatorsHostsGoRound(t *testing.T) {
	t.Parallel()
	way := func(taken error) Dialing {
		return func(context.Context, string, string) (net.Conn, error) { return nil, taken }
	}
	dial := dialing([]string{"http://127.0.0.1:8088/v1", "wss://Models.Example/realtime", "https://[::1]/", "", "://", "/path"}, way(errFree), way(errGuarded))
	for address, want := range map[string]error{
		"127.0.0.1:8088": errFree, "models.example:443": errFree, "MODELS.example:443": errFree, "[::1]:443": errFree,
		"127.0.0.1:80": errGuarded, "127.0.0.1:443": errGuarded, "models.example:80": errGuarded, "[::1]:80": errGuarded, "10.0.0.1:8088": errGuarded,
		"other.example:443": errGuarded, ":80": errGuarded, ":443": errGuarded,
	} {
		if _, err := dial(t.Context(), "tcp", address); !errors.Is(err, want) {
			t.Errorf("%s was taken %v, want %v", address, err, want)
		}
	}
}
