package people

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"

	"github.com/go-webauthn/webauthn/protocol"
	"github.com/go-webauthn/webauthn/webauthn"
	"github.com/google/uuid"
)

// Passkeys verifies WebAuthn credentials. It is safe for concurrent use.
type Passkeys struct{ relyingParty *webauthn.WebAuthn }

// NewPasskeys returns a Passkeys for the console at an address. Browsers bind passkeys to the host
// of this address.
func NewPasskeys(console *url.URL) (*Passkeys, error) {
	relyingParty, err := webauthn.New(&webauthn.Config{
		RPID: console.Hostname(), RPDisplayName: "Ringfence", RPOrigins: []string{console.Scheme + "://" + console.Host},
	})
	if err != nil {
		return nil, fmt.Errorf("configure passkeys: %w", err)
	}
	return &Passkeys{relyingParty}, nil
}

// user is a person with the person's passkeys, as package webauthn needs it.
type user struct {
	person      Person
	credentials []webauthn.Credential
}

func (u user) WebAuthnID() []byte                         { return u.person.ID[:] }
func (u user) WebAuthnName() string                       { return u.person.Name }
func (u user) WebAuthnDisplayName() string                { return u.person.Name }
func (u user) WebAuthnCredentials() []webauthn.Credential { return u.credentials }

func newUser(person Person, passkeys []StoredPasskey) (user, error) {
	u := user{person: person}
	for _, stored := range passkeys {
		var credential webauthn.Credential
		if err := json.Unmarshal(stored.Credential, &credential); err != nil {
			return u, fmt.Errorf("read passkey of %s: %w", person.ID, err)
		}
		u.credentials = append(u.credentials, credential)
	}
	return u, nil
}

// Registration is the state of a started registration of a passkey.
type Registration struct {
	Person Person `json:"person"`
	// Invitation is the hash of the invitation that permits the registration. It is nil if the
	// person is signed in.
	Invitation []byte               `json:"invitation,omitempty"`
	Session    webauthn.SessionData `json:"session"`
}

// StartRegistration returns the options for navigator.credentials.create. The passkey must verify
// the user, because it is the only factor, and must be discoverable.
func (p *Passkeys) StartRegistration(
	person Person, known []StoredPasskey,
) (*protocol.CredentialCreation, webauthn.SessionData, error) {
	u, err := newUser(person, known)
	if err != nil {
		return nil, webauthn.SessionData{}, err
	}
	options, session, err := p.relyingParty.BeginRegistration(u,
		webauthn.WithExclusions(webauthn.Credentials(u.credentials).CredentialDescriptors()),
		webauthn.WithAuthenticatorSelection(protocol.AuthenticatorSelection{
			ResidentKey:        protocol.ResidentKeyRequirementRequired,
			RequireResidentKey: protocol.ResidentKeyRequired(),
			UserVerification:   protocol.VerificationRequired,
		}))
	if err != nil {
		return nil, webauthn.SessionData{}, fmt.Errorf("start registration: %w", err)
	}
	return options, *session, nil
}

// FinishRegistration verifies the response of navigator.credentials.create. It returns ErrRefused
// if the response is invalid.
func (p *Passkeys) FinishRegistration(started Registration, response []byte) (StoredPasskey, error) {
	parsed, err := protocol.ParseCredentialCreationResponseBytes(response)
	if err != nil {
		return StoredPasskey{}, fmt.Errorf("%w: %w", ErrRefused, err)
	}
	credential, err := p.relyingParty.CreateCredential(user{person: started.Person}, started.Session, parsed)
	if err != nil {
		return StoredPasskey{}, fmt.Errorf("%w: %w", ErrRefused, err)
	}
	return storedPasskey(started.Person.ID, credential)
}

// StartSignIn returns the options for navigator.credentials.get. The person chooses the passkey in
// the browser, so the options name no person.
func (p *Passkeys) StartSignIn() (*protocol.CredentialAssertion, webauthn.SessionData, error) {
	verified := webauthn.WithUserVerification(protocol.VerificationRequired)
	options, session, err := p.relyingParty.BeginDiscoverableLogin(verified)
	if err != nil {
		return nil, webauthn.SessionData{}, fmt.Errorf("start sign-in: %w", err)
	}
	return options, *session, nil
}

// FindPerson returns a person and the person's passkeys.
type FindPerson func(ctx context.Context, id uuid.UUID) (Person, []StoredPasskey, error)

// FinishSignIn verifies the response of navigator.credentials.get. It returns ErrRefused if the
// response is invalid, if the passkey is unknown, or if the counter of the passkey shows that the
// passkey was copied.
func (p *Passkeys) FinishSignIn(
	ctx context.Context, session webauthn.SessionData, response []byte, find FindPerson,
) (StoredPasskey, error) {
	parsed, err := protocol.ParseCredentialRequestResponseBytes(response)
	if err != nil {
		return StoredPasskey{}, fmt.Errorf("%w: %w", ErrRefused, err)
	}
	var personID uuid.UUID
	var findError error
	_, credential, err := p.relyingParty.ValidatePasskeyLogin(func(_, handle []byte) (webauthn.User, error) {
		id, err := uuid.FromBytes(handle)
		if err != nil {
			return nil, errors.New("the user handle is not the id of a person")
		}
		person, passkeys, err := find(ctx, id)
		if err != nil {
			findError = err
			return nil, err
		}
		personID = id
		return newUser(person, passkeys)
	}, session, parsed)
	if findError != nil {
		return StoredPasskey{}, findError
	}
	if err != nil {
		return StoredPasskey{}, fmt.Errorf("%w: %w", ErrRefused, err)
	}
	if credential.Authenticator.CloneWarning {
		return StoredPasskey{}, fmt.Errorf("%w: the counter of the passkey went back", ErrRefused)
	}
	return storedPasskey(personID, credential)
}

func storedPasskey(personID uuid.UUID, credential *webauthn.Credential) (StoredPasskey, error) {
	text, err := json.Marshal(credential)
	if err != nil {
		return StoredPasskey{}, fmt.Errorf("write passkey: %w", err)
	}
	return StoredPasskey{ID: credential.ID, PersonID: personID, Credential: text}, nil
}
