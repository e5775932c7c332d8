package sipcarrier

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/services/dialer/internal/sip"
	"ringfence.dev/services/dialer/internal/sip/transport"
	"ringfence.dev/services/dialer/internal/trunks"
)

const (
	// readInterval is the time between two reads of the trunks. resolveInterval is the time between
	// two lookups of their host names.
	readInterval    = time.Second
	resolveInterval = time.Minute
)

// InboundFilter decides which source addresses belong to trunks. The dialer drops messages from all
// other addresses. The filter keeps the addresses in memory, so that messages from unknown
// addresses cause no database queries.
type InboundFilter struct {
	trunks Trunks
	names  transport.Names
	known  atomic.Pointer[[]filterEntry]

	mu   sync.Mutex
	last map[uuid.UUID]resolved
}

type filterEntry struct {
	trunks.Trunk
	addresses []netip.Addr
}

type resolved struct {
	host      string
	at        time.Time
	addresses []netip.Addr
}

// NewInboundFilter returns a filter. It admits no address until Run has read the trunks.
func NewInboundFilter(trunks Trunks) *InboundFilter {
	return &InboundFilter{trunks: trunks, last: map[uuid.UUID]resolved{}, names: net.DefaultResolver}
}

// resolveHost returns the addresses of a trunk's host, including the addresses in its SRV records.
// A trunk can send inbound calls from any address to which the dialer sends calls.
func (d *InboundFilter) resolveHost(ctx context.Context, t trunks.Trunk) (found []netip.Addr, err error) {
	hosts := []string{t.Host}
	if t.Port == 0 {
		for _, target := range transport.Targets(ctx, d.names, t.Host, transports()[t.Transport]) {
			hosts = append(hosts, target.Host)
		}
	}
	for _, host := range hosts {
		addresses, fault := d.names.LookupIPAddr(ctx, host)
		for _, one := range addresses {
			if address, ok := netip.AddrFromSlice(one.IP); ok {
				found = append(found, address)
			}
		}
		err = errors.Join(err, fault)
	}
	if len(found) > 0 { // some of the names were resolved, which is enough
		return found, nil
	}
	return nil, err
}

// Run reads the trunks every second until ctx ends.
func (d *InboundFilter) Run(ctx context.Context) error {
	ticker := time.NewTicker(readInterval)
	defer ticker.Stop()
	for {
		if err := d.reload(ctx); err != nil && ctx.Err() == nil {
			slog.WarnContext(ctx, "SIP trunks could not be read from the database", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

func (d *InboundFilter) reload(ctx context.Context) error {
	active, err := d.trunks.Active(ctx)
	if err != nil {
		return err
	}
	known := make([]filterEntry, 0, len(active))
	for _, t := range active {
		known = append(known, filterEntry{t, d.hostAddresses(ctx, t)})
	}
	d.known.Store(&known)
	return nil
}

// hostAddresses returns the addresses of a trunk's host. If the name cannot be resolved, it returns
// the last known addresses.
func (d *InboundFilter) hostAddresses(ctx context.Context, t trunks.Trunk) []netip.Addr {
	d.mu.Lock()
	defer d.mu.Unlock()
	last := d.last[t.TrunkID]
	if last.host == t.Host && time.Since(last.at) < resolveInterval {
		return last.addresses
	}
	if last.host != t.Host {
		last = resolved{host: t.Host}
	}
	if _, err := netip.ParseAddr(t.Host); err != nil {
		ctx, cancel := context.WithTimeout(ctx, probeTimeout)
		defer cancel()
		found, err := d.resolveHost(ctx, t)
		if err != nil {
			slog.WarnContext(ctx, "trunk host name not resolved", "trunk", t.Name, "error", err)
		} else {
			last.addresses = found
		}
	}
	last.at = time.Now()
	d.last[t.TrunkID] = last
	return last.addresses
}

// Trunk returns the trunk with the source address. Several trunks can have the same address. Then
// the transport counts first, then the port, and then the priority.
func (d *InboundFilter) Trunk(source netip.AddrPort, transport string) (found trunks.Trunk, ok bool) {
	best := -1
	for _, e := range d.entriesAt(source.Addr()) {
		match := 0
		if strings.EqualFold(transports()[e.Transport], transport) {
			match += 2
		}
		if e.SIPPort() == source.Port() {
			match++
		}
		if match > best {
			best, found, ok = match, e.Trunk, true
		}
	}
	return found, ok
}

// CallFrom returns the trunk of an inbound call. If the address belongs to no known trunk, CallFrom
// reads the trunks again, because the trunk can be new.
func (d *InboundFilter) CallFrom(ctx context.Context, source netip.AddrPort, transport string) (trunks.Trunk, bool) {
	if t, ok := d.Trunk(source, transport); ok {
		return t, true
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	if err := d.reload(ctx); err != nil {
		slog.WarnContext(
			ctx,
			"SIP trunks could not be read from the database for an inbound call",
			"source",
			source,
			"error",
			err,
		)
		return trunks.Trunk{}, false
	}
	return d.Trunk(source, transport)
}

// Peer implements sip.Config.Peer.
func (d *InboundFilter) Peer(source netip.AddrPort, transport string) (sip.Trunk, bool) {
	t, ok := d.Trunk(source, transport)
	return sipTrunk(t), ok
}

// entriesAt returns the trunks to which an address belongs, best priority first.
func (d *InboundFilter) entriesAt(source netip.Addr) (found []filterEntry) {
	known := d.known.Load()
	if known == nil {
		return nil
	}
	source = source.Unmap()
	for _, e := range *known {
		same := func(address netip.Addr) bool { return address.Unmap() == source }
		if e.Admits(source) || slices.ContainsFunc(e.addresses, same) {
			found = append(found, e)
		}
	}
	return found
}

// Admit reports whether an address belongs to a trunk.
func (d *InboundFilter) Admit(source netip.Addr) bool {
	return len(d.entriesAt(source)) > 0
}
