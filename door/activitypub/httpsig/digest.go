package httpsig

import (
	"bytes"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"net/http"
	"strings"

	"github.com/dunglas/httpsfv"
)

// digests returns the sums of a body by the lower-case names of their algorithms, which are the
// same in both forms.
func digests(body []byte) map[string][]byte {
	short, long := sha256.Sum256(body), sha512.Sum512(body)
	return map[string][]byte{"sha-256": short[:], "sha-512": long[:]}
}

// checkContentDigest compares a body with the field Content-Digest (RFC 9530). At least one of
// the algorithms must be known, and all known ones must match; it ignores others, which are
// weak.
func checkContentDigest(header http.Header, body []byte) error {
	dict, err := httpsfv.UnmarshalDictionary(header["Content-Digest"])
	if err != nil {
		return refuse(DigestWrong, "the field Content-Digest can't be read")
	}
	known := 0
	for name, sum := range digests(body) {
		member, ok := dict.Get(name)
		if !ok {
			continue
		}
		item, _ := member.(httpsfv.Item)
		got, ok := item.Value.([]byte)
		if !ok || !bytes.Equal(got, sum) {
			return refuse(DigestWrong, "the body does not have the digest %s that was signed", name)
		}
		known++
	}
	if known == 0 {
		return refuse(DigestWrong, "the field Content-Digest has neither sha-256 nor sha-512")
	}
	return nil
}

// checkDigest compares a body with the field Digest (RFC 3230): SHA-256 must be there, and
// every supported digest must match.
func checkDigest(header http.Header, body []byte) error {
	sums, found := digests(body), false
	for part := range strings.SplitSeq(strings.Join(header["Digest"], ","), ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		name = strings.ToLower(name)
		sum, known := sums[name]
		if !known {
			continue
		}
		if got, err := base64.StdEncoding.Strict().DecodeString(value); err != nil || !bytes.Equal(got, sum) {
			return refuse(DigestWrong, "the body does not have the digest %s that was signed", name)
		}
		found = found || name == "sha-256"
	}
	if !found {
		return refuse(DigestWrong, "the field Digest has no SHA-256")
	}
	return nil
}

// contentDigest and digest return the fields for a body to send.
func contentDigest(body []byte) string {
	sum := sha256.Sum256(body)
	return "sha-256=:" + base64.StdEncoding.EncodeToString(sum[:]) + ":"
}

func digest(body []byte) string {
	sum := sha256.Sum256(body)
	return "SHA-256=" + base64.StdEncoding.EncodeToString(sum[:])
}
