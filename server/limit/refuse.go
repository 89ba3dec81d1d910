package limit

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/transport/semelhttp"
)

// Codes of the refusals of this package.
const (
	// CodeOverloaded: a budget is used up: the server's, the tenant's or the caller's.
	CodeOverloaded semel.Code = "overloaded"
	// CodeOverBudget: the body alone is more than the whole budget.
	CodeOverBudget semel.Code = "over_budget"
	// CodeBodyTooSlow: the body came more slowly than it has to.
	CodeBodyTooSlow semel.Code = "body_too_slow"
)

// errRequests is that there are as many requests as there may be.
var errRequests = errors.New("limit: too many requests")

// refuse answers for a limit. Where a body is refused while it comes, a request that
// is not guarded may have been sent on in part, so nothing is said about that.
func (o *Options) refuse(w http.ResponseWriter, r *http.Request, why error) {
	doc := semelhttp.Problem{Status: http.StatusServiceUnavailable, Code: CodeOverloaded, Title: "Too much in flight"}
	again := true
	e, exhausted := errors.AsType[*ExhaustedError](why)
	switch {
	case exhausted && e.Never:
		doc.Status, doc.Code, doc.Title, again = http.StatusRequestEntityTooLarge, CodeOverBudget, "Body too large", false
		doc.Detail = "The request's body is larger than the " + strconv.FormatInt(e.Limit, 10) + " bytes that may be in flight at all. No guarded call was begun."
	case exhausted && e.Whose == "server":
		doc.Detail = "The server holds as many bytes of requests as it may. No guarded call was begun. Send the same request again later."
	case exhausted:
		doc.Status = http.StatusTooManyRequests
		doc.Detail = "Other requests of this " + e.Whose + " hold as many bytes as they may. No guarded call was begun. Send the same request again later."
	case errors.Is(why, errTooSlow):
		doc.Status, doc.Code, doc.Title = http.StatusRequestTimeout, CodeBodyTooSlow, "Body too slow"
		doc.Detail = "The request's body came too slowly. No guarded call was begun. Send the same request again."
	default:
		doc.Detail = "The server handles as many requests as it may. Nothing was executed. Send the same request again later."
	}
	header := w.Header()
	if again {
		doc.RetryAfter = int64((o.RetryAfter + time.Second - 1) / time.Second)
		header.Set("Retry-After", strconv.FormatInt(doc.RetryAfter, 10))
	}
	doc.Type = o.TypeBase + string(doc.Code)
	text, err := json.Marshal(doc)
	if err != nil {
		panic(err) // strings and numbers always have a JSON form
	}
	header.Set("Content-Type", semelhttp.ProblemType)
	header.Set("Cache-Control", "no-store")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Content-Length", strconv.Itoa(len(text)))
	if r.ProtoMajor == 1 {
		// What is left of the body is not worth reading. In HTTP/2 it can be
		// cancelled, and this would end the other requests' connection.
		header.Set("Connection", "close")
	}
	w.WriteHeader(doc.Status)
	_, _ = w.Write(text) // a caller that is gone will ask again
}
