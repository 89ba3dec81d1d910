package limit

import (
	"errors"
	"net/http"
	"strconv"

	"github.com/semelhq/semel/door"
	"github.com/semelhq/semel/internal/problem"
	"github.com/semelhq/semel/transport/semelhttp"
)

// errRequests says that the limit of requests is reached.
var errRequests = errors.New("limit: too many requests")

// refuse answers for a limit. An unguarded request may have been sent on in part while
// its body came, so the text only speaks of guarded calls.
func (o *Options) refuse(w http.ResponseWriter, r *http.Request, why error) {
	doc := semelhttp.Problem{Status: http.StatusServiceUnavailable, Code: door.CodeOverloaded, Title: "Too much in flight"}
	again := true
	e, exhausted := errors.AsType[*ExhaustedError](why)
	switch {
	case exhausted && e.Never:
		doc.Status, doc.Code, doc.Title, again = http.StatusRequestEntityTooLarge, door.CodeOverBudget, "Body too large", false
		doc.Detail = "The request's body is larger than the " + strconv.FormatInt(e.Limit, 10) + " bytes that may be in flight at all. No guarded call was begun."
	case exhausted && e.Whose == "server":
		doc.Detail = "The server holds as many bytes of requests as it may. No guarded call was begun. Send the same request again later."
	case exhausted:
		doc.Status = http.StatusTooManyRequests
		doc.Detail = "Other requests of this " + e.Whose + " hold as many bytes as they may. No guarded call was begun. Send the same request again later."
	case errors.Is(why, errTooSlow):
		doc.Status, doc.Code, doc.Title = http.StatusRequestTimeout, door.CodeBodyTooSlow, "Body too slow"
		doc.Detail = "The request's body came too slowly. No guarded call was begun. Send the same request again."
	default:
		doc.Detail = "The server handles as many requests as it may. Nothing was executed. Send the same request again later."
	}
	if again {
		doc.RetryAfter = problem.RetryAfter(w.Header(), o.RetryAfter)
	}
	doc.Type = o.TypeBase + string(doc.Code)
	if r.ProtoMajor == 1 {
		// The rest of the body isn't worth reading. In HTTP/2 it can be cancelled, and
		// this would end the other requests' connection.
		w.Header().Set("Connection", "close")
	}
	problem.Write(w, doc.Status, doc)
	if o.Refused != nil {
		o.Refused(r, doc.Code)
	}
}
