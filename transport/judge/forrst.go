package judge

import "net/http"

// forrst has the rows of the table for those error codes of Forrst that prove something
// else than the status that Forrst gives them.
var forrst = map[string]Verdict{
	// The request was refused before any function saw it. What is missing may be deployed
	// later.
	"PARSE_ERROR":              Aborted,
	"INVALID_REQUEST":          Aborted,
	"INVALID_PROTOCOL_VERSION": Aborted,
	"FUNCTION_NOT_FOUND":       Aborted,
	"VERSION_NOT_FOUND":        Aborted,
	"EXTENSION_NOT_SUPPORTED":  Aborted,
	"EXTENSION_NOT_APPLICABLE": Aborted,
	"FUNCTION_DISABLED":        Aborted,
	"SERVER_MAINTENANCE":       Aborted,
	"FUNCTION_MAINTENANCE":     Aborted,
	"IDEMPOTENCY_CONFLICT":     Aborted,
	// Something with this key is under way.
	"IDEMPOTENCY_PROCESSING": Unknown,
}

// Forrst judges an error of Forrst by its code, or else by the status that belongs to the
// code. The header is that of the answer; add Retry-After if the error says in another way
// that the same request may be sent again.
func (r *Rules) Forrst(code string, status int, header http.Header) Finding {
	f := r.Of(status, header)
	if v, ok := forrst[code]; ok && !f.Said {
		f.Verdict = v
	}
	f.Code = code
	return f
}
