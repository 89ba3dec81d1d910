package store

// Compensation links a completed call to the one that undoes it.
type Compensation struct {
	// Operation and Key name the compensating call, in the same tenant. Principal
	// is who makes it.
	Operation string
	Principal string
	Key       string
	// Shared says that the operation shares its keys within the tenant, so that Principal
	// isn't part of the identity.
	Shared bool
	// State is the compensation's state, as far as this record knows.
	State CompensationState
	// Reason says why somebody compensated the call.
	Reason    string
	StartedAt Instant
	SettledAt Instant
	// NextAt is when somebody resumes it if it isn't finished.
	NextAt Instant
	// Failure is why it failed.
	Failure *Failure
}

// ID returns the identity of the call that compensates the record. That call's record points
// back by its attribute [AttributeCompensates].
func (c *Compensation) ID(tenant string) ID {
	id := ID{Tenant: tenant, Principal: c.Principal, Operation: c.Operation, Key: c.Key}
	if c.Shared {
		id.Principal = ""
	}
	return id
}

// CompensationState is where a compensation stands.
type CompensationState string

// The states of a compensation.
const (
	CompensationStarted CompensationState = "started" // it is about to happen, or is happening
	CompensationDone    CompensationState = "done"    // the original counts as compensated
	CompensationFailed  CompensationState = "failed"  // it was refused, or failed for good
)
