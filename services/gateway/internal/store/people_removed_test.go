package store_test

import (
	"errors"
	"testing"

	"github.com/google/uuid"

	"ringfence.dev/services/gateway/internal/people"
	"ringfence.dev/services/gateway/internal/store"
)

// operators inserts two operators and returns their ids.
func operators(t *testing.T, insert func(sql string, args ...any)) (ada, bob uuid.UUID) {
	t.Helper()
	ada, bob = uuid.New(), uuid.New()
	for _, id := range []uuid.UUID{ada, bob} {
		insert("INSERT INTO people (id, name) VALUES ($1, 'x')", id)
		insert("INSERT INTO memberships (person_id, role) VALUES ($1, 'operator')", id)
	}
	return ada, bob
}

func TestRemoveMember_WithdrawsTheInvitationsOfThePerson(t *testing.T) {
	t.Parallel()
	st, pool := newStore(t)
	ctx := t.Context()
	ada, bob := operators(t, func(sql string, args ...any) { execute(t, pool, sql, args...) })
	role := people.Operator
	for actor, secret := range map[uuid.UUID]string{ada: "of ada", bob: "of bob"} {
		invitation := people.Invitation{ID: uuid.New(), Role: &role, InvitedBy: "person:" + actor.String()}
		if _, err := st.AddInvitation(ctx, invitation, people.HashSecret(secret), people.InvitationLifetime); err != nil {
			t.Fatal(err)
		}
	}
	if err := st.RemoveMember(ctx, ada, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := st.OpenInvitation(ctx, people.HashSecret("of ada")); !errors.Is(err, store.ErrNoInvitation) {
		t.Errorf("invitation of the removed operator: error = %v, want %v", err, store.ErrNoInvitation)
	}
	if _, err := st.OpenInvitation(ctx, people.HashSecret("of bob")); err != nil {
		t.Errorf("invitation of the other operator: error = %v, want nil", err)
	}
}

func TestSignUpWithPasskey_DeletesUnusedRecoveryLinksOfThePerson(t *testing.T) {
	t.Parallel()
	st, pool := newStore(t)
	ctx := t.Context()
	ada, _ := operators(t, func(sql string, args ...any) { execute(t, pool, sql, args...) })
	for _, secret := range []string{"first", "second"} {
		invitation := people.Invitation{ID: uuid.New(), PersonID: &ada, InvitedBy: "test"}
		if _, err := st.AddInvitation(ctx, invitation, people.HashSecret(secret), people.RecoveryLifetime); err != nil {
			t.Fatal(err)
		}
	}
	key := people.StoredPasskey{ID: []byte("key"), PersonID: ada, Name: "Passkey", Credential: []byte("{}")}
	hash := people.HashSecret("second")
	if _, err := st.SignUpWithPasskey(ctx, people.Person{ID: ada, Name: "x"}, key, hash[:], signIn()); err != nil {
		t.Fatal(err)
	}
	if _, err := st.OpenInvitation(ctx, people.HashSecret("first")); !errors.Is(err, store.ErrNoInvitation) {
		t.Errorf("earlier link: error = %v, want %v", err, store.ErrNoInvitation)
	}
}

func TestSignInWithPasskey_PersonWithRolesFromGroupsIsRefused(t *testing.T) {
	t.Parallel()
	st, pool := newStore(t)
	ctx := t.Context()
	ada, _ := operators(t, func(sql string, args ...any) { execute(t, pool, sql, args...) })
	key := people.StoredPasskey{ID: []byte("key"), PersonID: ada, Name: "Passkey", Credential: []byte("{}")}
	if err := st.AddPasskey(ctx, key); err != nil {
		t.Fatal(err)
	}
	if _, err := st.SignInWithPasskey(ctx, key, signIn()); err != nil {
		t.Fatalf("role of an invitation: %v", err)
	}
	execute(t, pool, "UPDATE memberships SET from_groups = true WHERE person_id = $1", ada)
	if _, err := st.SignInWithPasskey(ctx, key, signIn()); !errors.Is(err, store.ErrProviderOnly) {
		t.Errorf("role of a group: error = %v, want %v", err, store.ErrProviderOnly)
	}
}

const insertWorkspace = `INSERT INTO workspaces (id, name, plan, currency, status, max_live_calls,
	calls_per_second, version)
VALUES ($1, 'x', 'growth', 'USD', 'active', 1, 1, 1)`

func TestSetRole_WithdrawsTheInvitationsOfAFormerOwner(t *testing.T) {
	t.Parallel()
	st, pool := newStore(t)
	ctx := t.Context()
	ada, bob := operators(t, func(sql string, args ...any) { execute(t, pool, sql, args...) })
	workspace := uuid.New()
	execute(t, pool, insertWorkspace, workspace)
	for _, id := range []uuid.UUID{ada, bob} {
		execute(t, pool, "INSERT INTO memberships (person_id, workspace_id, role) VALUES ($1, $2, 'owner')", id, workspace)
	}
	role := people.Owner
	invitation := people.Invitation{ID: uuid.New(), WorkspaceID: &workspace, Role: &role,
		InvitedBy: "person:" + ada.String()}
	hash := people.HashSecret("of ada")
	if _, err := st.AddInvitation(ctx, invitation, hash, people.InvitationLifetime); err != nil {
		t.Fatal(err)
	}
	if err := st.SetRole(ctx, ada, workspace, people.Owner, acceptRole); err != nil {
		t.Fatal(err)
	}
	if _, err := st.OpenInvitation(ctx, hash); err != nil {
		t.Errorf("invitation of an owner: error = %v, want nil", err)
	}
	if err := st.SetRole(ctx, ada, workspace, people.Viewer, acceptRole); err != nil {
		t.Fatal(err)
	}
	if _, err := st.OpenInvitation(ctx, hash); !errors.Is(err, store.ErrNoInvitation) {
		t.Errorf("invitation of a former owner: error = %v, want %v", err, store.ErrNoInvitation)
	}
}

func TestSignInWithProvider_WithdrawsTheInvitationsOfAFormerOperator(t *testing.T) {
	t.Parallel()
	st, pool := newStore(t)
	ctx := t.Context()
	issuer, subject, role := "https://id.example.com", "ada", people.Operator
	workspace := uuid.New()
	execute(t, pool, insertWorkspace, workspace)
	viewer := people.Membership{WorkspaceID: &workspace, Role: people.Viewer}
	signInWith := func(roles ...people.Membership) uuid.UUID {
		made, err := st.SignInWithProvider(ctx, store.ProviderSignIn{
			Person:     people.Person{ID: uuid.New(), Name: "Ada", Issuer: &issuer, Subject: &subject},
			GroupRoles: roles, HasGroupRoles: true,
		}, signIn())
		if err != nil {
			t.Fatal(err)
		}
		return made.PersonID
	}
	ada := signInWith(people.Membership{Role: people.Operator}, viewer)
	hash := people.HashSecret("of ada")
	invitation := people.Invitation{ID: uuid.New(), Role: &role, InvitedBy: "person:" + ada.String()}
	if _, err := st.AddInvitation(ctx, invitation, hash, people.InvitationLifetime); err != nil {
		t.Fatal(err)
	}
	signInWith(people.Membership{Role: people.Operator}, viewer)
	if _, err := st.OpenInvitation(ctx, hash); err != nil {
		t.Errorf("invitation of an operator: error = %v, want nil", err)
	}
	signInWith(viewer)
	if _, err := st.OpenInvitation(ctx, hash); !errors.Is(err, store.ErrNoInvitation) {
		t.Errorf("invitation of a former operator: error = %v, want %v", err, store.ErrNoInvitation)
	}
}

func TestSignUpWithPasskey_RecoveryOfAPersonWithRolesFromGroupsIsRefused(t *testing.T) {
	t.Parallel()
	st, pool := newStore(t)
	ctx := t.Context()
	ada, _ := operators(t, func(sql string, args ...any) { execute(t, pool, sql, args...) })
	execute(t, pool, "UPDATE memberships SET from_groups = true WHERE person_id = $1", ada)
	hash := people.HashSecret("link")
	invitation := people.Invitation{ID: uuid.New(), PersonID: &ada, InvitedBy: "test"}
	if _, err := st.AddInvitation(ctx, invitation, hash, people.RecoveryLifetime); err != nil {
		t.Fatal(err)
	}
	key := people.StoredPasskey{ID: []byte("key"), PersonID: ada, Name: "Passkey", Credential: []byte("{}")}
	_, err := st.SignUpWithPasskey(ctx, people.Person{ID: ada, Name: "x"}, key, hash[:], signIn())
	if !errors.Is(err, store.ErrProviderOnly) {
		t.Errorf("error = %v, want %v", err, store.ErrProviderOnly)
	}
}

func acceptRole(people.Role, bool) error { return nil }
