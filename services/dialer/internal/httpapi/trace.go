package httpapi

import (
	"fmt"
	"net/http"
	"strconv"

	"ringfence.dev/libs/apierr"
	"ringfence.dev/libs/httpserver"
	"ringfence.dev/services/dialer/internal/siptrace"
	"ringfence.dev/services/dialer/internal/trunks"
)

// readTrace handles GET /admin/v1/trunks/{trunk_id}/trace?format=text|pcap&sip_call_id=. It returns
// the SIP messages of the trunk that all dialer processes have recorded. It responds 409 for a
// disabled trunk, because the processes keep no messages of it.
func (a *API) readTrace(w http.ResponseWriter, r *http.Request) error {
	id, err := trunkID(r)
	if err != nil {
		return err
	}
	found, err := a.trunks.Find(r.Context(), id)
	if err != nil {
		return refusedTrunk(err, "")
	}
	format, err := httpserver.QueryEnum(r.URL.Query(), "format", "text", "pcap")
	if err != nil {
		return err
	}
	callID, err := httpserver.QueryText(r.URL.Query(), "sip_call_id")
	if err != nil {
		return err
	}
	if callID == nil {
		callID = new(string)
	}
	if found.Status == trunks.Disabled {
		return apierr.Conflict("trunk_disabled",
			"The trunk %q is disabled, so no messages are recorded. Set its status to active.", found.Name)
	}
	if !found.Trace {
		return apierr.Conflict("trace_off", "The messages of this trunk are not recorded; set its trace to true first.")
	}
	messages, missing, err := a.traces.Messages(r.Context(), id, *callID)
	if err != nil {
		return err
	}
	if format == "pcap" && missing > 0 {
		return apierr.New(
			http.StatusServiceUnavailable,
			"unavailable",
			"%d dialer processes did not answer; try again, or use format=text, which has the messages of the others.",
			missing,
		)
	}
	if format == "pcap" {
		writeFile(w, "application/vnd.tcpdump.pcap", siptrace.Pcap(messages))
		return nil
	}
	text := siptrace.Text(messages)
	if missing > 0 {
		text = fmt.Appendf(nil, "%d dialer processes did not answer: their messages are missing.\n\n%s", missing, text)
	}
	writeFile(w, "text/plain; charset=utf-8", text)
	return nil
}

func writeFile(w http.ResponseWriter, contentType string, body []byte) {
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = w.Write(body) // an error means that the client has disconnected
}
