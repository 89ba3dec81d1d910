package api

import (
	"bytes"
	"encoding/json"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/wire"
)

// result converts a result for the engine. path is where its members are.
func (a *API) result(given wire.Result, path string) (res semel.Result, err error) {
	res.Attributes = given.Attributes
	switch {
	case given.JSON != nil && given.Bytes != nil:
		return res, a.invalid(path+".result_base64", "a result is JSON or bytes, not both")
	case given.Bytes != nil:
		if res.Data, err = wire.FromBase64(given.Bytes); err != nil {
			return res, a.invalid(path+".result_base64", err.Error())
		}
	case given.JSON != nil:
		// An encoder passes it on unchanged if it has no white space.
		var b bytes.Buffer
		if err := json.Compact(&b, given.JSON); err != nil {
			return res, a.invalid(path+".result", "the result is not JSON")
		}
		res.Data = b.Bytes()
	}
	return res, nil
}
