package judge

// row has the verdicts for statuses alone.
type row struct {
	first, last int
	// verdict is for all work, financial for work that moves money.
	verdict, financial Verdict
}

// table is the one table of this module. A status that no row has proves nothing: 408, 424,
// 502, 503, 504 and whatever IANA has not registered, because somebody between us and the
// program may send it after the program has begun. Varnish sends 503 with Retry-After after a
// timeout, a firewall that looks at answers turns a charge into a 403, and invented statuses
// nearly always come from in between.
var table = [...]row{
	{101, 101, Completed, Completed}, // another protocol has begun
	{200, 306, Completed, Completed},
	{307, 308, Aborted, Aborted}, // not here: the next request is the call
	{309, 399, Completed, Completed},
	{400, 400, Rejected, Rejected},
	{401, 401, Aborted, Aborted}, // these are about a request's head, which its sender can fix with the same body
	{402, 402, Aborted, Rejected},
	{403, 403, Rejected, Unknown},
	{404, 406, Rejected, Rejected},
	{407, 407, Aborted, Aborted},
	{409, 410, Rejected, Rejected},
	{411, 412, Aborted, Aborted},
	{413, 414, Rejected, Rejected},
	{415, 415, Aborted, Aborted},
	{416, 416, Rejected, Rejected},
	{417, 417, Aborted, Aborted},
	{418, 418, Rejected, Rejected},
	{421, 421, Aborted, Aborted},
	{422, 422, Rejected, Rejected},
	{423, 423, Aborted, Aborted},
	{425, 426, Aborted, Aborted},
	{428, 429, Aborted, Aborted},
	{431, 431, Aborted, Aborted},
	{451, 451, Rejected, Rejected},
	{500, 501, Failed, Failed}, // the program itself says that it failed
	{505, 508, Failed, Failed},
	{510, 510, Failed, Failed},
	{511, 511, Aborted, Aborted}, // from a captive portal
}

// own has the row for answers of this process that differs. A handler isn't a better witness
// than a gateway: http.TimeoutHandler says 503 while the work goes on, and a handler says 502
// after its connection to a bank broke. But nobody else can have said it, so if no money moves
// it counts as a failure, like a 500.
var own = row{502, 504, Failed, Unknown}

// gateway is the status that shares its row with a protocol's words for a timeout, a broken
// connection or an unnamed error: they prove nothing, and in this process the row in own
// applies.
const gateway = 502

// statuses is how many statuses HTTP can have.
const statuses = 1000

// byStatus is the table by status: for all work, and for work that moves money.
var byStatus = func() (list [2][statuses]Verdict) {
	for _, r := range table {
		for status := r.first; status <= r.last; status++ {
			list[0][status], list[1][status] = r.verdict, r.financial
		}
	}
	return list
}()

// grpc has the status that shares its row with a gRPC code. They follow google.rpc.Code, except
// two codes that don't say who failed, and when: libraries use UNKNOWN for any error, and
// RESOURCE_EXHAUSTED for an answer that is too large to send.
var grpc = [...]struct {
	name   string
	status int
}{
	{"OK", 200},
	{"CANCELLED", 499},
	{"UNKNOWN", gateway},
	{"INVALID_ARGUMENT", 400},
	{"DEADLINE_EXCEEDED", 504},
	{"NOT_FOUND", 404},
	{"ALREADY_EXISTS", 409},
	{"PERMISSION_DENIED", 403},
	{"RESOURCE_EXHAUSTED", gateway},
	{"FAILED_PRECONDITION", 400},
	{"ABORTED", 409},
	{"OUT_OF_RANGE", 400},
	{"UNIMPLEMENTED", 501},
	{"INTERNAL", 500},
	{"UNAVAILABLE", 503},
	{"DATA_LOSS", 500},
	{"UNAUTHENTICATED", 401},
}

// a2a has the status that shares its row with a JSON-RPC error in A2A (section 5.4 of its
// specification). Only errors of JSON-RPC and A2A are here.
var a2a = map[int]int{
	-32700: 400,     // not JSON
	-32600: 400,     // not a request
	-32601: 404,     // no such method
	-32602: 400,     // invalid parameters
	-32001: 404,     // no such task
	-32002: 409,     // a task that can't be cancelled
	-32003: 400,     // no push notifications
	-32004: 400,     // an operation that the agent lacks
	-32005: 415,     // a content type that it doesn't take
	-32006: gateway, // another agent's answer that isn't valid
	-32007: 400,     // no extended card
	-32008: 400,     // an extension that the caller must know
	-32009: 400,     // a version that the agent doesn't speak
	-31401: 401,     // unauthenticated, in the SDK for Go
	-31403: 403,
}

// mcp has the status that shares its row with a JSON-RPC error in MCP. A client cures the last
// four without changing the body: they are about the head of a request, or want something done
// first.
var mcp = map[int]int{
	-32700: 400,
	-32600: 400,
	-32601: 404,
	-32602: 400,
	-32020: 417, // headers that contradict the body
	-32021: 417, // a capability that the client didn't name
	-32022: 417, // a version that the server doesn't speak
	-32042: 428, // an elicitation by URL, in 2025-11-25
}

// forrst has the status that shares its row with a Forrst error code, if Forrst itself uses
// another one: the request was refused before any function saw it, and the missing part may be
// deployed later; another request with its key is running; or it ran out of time.
var forrst = map[string]int{
	"PARSE_ERROR":              415,
	"INVALID_REQUEST":          415,
	"INVALID_PROTOCOL_VERSION": 426,
	"FUNCTION_NOT_FOUND":       421,
	"VERSION_NOT_FOUND":        421,
	"EXTENSION_NOT_SUPPORTED":  417,
	"EXTENSION_NOT_APPLICABLE": 417,
	"IDEMPOTENCY_CONFLICT":     412,
	"DEADLINE_EXCEEDED":        504,
	"IDEMPOTENCY_PROCESSING":   408,
}
