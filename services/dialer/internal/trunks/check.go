package trunks

// CheckResult is the result of one step of a check.
type CheckResult string

// Values of CheckResult. A step is skipped if an earlier step failed, or if the step does not
// apply.
const (
	CheckOK      CheckResult = "ok"
	CheckFailed  CheckResult = "failed"
	CheckSkipped CheckResult = "skipped"
)

// CheckStep is one step of a check of a trunk.
type CheckStep struct {
	Name   string
	Result CheckResult
	// Seen is what the step found at the trunk.
	Seen string
	// Remedy is what the operator can do after a failed step. It is empty for other steps.
	Remedy string
}
