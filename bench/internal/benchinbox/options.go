// Package benchinbox measures how fast an ActivityPub inbox tells senders that their
// delivery is a duplicate, and how fast it takes new activities.
package benchinbox

import (
	"errors"
	"time"

	"github.com/semelhq/semel/bench/internal/benchstore"
)

// Options says what to measure. Every field is required unless it says otherwise.
type Options struct {
	// Store says where the store is made; see [benchstore.OpenGround].
	Store benchstore.Options
	// Records is how many activities have been taken and handled before.
	Records int
	// Senders is how many deliver at the same time, each on a connection of its own, one
	// activity after the other.
	Senders int
	// BodyBytes is about the size of each activity.
	BodyBytes int
	// Duration is how long to measure each load.
	Duration time.Duration
	// Rest is how long the store is left alone after it was filled, because servers go on
	// working then. Optional.
	Rest time.Duration
	// Budget is the inbox's: after it a sender gets 503.
	Budget time.Duration
}

// minBody is the size of an activity whose object has no content.
const minBody = 512

// Validate reports all errors in the options, in the words of the flags.
func (o *Options) Validate() error {
	var errs []error
	need := func(ok bool, message string) {
		if !ok {
			errs = append(errs, errors.New(message))
		}
	}
	need(o.Records > 0, "--records must be above zero")
	need(o.Senders > 0 && o.Senders <= 10_000, "--senders must be 1 to 10000")
	need(o.BodyBytes >= minBody && o.BodyBytes <= 1<<17, "--body-bytes must be 512 to 131072")
	need(o.Duration > 0, "--duration must be above zero")
	need(o.Rest >= 0, "--rest is negative")
	need(o.Budget > 0, "--budget must be above zero")
	return errors.Join(errs...)
}
