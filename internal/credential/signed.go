package credential

import (
	"net/http"
	"slices"
	"strings"

	"github.com/semelhq/semel/internal/canon"
)

// signing is a way of signing each request, so that no two tries of a call have the same
// credential. Only the signer's name stays the same. It tells callers apart, but anybody can
// write it: only the upstream knows whether the signature is right.
type signing struct {
	scheme string
	// names are the parts that name the signer. Without the first one the credential can't be
	// parsed, and counts as a whole.
	names []string
	find  func(credential, name string) (value string, ok bool)
}

// signings are the Authorization schemes that sign each request. Bearer, Basic and DPoP aren't
// among them: their credential is the same for each try, and DPoP has its new signatures in a
// header of their own. Nor is Negotiate: its tokens name nobody in the clear.
var signings = []signing{
	// AWS Signature Version 4 and 4A: AKID/date/region/service/aws4_request.
	// https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-signing-elements.html
	{"AWS4-HMAC-SHA256", []string{"Credential"}, credentialScope},
	{"AWS4-ECDSA-P256-SHA256", []string{"Credential"}, credentialScope},
	// Version 2 of S3. https://docs.aws.amazon.com/AmazonS3/latest/API/RESTAuthentication.html
	{"AWS", []string{"AWSAccessKeyId"}, beforeColon},
	// Google Cloud Storage: AUTHORIZER/date/location/storage/goog4_request.
	// https://cloud.google.com/storage/docs/authentication/signatures
	{"GOOG4-HMAC-SHA256", []string{"Credential"}, credentialScope},
	{"GOOG4-RSA-SHA256", []string{"Credential"}, credentialScope},
	// Tencent Cloud, signature v3: ID/date/service/tc3_request.
	// https://www.tencentcloud.com/document/product/213/33224
	{"TC3-HMAC-SHA256", []string{"Credential"}, credentialScope},
	// Azure Storage. https://learn.microsoft.com/rest/api/storageservices/authorize-with-shared-key
	{"SharedKey", []string{"AccountName"}, beforeColon},
	{"SharedKeyLite", []string{"AccountName"}, beforeColon},
	// Azure App Configuration.
	// https://learn.microsoft.com/azure/azure-app-configuration/rest-api-authentication-hmac
	{"HMAC-SHA256", []string{"Credential"}, separatedBy('&')},
	// Akamai EdgeGrid. https://techdocs.akamai.com/developer/docs/edgegrid
	{"EG1-HMAC-SHA256", []string{"client_token", "access_token"}, separatedBy(';')},
	// Hawk. https://github.com/mozilla/hawk/blob/main/API.md
	{"Hawk", []string{"id"}, separatedBy(',')},
	// OAuth 1.0a, RFC 5849 section 3.5.1.
	{"OAuth", []string{"oauth_consumer_key", "oauth_token"}, separatedBy(',')},
	// Digest, RFC 7616 section 3.4.
	{"Digest", []string{"username", "realm"}, separatedBy(',')},
	// The draft of HTTP signatures, draft-cavage-http-signatures-12 section 3.1.
	{"Signature", []string{"keyId"}, separatedBy(',')},
}

// messageSignatures are HTTP Message Signatures, RFC 9421 section 4.1, which use headers of
// their own. A route that tells callers apart by them names Signature-Input.
var messageSignatures = signing{"", []string{"keyid"}, signatureKey}

// Headers that may have a credential that is signed anew.
const (
	authorization      = "Authorization"
	proxyAuthorization = "Proxy-Authorization"
	signatureHeader    = "Signature"
	signatureInput     = "Signature-Input"
)

// signingIn returns how the credential in a header signs its request, and the credential
// without its scheme's name; nil if it is the same for each try.
func signingIn(header http.Header, name string) (*signing, string) {
	switch name {
	case authorization, proxyAuthorization:
		if values := header[name]; len(values) == 1 {
			scheme, credential, _ := strings.Cut(values[0], " ")
			return schemeNamed(scheme), credential
		}
	case signatureHeader:
		if len(header[signatureInput]) == 0 { // the draft has no other header
			return schemeNamed(signatureHeader), strings.Join(header[signatureHeader], ",")
		}
		return &messageSignatures, strings.Join(header[signatureInput], ",")
	case signatureInput:
		return &messageSignatures, strings.Join(header[signatureInput], ",")
	}
	return nil, ""
}

