package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"ringfence.dev/libs/page"
	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/seal"
	"ringfence.dev/services/dialer/internal/trunks"
)

// ErrNameTaken is returned if another trunk already has the name.
var ErrNameTaken = errors.New("another trunk has this name")

// Trunks stores SIP trunks. The passwords are encrypted.
type Trunks struct {
	pool *pgxpool.Pool
	box  *seal.Box

	mu     sync.Mutex
	active []trunks.Trunk
	read   time.Time
}

// NewTrunks returns a store that encrypts the passwords with sealBox.
func NewTrunks(pool *pgxpool.Pool, sealBox *seal.Box) *Trunks {
	return &Trunks{pool: pool, box: sealBox}
}

type trunkRow struct {
	TrunkID        uuid.UUID `db:"trunk_id"`
	Version        int64     `db:"version"`
	Name           string    `db:"name"`
	Status         string    `db:"status"`
	Host           string    `db:"host"`
	Port           int32     `db:"port"`
	Transport      string    `db:"transport"`
	OutboundProxy  string    `db:"outbound_proxy"`
	CACertificates string    `db:"ca_certificates"`
	Username       string    `db:"username"`
	PasswordSealed []byte    `db:"password_sealed"`
	Register       bool      `db:"register"`
	CallerIDs      []string  `db:"caller_ids"`
	CallerIDHeader string    `db:"caller_id_header"`
	NumberFormat   string    `db:"number_format"`
	NumberPrefix   string    `db:"number_prefix"`
	Codecs         []string  `db:"codecs"`
	SRTP           string    `db:"srtp"`
	SessionSeconds int32     `db:"session_seconds"`
	MediaTimeout   int32     `db:"media_timeout_seconds"`
	Channels       int32     `db:"channels"`
	CallsPerSecond int32     `db:"calls_per_second"`
	Priority       int32     `db:"priority"`
	InboundSources []string  `db:"inbound_sources"`
	Trace          bool      `db:"trace"`
}

const insertTrunk = `
INSERT INTO trunks (trunk_id, version, name, status, host, port, transport, outbound_proxy, ca_certificates, username, password_sealed, register, caller_ids,
	caller_id_header, number_format, number_prefix, codecs, srtp, session_seconds, channels,
	calls_per_second, priority, inbound_sources, media_timeout_seconds, trace)
VALUES (@trunk_id, @version, @name, @status, @host, @port, @transport, @outbound_proxy, @ca_certificates, @username, @password_sealed, @register, @caller_ids,
	@caller_id_header, @number_format, @number_prefix, @codecs, @srtp, @session_seconds, @channels,
	@calls_per_second, @priority, @inbound_sources, @media_timeout_seconds, @trace)`

// Add stores a new trunk. It returns ErrNameTaken if the trunk's name is in use.
func (s *Trunks) Add(ctx context.Context, t trunks.Trunk) error {
	args, err := s.trunkArgs(t)
	if err != nil {
		return err
	}
	defer s.dropCache()
	if _, err := s.pool.Exec(ctx, insertTrunk, args); err != nil {
		return fmt.Errorf("add trunk: %w", nameTakenError(err))
	}
	return nil
}

const trunkColumns = `trunk_id, version, name, status, host, port, transport, outbound_proxy, ca_certificates, username, password_sealed, register, caller_ids,
	caller_id_header, number_format, number_prefix, codecs, srtp, session_seconds, channels,
	calls_per_second, priority, inbound_sources, media_timeout_seconds, trace`

const trunkByID = `SELECT ` + trunkColumns + ` FROM trunks WHERE trunk_id = @trunk_id`

// Find returns a trunk. It returns pg.ErrNotFound if there is no such trunk.
func (s *Trunks) Find(ctx context.Context, id uuid.UUID) (trunks.Trunk, error) {
	return s.queryTrunk(ctx, s.pool, trunkByID, id)
}

const lock = trunkByID + ` FOR UPDATE`

