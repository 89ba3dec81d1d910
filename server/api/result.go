package api

import (
	"bytes"
	"encoding/base64"
	"encoding/json"

	"github.com/semelhq/semel"
)

// given is a result as a caller sends it: JSON, or any bytes in base64. Bodies
// that have more than a result repeat its members, because huma does not describe
// those of embedded types.
type given struct {
	Result      json.RawMessage `json:"result,omitempty" doc:"What duplicates get. White space is not kept; use result_base64 for bytes that must stay as they are."`
	ResultBytes *string         `json:"result_base64,omitempty" doc:"The same as bytes, in base64."`
}

// result is the result for the engine. path is where its members are.
func (a *API) result(g given, path string) (res semel.Result, err error) {
	switch {
	case g.Result != nil && g.ResultBytes != nil:
		return res, a.invalid(path+".result_base64", "a result is JSON or bytes, not both")
	case g.ResultBytes != nil:
		data, err := base64.StdEncoding.DecodeString(*g.ResultBytes)
		if err != nil {
			return res, a.invalid(path+".result_base64", "the text is not base64 (RFC 4648, with padding)")
		}
		res.Data = data
	case g.Result != nil:
		// Without white space, an encoder passes it on as it is.
		var b bytes.Buffer
		if err := json.Compact(&b, g.Result); err != nil {
			return res, a.invalid(path+".result", "the result is not JSON")
		}
		res.Data = b.Bytes()
	}
	return res, nil
}

func encodeBytes(data []byte) string { return base64.StdEncoding.EncodeToString(data) }
