package pgstore

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/semelhq/semel/internal/rig/pgtest"
	"github.com/semelhq/semel/internal/rig/servertest"
)

// The parameters that docs/stores.md names in a URL are files that are used: an authority of
// one's own, and a certificate of the client.
func TestAPrivateAuthority(t *testing.T) {
	t.Parallel()
	ca, cert, key := servertest.Authority(t)
	port := strconv.Itoa(servertest.FreePort(t))
	srv := pgtest.Start(t, &pgtest.Options{Settings: map[string]string{"listen_addresses": "127.0.0.1", "port": port}})
	// The server runs as a user of its own, and wants its key to be that user's.
	for file, path := range map[string]string{"ca": ca, "cert": cert, "key": key} {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		srv.Exec(t, "postgres", fmt.Sprintf("COPY (SELECT '%s') TO PROGRAM 'umask 077; printf %%b \"$(cat)\" >%s'", text, file))
	}
	for name, value := range map[string]string{
		"ssl": "on", "ssl_ca_file": "ca", "ssl_cert_file": "cert", "ssl_key_file": "key",
	} {
		srv.Exec(t, "postgres", fmt.Sprintf("ALTER SYSTEM SET %s = '%s'", name, value))
	}
	database := srv.Database(t)
	srv.Exec(t, "postgres", `COPY (SELECT 'hostssl all all 127.0.0.1/32 trust clientcert=verify-ca') TO PROGRAM 'cat >hba; echo "local all all trust" >>hba; mv hba pg_hba.conf'`)
	srv.Restart()
	url := "postgres://postgres@127.0.0.1:" + port + "/" + database + "?sslmode=verify-full"
	for params, problem := range map[string]string{
		"": "certificate", "&sslrootcert=" + ca: "certificate",
		"&sslrootcert=" + ca + "&sslcert=" + cert + "&sslkey=" + key: "",
	} {
		st, err := Open(t.Context(), url+params, &Options{Migrate: true})
		if err == nil {
			_, err = st.Now(t.Context())
			_ = st.Close()
		}
		if (err == nil) != (problem == "") || err != nil && !strings.Contains(err.Error(), problem) {
			t.Errorf("with %q: %v", params, err)
		}
	}
}
