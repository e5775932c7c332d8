package telemetry

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"

	"go.opentelemetry.io/otel/trace"
)

func logHandler(out io.Writer, format string, level slog.Level) (slog.Handler, error) {
	switch format {
	case "json":
		return slog.NewJSONHandler(out, &slog.HandlerOptions{Level: level}), nil
	case "text":
		return &textHandler{out: out, level: level, mu: new(sync.Mutex)}, nil
	}
	return nil, fmt.Errorf("LOG_FORMAT is %q: it must be json or text", format)
}

// traceHandler is a log handler that adds the trace id of the context to each log record.
type traceHandler struct{ slog.Handler }

func (h traceHandler) Handle(ctx context.Context, record slog.Record) error {
	if span := trace.SpanContextFromContext(ctx); span.IsValid() {
		record.AddAttrs(slog.String("trace_id", span.TraceID().String()))
	}
	return h.Handler.Handle(ctx, record)
}

func (h traceHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return traceHandler{h.Handler.WithAttrs(attrs)}
}
func (h traceHandler) WithGroup(name string) slog.Handler {
	return traceHandler{h.Handler.WithGroup(name)}
}

// textHandler is a log handler for readable output. It writes one line per log record: time, level,
// message, key=value. It omits the name of the service, because the local stack adds that name to
// the beginning of each line.
type textHandler struct {
	out    io.Writer
	level  slog.Level
	prefix string
	attrs  []byte
	mu     *sync.Mutex
}

func (h *textHandler) Enabled(_ context.Context, level slog.Level) bool { return level >= h.level }

func (h *textHandler) Handle(_ context.Context, record slog.Record) error {
	line := make([]byte, 0, 256)
	line = record.Time.AppendFormat(line, "15:04:05.000")
	line = fmt.Appendf(line, " %-5s %s", record.Level, oneLine(record.Message))
	line = append(line, h.attrs...)
	record.Attrs(func(a slog.Attr) bool {
		line = appendAttr(line, h.prefix, a)
		return true
	})
	line = append(line, '\n')
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, err := h.out.Write(line); err != nil {
		return fmt.Errorf("write log line: %w", err)
	}
	return nil
}

func (h *textHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	next := *h
	next.attrs = bytes.Clone(h.attrs)
	for _, a := range attrs {
		if h.prefix == "" && a.Key == "service" {
			continue
		}
		next.attrs = appendAttr(next.attrs, h.prefix, a)
	}
	return &next
}

func (h *textHandler) WithGroup(name string) slog.Handler {
	next := *h
	next.prefix += name + "."
	return &next
}

func appendAttr(line []byte, prefix string, a slog.Attr) []byte {
	value := a.Value.Resolve()
	if value.Kind() == slog.KindGroup {
		if a.Key != "" {
			prefix += a.Key + "."
		}
		for _, member := range value.Group() {
			line = appendAttr(line, prefix, member)
		}
		return line
	}
	if a.Equal(slog.Attr{}) {
		return line
	}
	line = append(line, ' ')
	line = append(line, prefix...)
	line = append(line, a.Key...)
	line = append(line, '=')
	shown := value.String()
	if value.Kind() == slog.KindTime {
		shown = value.Time().UTC().Format(time.RFC3339Nano)
	}
	if shown == "" || strings.ContainsAny(shown, ` "=`) || strings.ContainsFunc(shown, isUnprintable) {
		return strconv.AppendQuote(line, shown)
	}
	return append(line, shown...)
}

// isUnprintable reports whether a character could end the line or control the terminal.
func isUnprintable(r rune) bool { return !unicode.IsPrint(r) }

func oneLine(s string) string {
	if strings.ContainsFunc(s, isUnprintable) {
		return strconv.Quote(s)
	}
	return s
}
