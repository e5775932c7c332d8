package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// profileSeconds is the duration of one CPU profile in seconds.
const profileSeconds = 5

var profiledServices = []string{
	"gateway", "calls", "contacts-compliance", "dialer", "billing-wallet", "webhook-dispatcher", "console",
}

// profile writes CPU profiles of all services to the folder of the flag -profile, one after
// another until the returned function is called. Their names are
// MEASUREMENT-SERVICE-NUMBER.pprof; `go tool pprof` adds up the files that it is given. A profile
// costs its service some CPU time.
func (b *bench) profile(ctx context.Context, measurement string) (stop func(), err error) {
	if err := os.MkdirAll(b.profiles, 0o755); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	var writers sync.WaitGroup
	for _, service := range profiledServices {
		addresses, err := b.stack.PrivateAddresses(service)
		if err != nil {
			cancel()
			return nil, err
		}
		for replica, address := range addresses {
			writers.Go(func() {
				url := fmt.Sprintf("http://%s/debug/pprof/profile?seconds=%d", address, profileSeconds)
				for number := 1; ctx.Err() == nil; number++ {
					name := fmt.Sprintf("%s-%s-%d-%02d.pprof", measurement, service, replica+1, number)
					// A measurement may have stopped the service for a while.
					if err := writeProfile(ctx, url, filepath.Join(b.profiles, name)); err != nil && ctx.Err() == nil {
						fmt.Printf("    no profile %s: %v\n", name, err)
						_ = rest(ctx, time.Second)
					}
				}
			})
		}
	}
	return func() {
		cancel()
		writers.Wait()
	}, nil
}

// writeProfile reads a profile and writes it to a file. The file contains a whole profile or does
// not exist.
func writeProfile(ctx context.Context, url, file string) error {
	return get(ctx, url, func(resp *http.Response) error {
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			return err
		}
		return os.WriteFile(file, text, 0o600)
	})
}
