package cli

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/semelhq/semel/cmd/semel/internal/admin"
)

// runningLong is the help on finding a running service.
const whichService = `The service is the one that --url, --context or the variable SEMEL_URL names, or the
current context (see 'semel context'). If you give none, it's the one that has the
configured store open, or else the one at the configured admin address, by default
127.0.0.1:8481.`

const runningLong = whichService + `

It may want your token, from the file that --token-file names or the variable
SEMEL_TOKEN. The role viewer is enough.`

// running finds the running service that a command needs, and the file of the token for it.
func (src *recordSource) running(cmd *cobra.Command) (s *admin.Service, tokenFile string, err error) {
	at, tokenFile, err := src.where()
	if err == nil && at == "" {
		tokenFile = src.tokenFile
		at, err = src.nearby(cmd)
	}
	if err != nil {
		return nil, "", err
	}
	s, err = asked(at, tokenFile)
	return s, tokenFile, err
}

// asked is the service at a URL, with the command's token for it.
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