const updateTrunk = `
UPDATE trunks SET version = @version, name = @name, status = @status, host = @host, port = @port, transport = @transport, outbound_proxy = @outbound_proxy,
	ca_certificates = @ca_certificates, username = @username, password_sealed = @password_sealed, register = @register, caller_ids = @caller_ids,
	caller_id_header = @caller_id_header, number_format = @number_format, number_prefix = @number_prefix, codecs = @codecs, srtp = @srtp,
	session_seconds = @session_seconds, channels = @channels, calls_per_second = @calls_per_second, priority = @priority,
	inbound_sources = @inbound_sources, media_timeout_seconds = @media_timeout_seconds, trace = @trace
WHERE trunk_id = @trunk_id`

// Change passes a trunk to changeTrunk and stores the result. Concurrent changes run one after
// another. Change returns pg.ErrNotFound, ErrNameTaken, or the error of changeTrunk.
func (s *Trunks) Change(
	ctx context.Context, id uuid.UUID, changeTrunk func(*trunks.Trunk) error,
) (changed trunks.Trunk, err error) {
	defer s.dropCache()
	err = pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		if changed, err = s.queryTrunk(ctx, tx, lock, id); err != nil {
			return err
		}
		if err := changeTrunk(&changed); err != nil {
			return err
		}
		args, err := s.trunkArgs(changed)
		if err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, updateTrunk, args); err != nil {
			return fmt.Errorf("change trunk %s: %w", id, nameTakenError(err))
		}
		return nil
	})
	return changed, err
}

const removeTrunk = `DELETE FROM trunks WHERE trunk_id = @trunk_id`

// Remove passes a trunk to check, and deletes it if check returns nil. It returns pg.ErrNotFound if
// there is no such trunk, or the error of check.
func (s *Trunks) Remove(ctx context.Context, id uuid.UUID, check func(trunks.Trunk) error) error {
	defer s.dropCache()
	return pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		found, err := s.queryTrunk(ctx, tx, lock, id)
		if err != nil {
			return err
		}
		if err := check(found); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, removeTrunk, pg.Args{"trunk_id": id}); err != nil {
			return fmt.Errorf("remove trunk %s: %w", id, err)
		}
		return nil
	})
}

const listTrunks = `SELECT ` + trunkColumns + ` FROM trunks WHERE @after::uuid IS NULL OR trunk_id < @after ORDER BY trunk_id DESC LIMIT @rows`

// List returns a page of trunks, newest first.
func (s *Trunks) List(ctx context.Context, asked page.Request) ([]trunks.Trunk, error) {
	args := pg.Args{"after": (*uuid.UUID)(nil), "rows": asked.Rows()}
	if asked.After != uuid.Nil {
		args["after"] = &asked.After
	}
	return s.queryTrunks(ctx, listTrunks, args)
}

const activeTrunks = `SELECT ` + trunkColumns + ` FROM trunks WHERE status = 'active' ORDER BY priority, trunk_id`

func (s *Trunks) dropCache() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.read = time.Time{}
}

// Active returns the active trunks, best priority first. The list is cached for one second, or
// until the next change by this process.
func (s *Trunks) Active(ctx context.Context) ([]trunks.Trunk, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.read) < time.Second {
		return slices.Clone(s.active), nil
	}
	found, err := s.queryTrunks(ctx, activeTrunks, pg.Args{})
	if err != nil {
		return nil, err
	}
	s.active, s.read = found, time.Now()
	return slices.Clone(found), nil
}

const (
	sealedPasswords = `SELECT trunk_id, password_sealed FROM trunks WHERE password_sealed IS NOT NULL`
	resealTrunk     = `UPDATE trunks SET password_sealed = @again WHERE trunk_id = @trunk_id AND password_sealed = @was`
)

// Reseal encrypts every password again with the first sealing key of the configuration, and returns
// the number of changed passwords. Reseal skips passwords that cannot be decrypted, and then
// returns an error that names their trunks.
func (s *Trunks) Reseal(ctx context.Context) (moved int, err error) {
	type secret struct {
		TrunkID        uuid.UUID `db:"trunk_id"`
		PasswordSealed []byte    `db:"password_sealed"`
	}
	secrets, err := pg.Many[secret](ctx, s.pool, sealedPasswords, nil)
	if err != nil {
		return 0, fmt.Errorf("read sealed passwords: %w", err)
	}
	var faults []error
	for _, one := range secrets {
		again, current, err := s.box.Reseal(one.PasswordSealed, one.TrunkID.String())
		if err == nil && !current {
			_, err = s.pool.Exec(ctx, resealTrunk, pg.Args{"trunk_id": one.TrunkID, "was": one.PasswordSealed, "again": again})
			moved++
		}
		if err != nil {
			faults = append(faults, fmt.Errorf("reseal password of trunk %s: %w", one.TrunkID, err))
		}
	}
	return moved, errors.Join(faults...)
}

