package main

import (
	"io"
	"net/http"
	"time"
)

func (x *Exchange) postFault(w http.ResponseWriter, r *http.Request) {
	var rule Rule
	if !decode(w, r, &rule) {
		return
	}
	if err := x.Break(rule); err != nil {
		refuse(w, http.StatusBadRequest, "fault is one of\n"+FaultHelp()+"times and delay_ms are zero or more")
		return
	}
	answer(w, http.StatusCreated, rule)
}

func (x *Exchange) getFaults(w http.ResponseWriter, _ *http.Request) {
	answer(w, http.StatusOK, map[string]any{"data": append([]Rule{}, x.Rules()...)})
}

func (x *Exchange) deleteFaults(w http.ResponseWriter, _ *http.Request) {
	x.Mend()
	w.WriteHeader(http.StatusNoContent)
}

// before commits what a fault does instead of dialling. done: there is nothing more to do.
func (r Rule) before(w http.ResponseWriter, req *http.Request) (done bool) {
	switch r.Fault {
	case FaultRefuse:
		refuse(w, http.StatusServiceUnavailable, "refused, as ordered")
		return true
	case FaultCrashUndialed:
		die()
	case FaultHangUndialed:
		hang(req)
		return true
	case FaultLate:
		time.Sleep(r.delay()) // whoever asked may have left: a carrier that is late does not look
	}
	return false
}

// after commits what a fault does instead of answering. done: there is nothing more to do.
func (r Rule) after(req *http.Request) (done bool) {
	switch r.Fault {
	case FaultCrash:
		die()
	case FaultHang:
		hang(req)
		return true
	}
	return false
}

// hang holds the asker until he leaves, and then answers nothing.
func hang(req *http.Request) {
	_, _ = io.Copy(io.Discard, req.Body) // only behind the body is it seen that he left
	<-req.Context().Done()
}
