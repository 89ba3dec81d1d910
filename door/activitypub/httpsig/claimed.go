package httpsig

import (
	"net/http"

	"github.com/dunglas/httpsfv"
)

// Claimed returns what a request's signatures claim: their form, and the ids of the keys in
// order. It verifies nothing, and skips unreadable signatures. The form is empty for a request
// without a signature.
func Claimed(header http.Header) (form string, keyIDs []string) {
	switch {
	case len(header["Signature-Input"]) > 0:
		m, err := readMessage(header)
		if err != nil {
			return FormRFC9421, nil
		}
		for _, label := range m.labels {
			member, _ := m.inputs.Get(label)
			if input, ok := member.(httpsfv.InnerList); ok {
				var s signature
				if s.parameters(input.Params) == nil {
					keyIDs = append(keyIDs, s.keyID)
				}
			}
		}
		return FormRFC9421, keyIDs
	case len(header["Signature"]) > 0:
		if params, err := parameters(header["Signature"][0]); err == nil && params["keyid"] != "" {
			keyIDs = []string{params["keyid"]}
		}
		return FormCavage, keyIDs
	}
	return "", nil
}
