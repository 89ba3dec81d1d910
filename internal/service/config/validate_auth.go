package config

// auth checks who may call, and that some listener asks for certificates.
func (v *validator) auth() {
	v.c.Auth.Check(v.Report, "auth")
	if len(v.c.Auth.MTLS) > 0 && v.c.Listen.TLS.ClientCA == "" && v.c.Admin.TLS.ClientCA == "" {
		v.bad("auth.mtls", "add client_ca to listen.tls or admin.tls", "no listener asks for client certificates")
	}
}