func schemeNamed(scheme string) *signing {
	for i := range signings {
		if strings.EqualFold(signings[i].scheme, scheme) {
			return &signings[i]
		}
	}
	return nil
}

// signers lists the parts of a header that may name the signer, by the names that a route can
// use for them.
func signers(header string) (names []string) {
	switch header {
	case authorization, proxyAuthorization:
		for i := range signings {
			names = append(names, signings[i].names...)
		}
	case signatureHeader:
		names = append(names, schemeNamed(signatureHeader).names...)
		names = append(names, messageSignatures.names...)
	case signatureInput:
		names = messageSignatures.names
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// appendSigner appends a credential's parts that name the signer: the ones in only, or all if
// only has none of the scheme's. It reports false, and appends nothing, if it can't find them.
// named says that the parts come from only.
func (s *signing) appendSigner(b []byte, header, credential string, only []string) (_ []byte, named, ok bool) {
	start, names := len(b), s.names
	listed := func(name string) bool {
		return slices.ContainsFunc(only, func(o string) bool { return strings.EqualFold(o, name) })
	}
	if named = slices.ContainsFunc(names, listed); named {
		names = slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !listed(name) })
	}
	for i, name := range names {
		value, found := s.find(credential, name)
		switch {
		case found:
			b = canon.Frame(canon.Frame(b, header+":"+name), value)
		case i == 0:
			return b[:start], named, false
		}
	}
	return b, named, true
}

// credentialScope returns a parameter's text up to its first slash: the rest changes from day
// to day.
func credentialScope(credential, name string) (string, bool) {
	value, ok := separatedBy(',')(credential, name)
	value, _, _ = strings.Cut(value, "/")
	return value, ok && value != ""
}

// beforeColon returns the name before a signature.
func beforeColon(credential, _ string) (string, bool) {
	value, _, ok := strings.Cut(credential, ":")
	return value, ok && value != ""
}

// separatedBy finds a parameter in a list with a separator; its value may be quoted. It doesn't
// find an empty or repeated one, or any in a malformed list.
func separatedBy(separator byte) func(text, name string) (string, bool) {
	return func(text, name string) (value string, ok bool) {
		for text = strings.TrimLeft(text, " \t"); text != ""; text = strings.TrimLeft(text, " \t") {
			key, rest, found := strings.Cut(text, "=")
			mine := strings.EqualFold(key, name)
			if !found || mine && ok {
				return "", false
			}
			end := endOf(rest, separator)
			if mine {
				value, ok = strings.Trim(rest[:end], " \t"), true
				value = strings.TrimSuffix(strings.TrimPrefix(value, `"`), `"`)
			}
			text = rest[min(end+1, len(rest)):]
		}
		return value, ok && value != ""
	}
}

// endOf returns where a text ends before the first separator outside quotes.
func endOf(text string, separator byte) int {
	quoted := false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			quoted = !quoted
		case c == '\\' && quoted:
			i++
		case !quoted && c == separator:
			return i
		}
	}
	return len(text)
}

// signatureKey finds a parameter in a Signature-Input, where it follows the list of signed
// components. If there are several signatures, all that have the parameter count: a verifier
// may look at any of them.
func signatureKey(text, name string) (value string, ok bool) {
	for text != "" {
		list := endOf(text, ')')
		text = text[min(list+1, len(text)):]
		end := endOf(text, ',')
		if one, found := separatedBy(';')(strings.TrimLeft(text[:end], "; \t"), name); found {
			value, ok = value+"\n"+one, true // no header contains a line break
		}
		text = text[min(end+1, len(text)):]
	}
	return value, ok
}
