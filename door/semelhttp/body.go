package semelhttp

import (
	"slices"

	"github.com/semelhq/semel/internal/payload"
)

// BodyMode says when two bodies are the same.
type BodyMode string

// The body modes. A body that isn't what its mode expects, such as broken JSON or an object
// with a member twice, is compared byte for byte; so is one with more than 1,000 pairs or
// parts, or a part with more than 20 lines of headers. Bodies compared in different ways are
// never the same.
//
// A body with the Content-Encoding gzip or deflate is compared decoded, as the program sees it:
// compressed or not, it is the same. If it isn't exactly one such stream, or gets longer than
// Route.MaxBody, it is compared byte for byte as received.
const (
	// BodyAuto chooses by Content-Type: JSON, forms and multipart by meaning,
	// everything else byte for byte.
	BodyAuto = BodyMode(payload.Auto)
	// BodyRaw compares bytes.
	BodyRaw = BodyMode(payload.Raw)
	// BodyJSON compares JSON texts by meaning: the order of members, white space and the
	// spelling of numbers and strings don't matter.
	BodyJSON = BodyMode(payload.JSON)
	// BodyForm compares name-value pairs; only the order of values of one name
	// matters.
	BodyForm = BodyMode(payload.Form)
	// BodyMultipart compares the parts in order, with their headers, whatever their boundary.
	BodyMultipart = BodyMode(payload.Multipart)
)

// MethodOverrides returns headers that replace the method of a request on some servers.
func MethodOverrides() []string { return slices.Clone(payload.Overrides[:]) }
