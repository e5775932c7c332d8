package pages

import (
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/google/uuid"

	"ringfence.dev/libs/telemetry"
	"ringfence.dev/services/console/internal/gateway"
)

const signInPath = "/console/v1/sign-in"

func (s *Server) addSignInRoutes(mux *http.ServeMux) {
	open := map[string]http.HandlerFunc{
		"GET /sign-in":                                  s.showSignIn,
		"POST /sign-in/code":                            s.signInWithCode,
		"GET /sign-in/oidc/start":                       s.startOIDC,
		"GET /sign-in/oidc":                             s.finishOIDC,
		"POST /sign-in/passkey/start":                   s.startPasskey,
		"POST /sign-in/passkey/finish":                  s.finishPasskey,
		"POST /sign-out":                                s.signOut,
		"POST /preferences":                             s.setPreferences,
		"GET /invitations/{invitation}":                 s.showInvitation,
		"POST /invitations/{invitation}":                s.acceptInvitation,
		"POST /invitations/{invitation}/passkey/start":  s.startRegistration,
		"POST /invitations/{invitation}/passkey/finish": s.finishPasskey,
	}
	for pattern, handler := range open {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			telemetry.Route(r.Context(), pattern)
			r.Body = http.MaxBytesReader(w, r.Body, maxForm)
			handler(w, r)
		})
	}
}

type signInData struct {
	Methods        gateway.Methods
	Next           string
	Expired, Again bool
	Error          string // the key of a text in the catalogue
}

// visitSignedOut starts a visit without a session, for pages that do not require a sign-in.
func (s *Server) visitSignedOut(w http.ResponseWriter, r *http.Request) *visit {
	return &visit{server: s, w: w, r: r, settings: s.settingsOf(r), Session: s.session(r), layout: &pageLayout{}}
}

func (s *Server) showSignIn(w http.ResponseWriter, r *http.Request) {
	v := s.visitSignedOut(w, r)
	v.writeSignIn(signInData{Next: localPath(v.query("next")), Expired: v.query("expired") != "",
		Again: v.query("again") != "", Error: signInErrors[v.query("error")]}, 0)
}

// signInErrors are the texts for the codes in /sign-in?error=….
var signInErrors = map[string]string{
	"sign_in_expired": "signin.error.expired",
	"sign_in_refused": "signin.error.refused",
	"no_access":       "signin.error.no_access",
	"unavailable":     "signin.error.unavailable",
}

func (v *visit) writeSignIn(data signInData, status int) {
	methods, err := gateway.Get[gateway.Methods](v.r.Context(), v.Session, signInPath+"/methods", nil)
	if err != nil {
		v.write(view{}, err)
		return
	}
	data.Methods = methods
	v.write(view{template: "signin", title: "signin.title", data: data, status: status}, nil)
}

// keepSession stores the token of a new session in the browser. It deletes the cookie with the
// reason that an earlier person entered.
func (v *visit) keepSession(signIn gateway.SignIn) {
	v.server.cookies.set(v.w, v.server.cookies.session, signIn.Token, sessionAge)
	v.server.cookies.set(v.w, v.server.cookies.reason, "", 0)
}

// begin stores the token of a new session in the browser and redirects to the next page.
func (v *visit) begin(signIn gateway.SignIn, next string) {
	v.keepSession(signIn)
	http.Redirect(v.w, v.r, localPath(next), http.StatusSeeOther)
}

func (s *Server) signInWithCode(w http.ResponseWriter, r *http.Request) {
	v := s.visitSignedOut(w, r)
	signIn, err := gateway.Post[gateway.SignIn](
		r.Context(),
		v.Session,
		signInPath+"/code",
		map[string]string{"code": v.form("code")},
	)
	if refused := gateway.AsError(err); refused != nil && refused.Status == http.StatusUnauthorized {
		v.writeSignIn(signInData{Next: localPath(v.form("next")), Error: "signin.error.code"}, http.StatusUnauthorized)
		return
	}
	if err != nil {
		v.write(view{}, err)
		return
	}
	v.begin(signIn, v.form("next"))
}

