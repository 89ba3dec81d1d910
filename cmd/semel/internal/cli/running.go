package cli

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/semelhq/semel/cmd/semel/internal/admin"
)

// runningLong says how commands that need a running service find it.
const runningLong = `The service is the one that --url, --context or the variable SEMEL_URL names, or the
current context, see 'semel context'. Without any of these it is the one that has the
configured store open, or else the one at the configured admin address.

It may want a token from whoever asks, in the file that --token-file names or the variable
SEMEL_TOKEN; the role viewer is enough.`

// running is where the service is that a command needs, with the file of the token for it: a
// store can't stand in for it.
func (src *recordSource) running(cmd *cobra.Command) (at, tokenFile string, err error) {
	if at, tokenFile, err = src.where(); err == nil && at == "" {
		at, err = src.nearby(cmd)
		tokenFile = src.tokenFile
	}
	return at, tokenFile, err
}

// asked is the service at a URL, with the token that the command has for it.
func asked(at, tokenFile string) (*admin.Service, error) {
	token := ""
	if tokenFile == "" {
		token = os.Getenv("SEMEL_TOKEN")
	}
	s, err := admin.New(at, token, tokenFile)
	if err != nil {
		return nil, badSource(at, tokenFile, err)
	}
	return s, nil
}
