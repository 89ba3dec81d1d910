package cli

import (
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/internal/service/config"
)

// callerFlags say how the callers of a proxy are verified.
type callerFlags struct {
	issuer, jwks, audience string
	header                 string
	from                   []string
	credential, scope      []string
	anonymous              string
}

func (c *callerFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&c.issuer, "jwt-issuer", "", "`iss` of JSON Web Tokens that verify callers")
	flags.StringVar(&c.jwks, "jwks", "", "`file or URL` with the issuer's public keys")
	flags.StringVar(&c.audience, "jwt-audience", "", "`aud` that the tokens must have")
	flags.StringVar(&c.header, "trusted-header", "", "`header` in which a proxy in front names the verified caller")
	flags.StringSliceVar(&c.from, "trusted-from", []string{"127.0.0.0/8", "::1/128"}, "`networks` of that proxy")
	flags.StringSliceVar(&c.credential, "credential", nil, "`headers`, cookie:NAME, authorization:PART to tell callers apart")
	flags.StringVar(&c.anonymous, "anonymous", "", "callers without a credential: loopback, share or refuse")
	flags.StringSliceVar(&c.scope, "scope-header", nil, "`headers`, or :path, that are part of a call's identity")
}

// algorithms are those of public keys; the issuer's keys say which of them it uses.
var algorithms = []string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}

// apply writes the flags into the configuration and the route.
func (c *callerFlags) apply(cfg *config.Config, rt *config.Route) error {
	rt.Credential, rt.ScopeHeaders, rt.Anonymous = c.credential, c.scope, semelhttp.Anonymous(c.anonymous)
	if c.header != "" {
		cfg.Auth.TrustedHeader = config.TrustedHeader{From: c.from, Principal: c.header}
	}
	switch {
	case c.issuer == "" && c.jwks == "" && c.audience == "":
		return nil
	case c.issuer == "" || c.jwks == "" || c.audience == "":
		return usage("--jwt-issuer, --jwks and --jwt-audience belong together")
	}
	jwt := config.JWT{
		Issuer: c.issuer, Audience: c.audience, Algorithms: algorithms,
		PrincipalClaim: "sub", Leeway: config.Duration(30 * time.Second),
	}
	if strings.Contains(c.jwks, "://") {
		jwt.JWKSURL = c.jwks
	} else {
		jwt.KeysFile = c.jwks
	}
	cfg.Auth.JWT = append(cfg.Auth.JWT, jwt)
	return nil
}