// startOIDC redirects the browser to the OpenID provider. The page links to it, because a form
// would need the provider's address in the Content-Security-Policy. A link on another site must not
// start a sign-in.
func (s *Server) startOIDC(w http.ResponseWriter, r *http.Request) {
	v := s.visitSignedOut(w, r)
	if site := r.Header.Get("Sec-Fetch-Site"); site == "cross-site" || site == "same-site" {
		s.writeRefusal(w, r, http.StatusForbidden, "error.cross_origin")
		return
	}
	body := map[string]any{"again": v.query("again") != ""}
	// The token of the invitation is in a cookie, so that no other URL contains it.
	if invitation := valueOf(r, s.cookies.invitation); v.query("invited") != "" && invitation != "" {
		body["invitation"] = invitation
	}
	started, err := gateway.Post[gateway.StartedSignIn](r.Context(), v.Session, signInPath+"/oidc/start", body)
	if err != nil {
		v.failSignIn(err, v.query("next"))
		return
	}
	s.cookies.set(w, s.cookies.attempt, started.Attempt, attemptAge)
	s.cookies.set(w, s.cookies.passedURL, url.QueryEscape(localPath(v.query("next"))), attemptAge)
	s.cookies.set(w, s.cookies.invitation, "", 0)
	http.Redirect(w, r, started.AuthorizationURL, http.StatusSeeOther)
}

// finishOIDC handles the return of the browser from the OpenID provider. Only the browser that
// started the sign-in has the cookie with its secret.
func (s *Server) finishOIDC(w http.ResponseWriter, r *http.Request) {
	v := s.visitSignedOut(w, r)
	next, err := url.QueryUnescape(valueOf(r, s.cookies.passedURL))
	if err != nil {
		next = "/"
	}
	attempt := valueOf(r, s.cookies.attempt)
	s.cookies.set(w, s.cookies.attempt, "", 0)
	s.cookies.set(w, s.cookies.passedURL, "", 0)
	signIn, err := gateway.Post[gateway.SignIn](r.Context(), v.Session, signInPath+"/oidc/finish",
		map[string]string{"attempt": attempt, "state": v.query("state"), "code": v.query("code")})
	if err != nil {
		v.failSignIn(err, next)
		return
	}
	v.begin(signIn, next)
}

// failSignIn shows the sign-in page with the reason of a refusal. After the next successful
// sign-in, the person is redirected to next.
func (v *visit) failSignIn(err error, next string) {
	refused := gateway.AsError(err)
	if refused == nil {
		v.write(view{}, err)
		return
	}
	code := refused.Code
	if _, known := signInErrors[code]; !known {
		code = "unavailable"
	}
	target := "/sign-in?error=" + code
	if next = localPath(next); next != "/" {
		target += "&next=" + url.QueryEscape(next)
	}
	http.Redirect(v.w, v.r, target, http.StatusSeeOther)
}

// relayJSON sends the JSON body of a script to the gateway, and the gateway's response to the
// script.
func (v *visit) relayJSON(path string, body any) {
	started, err := gateway.Post[json.RawMessage](v.r.Context(), v.Session, path, body)
	if err != nil {
		v.writeJSONError(err)
		return
	}
	v.w.Header().Set("Content-Type", "application/json")
	_, _ = v.w.Write(started) // an error means that the browser has disconnected
}

func (v *visit) writeJSONError(err error) {
	refused := gateway.AsError(err)
	if refused == nil || refused.Status == 0 {
		http.Error(v.w, "", http.StatusServiceUnavailable)
		return
	}
	http.Error(v.w, refused.Message, refused.Status)
}

func (s *Server) startPasskey(w http.ResponseWriter, r *http.Request) {
	s.visitSignedOut(w, r).relayJSON(signInPath+"/passkey/start", struct{}{})
}

// finishPasskey finishes a sign-in or a registration with a passkey. The script sends the response
// of the passkey and receives the address of the next page.
func (s *Server) finishPasskey(w http.ResponseWriter, r *http.Request) {
	v := s.visitSignedOut(w, r)
	kind := "/passkey/finish"
	if strings.HasPrefix(r.URL.Path, "/invitations/") {
		kind = "/registration/finish"
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, "", http.StatusRequestEntityTooLarge)
		return
	}
	signIn, err := gateway.Post[gateway.SignIn](r.Context(), v.Session, signInPath+kind, body)
	if err != nil {
		v.writeJSONError(err)
		return
	}
	v.keepSession(signIn)
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(
		w,
	).Encode(
		map[string]string{"next": localPath(v.query("next"))},
	) // the error is ignored: a map of strings can always be encoded
}

