package service

import (
	"net"
	"strings"
	"testing"
)

func TestListen_ErrorNamesTheTakenPortAndItsVariable(t *testing.T) {
	t.Parallel()
	first, err := Listen(t.Context(), "127.0.0.1:0", "HTTP_ADDR")
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	addr := first.Addr().String()
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	_, err = Listen(t.Context(), addr, "HTTP_ADDR")
	if err == nil {
		t.Fatal("Listen on a taken port: no error")
	}
	if want := "port " + port + " (HTTP_ADDR="; !strings.Contains(err.Error(), want) {
		t.Errorf("Listen on a taken port = %v, want it to contain %q", err, want)
	}
}
