package console

import (
	"testing"

	"github.com/chromedp/cdproto/webauthn"
	"github.com/chromedp/chromedp"

	"ringfence.dev/test/kit/sharedstack"
)

func TestSignIn_PageIsAccessible(t *testing.T) { newTab(t).check(t, "sign-in", "/sign-in") }

func TestSignIn_OpensTheRequestedPage(t *testing.T) {
	b := newTab(t)
	b.signIn(t, "/w/{workspace}/calls?status=busy")
	address := value(t, b, chromedp.Location())
	sharedstack.Equal(t, "page after the sign-in", address, b.ConsoleURL+b.path("/w/{workspace}/calls?status=busy"))

	b.signOut(t)
	b.visit(t, "/w/{workspace}/calls")
	sharedstack.Contains(t, "page after the sign-out", b.text(t, "body"), "One-time code")
}

func (b *tab) signOut(t *testing.T) {
	t.Helper()
	script[int](t, b, "document.querySelector('form[action=\"/sign-out\"]').submit(), 0")
	b.await(t, `document.querySelector("#code")`)
}

func TestSignIn_WrongCodeIsExplained(t *testing.T) {
	b := newTab(t)
	b.visit(t, "/sign-in")
	b.run(t, chromedp.SetValue("#code", "AAAA-AAAA-AAAA"), chromedp.Submit("#code"))
	b.await(t, `document.querySelector("[role=alert]:not([hidden])")?.innerText.includes("unknown, used or expired")`)
}

// A person registers a passkey with the link of an invitation, and signs in with it.
func TestSignIn_AcceptsAPasskey(t *testing.T) {
	b := newTab(t)
	b.addAuthenticator(t)
	b.visit(t, b.print(t, "invite-operator", invitation)[1])
	b.run(t, chromedp.SetValue("#name", "Grace <b>Hopper</b>"), chromedp.Click("form[data-create] button"))
	b.await(t, `document.querySelector(".account .who b")?.innerText === "Grace <b>Hopper</b>"`)

	b.signOut(t)
	b.run(t, chromedp.Click("form[data-passkey] button"))
	b.await(t, `document.querySelector(".account .who b")?.innerText === "Grace <b>Hopper</b>"`)
}

// A person of a group signs in through the OpenID provider, with the role of the group. Without a
// group and an invitation, a person has no access.
func TestSignIn_WorksThroughAnOpenIDProvider(t *testing.T) {
	b := newTab(t)
	if b.provider == nil {
		t.Skip("a running stack (RINGFENCE_RUNNING) has no OpenID provider")
	}
	b.provider.signInAs("without-role", "Mallory")
	b.visit(t, "/sign-in?next=/operator/services")
	b.run(t, chromedp.Click(`a[href^="/sign-in/oidc/start"]`))
	b.shows(t, "[role=alert]", "You have no role here.")

	b.provider.signInAs("staff", "Barbara <b>", "staff")
	b.run(t, chromedp.Click(`a[href^="/sign-in/oidc/start"]`))
	b.shows(t, ".account .who b", "Barbara <b>")
	sharedstack.Equal(t, "page after the sign-in", script[string](t, b, "location.pathname"), "/operator/services")
}

// addAuthenticator adds a virtual device that stores passkeys.
func (b *tab) addAuthenticator(t *testing.T) {
	t.Helper()
	command(t, b, webauthn.Enable, webauthn.EnableParams{})
	command(t, b, webauthn.AddVirtualAuthenticator, webauthn.AddVirtualAuthenticatorParams{
		Options: &webauthn.VirtualAuthenticatorOptions{
			Protocol: webauthn.AuthenticatorProtocolCtap2, Transport: webauthn.AuthenticatorTransportInternal,
			HasResidentKey: true, HasUserVerification: true, IsUserVerified: true, AutomaticPresenceSimulation: true,
		},
	})
}
