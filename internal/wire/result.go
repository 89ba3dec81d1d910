package wire

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"unicode/utf8"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
)

// Result is a result as JSON, or as arbitrary bytes in base64.
type Result struct {
	JSON  json.RawMessage `json:"result,omitempty" doc:"What duplicates get. White space is not kept; use result_base64 for bytes that must stay as they are."`
	Bytes *string         `json:"result_base64,omitempty" doc:"The same as bytes, in base64."`
	// Attributes are added to those of the record.
	Attributes store.Attributes `json:"attributes,omitempty" nullable:"false" doc:"Facts that only the outcome tells, such as the id of what was made. They are added to those of the record, and any that is too long or too many is left out."`
}

// KeptResult is a recorded result.
type KeptResult struct {
	JSON  json.RawMessage `json:"result,omitempty" doc:"What the call was completed with, or the effect returned."`
	Bytes *string         `json:"result_base64,omitempty" doc:"The same, where it is not compact JSON."`
	Kept  *bool           `json:"result_kept,omitempty" doc:"False: it ran and its result was not kept whole."`
}

// NewEncoder makes an encoder that changes no byte of a compact result. Other encoders
// escape some characters in strings.
func NewEncoder(w io.Writer) *json.Encoder {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc
}

var errBase64 = errors.New("the text is not base64 (RFC 4648, with padding)")

// Base64 encodes data; nil for nil.
func Base64(data []byte) *string {
	if data == nil {
		return nil
	}
	return new(base64.StdEncoding.EncodeToString(data))
}

// FromBase64 is the reverse of [Base64]. You may show its error to the text's sender.
func FromBase64(text *string) ([]byte, error) {
	if text == nil {
		return nil, nil
	}
	data, err := base64.StdEncoding.DecodeString(*text)
	if err != nil {
		return nil, errBase64
	}
	return data, nil
}

// keptResult returns a result in a form that keeps every byte.
func keptResult(res semel.Result) (v KeptResult) {
	if res.Tombstone {
		v.Kept = new(bool)
	}
	if res.Data != nil && compact(res.Data) {
		v.JSON = res.Data
	} else {
		v.Bytes = Base64(res.Data)
	}
	return v
}

func (v *KeptResult) value() (res semel.Result, err error) {
	res = semel.Result{Data: v.JSON, Tombstone: v.Kept != nil && !*v.Kept}
	if v.Bytes != nil {
		res.Data, err = FromBase64(v.Bytes)
	}
	return res, err
}

// compact reports whether data is JSON that [NewEncoder] passes on byte for byte.
func compact(data []byte) bool {
	var b bytes.Buffer
	return utf8.Valid(data) && json.Compact(&b, data) == nil && b.Len() == len(data)
}
