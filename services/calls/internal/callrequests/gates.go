package callrequests

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/types/known/timestamppb"

	"ringfence.dev/libs/apierr"
	"ringfence.dev/libs/failpoint"
	"ringfence.dev/libs/phone"
	"ringfence.dev/proto/billingv1"
	"ringfence.dev/proto/compliancev1"
	"ringfence.dev/proto/openapi"
	"ringfence.dev/services/calls/internal/callstate"
	"ringfence.dev/services/calls/internal/store"
)

// checkLocalData checks the number, the workspace's destinations and the agent with data of this
// service. If it returns no error, known.MaxCallSeconds is not nil.
func (in *Intake) checkLocalData(ctx context.Context, workspaceID, id uuid.UUID,
	order openapi.CreateCall) (known store.PlacementInputs, err error) {
	if known, err = in.store.PlacementInputs(ctx, workspaceID, order.AgentID); err != nil {
		return known, err
	}
	if refusal := checkDestination(phone.Number(order.To), known.Destinations); refusal != nil {
		return known, in.refuseDestination(ctx, workspaceID, id, order, known.Destinations, refusal)
	}
	if known.MaxCallSeconds == nil {
		return known, apierr.Unprocessable(
			"invalid_agent",
			"agent_id names no agent of this workspace. Use the id of one that exists.",
		)
	}
	return known, nil
}

func checkDestination(number phone.Number, destinations []string) error {
	switch kind := number.Forbidden(); kind {
	case "":
	case phone.Unassigned:
		return apierr.Validation("to", "has a country calling code that is not assigned. Use another number.")
	default:
		return apierr.Validation("to", "is a %s number; such numbers are never dialled. Use another number.", kind)
	}
	if len(destinations) > 0 && !number.HasPrefix(destinations) {
		return apierr.Validation(
			"to",
			"is outside the destinations this workspace calls. Use a number with an allowed prefix.",
		)
	}
	return nil
}

// refuseDestination returns the refusal after contacts-compliance has stored the decision. The
// pre-check request contains no contact and no variables, so that it cannot change a contact.
func (in *Intake) refuseDestination(ctx context.Context, workspaceID, id uuid.UUID, order openapi.CreateCall,
	destinations []string, refusal error) error {
	question := &compliancev1.PreCheckRequest{
		CallRequestId: id.String(), WorkspaceId: workspaceID.String(), ToE164: order.To,
		ScheduleIfOutsideHours: order.ScheduleIfOutsideHours != nil && *order.ScheduleIfOutsideHours,
		Destinations:           &compliancev1.Destinations{Prefixes: destinations},
	}
	if order.ScheduledFor != nil {
		question.ScheduledFor = timestamppb.New(order.ScheduledFor.Time)
	}
	if _, err := in.peers.PreCheck(ctx, question); err != nil {
		return err
	}
	return refusal
}

// preCheck runs the compliance pre-check. It sets the contact, the merged variables and the due
// time in req. destinations are the permitted number prefixes that were checked before.
func (in *Intake) preCheck(ctx context.Context, order openapi.CreateCall, destinations []string,
	req *callstate.Request) error {
	question := &compliancev1.PreCheckRequest{
		CallRequestId: req.ID.String(), WorkspaceId: req.WorkspaceID.String(), ToE164: req.To,
		VariablesJson: order.Variables, ScheduleIfOutsideHours: req.ScheduleIfOutsideHours,
		Destinations: &compliancev1.Destinations{Prefixes: destinations},
	}
	if order.ContactID != nil {
		question.ContactId = order.ContactID.String()
	}
	if order.ScheduledFor != nil {
		question.ScheduledFor = timestamppb.New(order.ScheduledFor.Time)
	}
	answer, err := in.peers.PreCheck(ctx, question)
	if err != nil {
		return err
	}
	if refused := answer.GetRefused(); refused != nil {
		return apierr.Unprocessable(refused.GetCode(), "%s", refused.GetMessage())
	}
	allowed := answer.GetAllowed()
	if req.ContactID, err = uuid.Parse(allowed.GetContactId()); err != nil {
		return fmt.Errorf("read contact of call request %s: %w", req.ID, err)
	}
	if allowed.GetScheduledFor() != nil {
		// the database stores microseconds
		req.ScheduledFor = allowed.GetScheduledFor().AsTime().Truncate(time.Microsecond)
	}
	if req.Variables = allowed.GetVariablesJson(); len(req.Variables) == 0 {
		req.Variables = []byte("{}")
	}
	req.Erasures = allowed.GetErasures()
	failpoint.Inject("calls: after pre-check")
	return nil
}

// placeHold reserves the price of the longest possible call. If an earlier POST of the same request
// already made the hold, req gets the MaxCallSeconds of that hold.
func (in *Intake) placeHold(ctx context.Context, req *callstate.Request) error {
	answer, err := in.peers.Hold(ctx, &billingv1.HoldRequest{
		CallRequestId: req.ID.String(), WorkspaceId: req.WorkspaceID.String(), ToE164: req.To, MaxCallSeconds: req.MaxCallSeconds,
	})
	if err != nil {
		return err
	}
	switch {
	case answer.GetInsufficient() != nil:
		return apierr.New(http.StatusPaymentRequired, "insufficient_credits", "%s", answer.GetInsufficient().GetMessage())
	case answer.GetHeld() == nil:
		return fmt.Errorf("hold for call request %s: the response of billing-wallet is newer than this build", req.ID)
	}
	if seconds := answer.GetHeld().GetMaxCallSeconds(); seconds > 0 {
		req.MaxCallSeconds = seconds
	}
	failpoint.Inject("calls: after hold")
	return nil
}
