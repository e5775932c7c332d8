package main

import (
	"io"
	"net/http"
	"time"
)

func (x *Network) postFault(w http.ResponseWriter, r *http.Request) {
	var rule Rule
	if !decode(w, r, &rule) {
		return
	}
	if err := x.AddFault(rule); err != nil {
		refuse(w, http.StatusBadRequest, "fault is one of\n"+FaultHelp()+"times and delay_ms are zero or more")
		return
	}
	answer(w, http.StatusCreated, rule)
}

func (x *Network) getFaults(w http.ResponseWriter, _ *http.Request) {
	answer(w, http.StatusOK, map[string]any{"data": append([]Rule{}, x.Rules()...)})
}

func (x *Network) deleteFaults(w http.ResponseWriter, _ *http.Request) {
	x.ClearFaults()
	w.WriteHeader(http.StatusNoContent)
}

// applyBeforeDial applies the faults that happen before the dial. If done is true, the request
// needs no further handling.
func (r Rule) applyBeforeDial(w http.ResponseWriter, req *http.Request) (done bool) {
	switch r.Fault {
	case FaultRefuse:
		refuse(w, http.StatusServiceUnavailable, "refused by a fault rule")
		return true
	case FaultCrashUndialed:
		exitWithoutFlush()
	case FaultHangUndialed:
		awaitDisconnect(req)
		return true
	case FaultLate:
		time.Sleep(r.delay()) // the handler waits even if the client disconnects
	}
	return false
}

// applyAfterDial applies the faults that happen after the dial. These faults replace the response.
// If done is true, the request needs no further handling.
func (r Rule) applyAfterDial(req *http.Request) (done bool) {
	switch r.Fault {
	case FaultCrash:
		exitWithoutFlush()
	case FaultHang:
		awaitDisconnect(req)
		return true
	}
	return false
}

// awaitDisconnect waits until the client disconnects. It sends no response.
func awaitDisconnect(req *http.Request) {
	_, _ = io.Copy(io.Discard, req.Body) // the server detects a disconnect only after it has read the body
	<-req.Context().Done()
}
