// Package shape has refusal bodies in the shapes of contracts other than RFC 9457: each
// contract sorts them into a few types of its own, mostly by status.
package shape

import "net/http"

type stripeError struct {
	Error struct {
		Type    string `json:"type"`
		Code    string `json:"code,omitempty"`
		Message string `json:"message"`
	} `json:"error"`
}

type acpError struct {
	Type    string `json:"type"`
	Code    string `json:"code"`
	Message string `json:"message"`
}

type adyenError struct {
	Status    int    `json:"status"`
	ErrorCode string `json:"errorCode"`
	Message   string `json:"message"`
	ErrorType string `json:"errorType"`
}

// Stripe returns a refusal in the form of Stripe's API v1. ours says that it is about the key.
func Stripe(status int, code, detail string, ours bool) any {
	var e stripeError
	e.Error.Type, e.Error.Code, e.Error.Message = "invalid_request_error", code, detail
	switch {
	case ours:
		e.Error.Type = "idempotency_error"
	case status >= 500:
		e.Error.Type = "api_error"
	}
	return e
}

// ACP returns a refusal in the form of the Agentic Commerce Protocol.
func ACP(status int, code, detail string) any {
	e := acpError{Type: "invalid_request", Code: code, Message: detail}
	switch {
	case status == http.StatusServiceUnavailable:
		e.Type = "service_unavailable"
	case status >= 500:
		e.Type = "processing_error"
	}
	return e
}

// Adyen returns a refusal in the form of Adyen's API. caller says that it is about the caller's
// identity.
func Adyen(status int, code, detail string, caller bool) any {
	e := adyenError{Status: status, ErrorCode: code, Message: detail, ErrorType: "validation"}
	switch {
	case caller:
		e.ErrorType = "security"
	case status >= 500:
		e.ErrorType = "internal"
	}
	return e
}