func (s *Trunks) queryTrunk(ctx context.Context, from pg.Querier, sql string, id uuid.UUID) (trunks.Trunk, error) {
	found, err := pg.One[trunkRow](ctx, from, sql, pgx.NamedArgs{"trunk_id": id})
	if err != nil {
		return trunks.Trunk{}, fmt.Errorf("read trunk %s: %w", id, err)
	}
	return s.decryptTrunk(found), nil
}

func (s *Trunks) queryTrunks(ctx context.Context, sql string, args pg.Args) ([]trunks.Trunk, error) {
	found, err := pg.Many[trunkRow](ctx, s.pool, sql, args)
	if err != nil {
		return nil, fmt.Errorf("list trunks: %w", err)
	}
	trunks := make([]trunks.Trunk, 0, len(found))
	for _, one := range found {
		trunks = append(trunks, s.decryptTrunk(one))
	}
	return trunks, nil
}

func nameTakenError(err error) error {
	var refused *pgconn.PgError
	if errors.As(err, &refused) && refused.Code == "23505" && refused.ConstraintName == "trunks_name" {
		return ErrNameTaken
	}
	return err
}

func (s *Trunks) trunkArgs(t trunks.Trunk) (pg.Args, error) {
	password := t.Sealed
	if t.Password != "" {
		var err error
		if password, err = s.box.Seal([]byte(t.Password), t.TrunkID.String()); err != nil {
			return nil, fmt.Errorf("seal password of trunk %s: %w", t.TrunkID, err)
		}
	}
	return pg.Args{
		"trunk_id": t.TrunkID, "version": t.Version, "name": t.Name, "status": string(t.Status), "host": t.Host, "port": int32(t.Port), "transport": string(t.Transport),
		"outbound_proxy": t.OutboundProxy, "ca_certificates": t.CACertificates, "username": t.Username, "password_sealed": password, "register": t.Register,
		"caller_ids": t.CallerIDs, "caller_id_header": string(t.CallerIDHeader), "number_format": string(t.NumberFormat), "number_prefix": t.NumberPrefix,
		"codecs": t.Codecs, "srtp": string(t.SRTP), "session_seconds": t.SessionSeconds, "channels": t.Channels, "calls_per_second": t.CallsPerSecond,
		"priority": t.Priority, "inbound_sources": t.InboundSources, "media_timeout_seconds": t.MediaTimeoutSeconds,
		"trace": t.Trace,
	}, nil
}

// decryptTrunk returns the trunk without its password if the password cannot be decrypted.
// Operators can still read such a trunk and set another password.
func (s *Trunks) decryptTrunk(r trunkRow) trunks.Trunk {
	var password []byte
	if r.PasswordSealed != nil {
		var err error
		if password, err = s.box.Open(r.PasswordSealed, r.TrunkID.String()); err != nil {
			slog.Error("trunk password not decrypted", "trunk_id", r.TrunkID, "error", err)
		}
	}
	return trunks.Trunk{
		TrunkID: r.TrunkID, Version: r.Version, Name: r.Name, Status: trunks.Status(r.Status), Host: r.Host, Port: uint16(r.Port), Transport: trunks.Transport(r.Transport),
		OutboundProxy: r.OutboundProxy, CACertificates: r.CACertificates, Username: r.Username, Password: string(password), Sealed: r.PasswordSealed,
		Register: r.Register, CallerIDs: r.CallerIDs, CallerIDHeader: trunks.CallerIDHeader(r.CallerIDHeader), NumberFormat: trunks.NumberFormat(r.NumberFormat),
		NumberPrefix: r.NumberPrefix, Codecs: r.Codecs, SRTP: trunks.SRTP(r.SRTP), SessionSeconds: r.SessionSeconds, Channels: r.Channels,
		CallsPerSecond: r.CallsPerSecond, Priority: r.Priority, InboundSources: r.InboundSources,
		MediaTimeoutSeconds: r.MediaTimeout, Trace: r.Trace,
	}
}