// signOut ends the session at the gateway and removes its cookies. If the gateway is not reachable,
// the page shows an error, because the session still exists.
func (s *Server) signOut(w http.ResponseWriter, r *http.Request) {
	v := s.visitSignedOut(w, r)
	if v.Token != "" {
		_, err := gateway.Do[json.RawMessage](r.Context(), v.Session,
			gateway.Request{Method: http.MethodDelete, Path: "/console/v1/sessions/current"})
		if refused := gateway.AsError(err); refused != nil && refused.Status != http.StatusUnauthorized {
			v.write(view{}, err)
			return
		}
	}
	for _, name := range []string{
		s.cookies.session, s.cookies.reason, s.cookies.attempt, s.cookies.passedURL, s.cookies.invitation,
	} {
		s.cookies.set(w, name, "", 0)
	}
	w.Header().Set("Clear-Site-Data", `"storage"`)
	http.Redirect(w, r, "/sign-in", http.StatusSeeOther)
}

// setPreferences stores the language and the theme in cookies.
func (s *Server) setPreferences(w http.ResponseWriter, r *http.Request) {
	v := s.visitSignedOut(w, r)
	if language := v.form("language"); s.templates.texts[language] != nil {
		s.cookies.set(w, s.cookies.language, language, choiceAge)
	}
	switch theme := v.form("theme"); theme {
	case "light", "dark":
		s.cookies.set(w, s.cookies.theme, theme, choiceAge)
	case "system":
		s.cookies.set(w, s.cookies.theme, "", 0)
	}
	http.Redirect(w, r, localPath(v.form("next")), http.StatusSeeOther)
}

type invitation struct {
	WorkspaceID   *uuid.UUID `json:"workspace_id"`
	WorkspaceName *string    `json:"workspace_name"`
	Role          *string    `json:"role"`
	PersonID      *uuid.UUID `json:"person_id"`
}

// RoleText returns the role, or "".
func (i invitation) RoleText() string { return textOf(i.Role) }

type invitationData struct {
	Token      string
	Invitation invitation
	Methods    gateway.Methods
	SignedIn   bool
	Error      string
}

func (s *Server) showInvitation(w http.ResponseWriter, r *http.Request) {
	v := s.visitSignedOut(w, r)
	w.Header().Set("Referrer-Policy", "no-referrer") // the address contains the token
	v.writeInvitation("", 0)
}

func (v *visit) writeInvitation(failure string, status int) {
	ctx, token := v.r.Context(), v.r.PathValue("invitation")
	found, err := gateway.Post[invitation](
		ctx,
		v.Session,
		signInPath+"/invitation",
		map[string]string{"invitation": token},
	)
	if err != nil {
		v.write(view{}, err)
		return
	}
	methods, err := gateway.Get[gateway.Methods](ctx, v.Session, signInPath+"/methods", nil)
	if err != nil {
		v.write(view{}, err)
		return
	}
	data := invitationData{Token: token, Invitation: found, Methods: methods, Error: failure}
	if v.Token != "" {
		_, err := gateway.Get[gateway.Me](ctx, v.Session, "/console/v1/me", nil)
		data.SignedIn = err == nil
	}
	if methods.OIDC && found.PersonID == nil {
		v.server.cookies.set(v.w, v.server.cookies.invitation, token, attemptAge)
	}
	v.write(view{template: "invitation", title: "invitation.title", data: data, status: status}, nil)
}

func (s *Server) acceptInvitation(w http.ResponseWriter, r *http.Request) {
	v := s.visitSignedOut(w, r)
	accepted, err := gateway.Post[invitation](r.Context(), v.Session, "/console/v1/invitations/accept",
		map[string]string{"invitation": r.PathValue("invitation")})
	if gateway.Is(err, "already_member") {
		v.writeInvitation("invitation.already", http.StatusConflict)
		return
	}
	if err != nil {
		v.write(view{}, err)
		return
	}
	next := "/"
	if accepted.WorkspaceID != nil {
		next = "/w/" + accepted.WorkspaceID.String()
	}
	v.write(view{redirect: next, done: "invitation_accepted"}, nil)
}

func (s *Server) startRegistration(w http.ResponseWriter, r *http.Request) {
	v := s.visitSignedOut(w, r)
	var body struct {
		Name string `json:"name"`
	}
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		http.Error(w, "", http.StatusBadRequest)
		return
	}
	v.relayJSON(signInPath+"/registration/start",
		map[string]string{"invitation": r.PathValue("invitation"), "name": body.Name})
}
