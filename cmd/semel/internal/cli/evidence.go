package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/semelhq/semel/evidence"
)

func evidenceCommand() *cobra.Command {
	return group(&cobra.Command{
		Use:   "evidence",
		Short: "Show, export and verify the tamper-evident log, and make its keys",
		Long: `Make the keys of the tamper-evident log, show what it says, and prove it to others.

` + evidenceLong,
	}, newEvidenceKeygen(), newEvidenceShow(), newEvidenceExport(), newEvidenceProve(), newEvidenceVerify())
}

const evidenceLong = whichLong + ` A service wants your token: in the file that --token-file names,
or in the variable SEMEL_TOKEN. You need the role viewer; you see the entries of your
tenant, and as an admin of all tenants all of them.

Exit codes: 0 done, 1 something is wrong with the log, or the work could not be done,
2 usage, 3 there is no such entry, 5 in use or out of reach.`

const evidenceWhere = "'semel evidence --help' says which log it uses if you name none."

func newEvidenceKeygen() *cobra.Command {
	var origin, out, rotate string
	cmd := &cobra.Command{
		Use:   "keygen",
		Short: "Make the keys of a log, or a further key for one",
		Long: `Make the keys of a log: one that signs its checkpoints and one that blinds names.
The file is secret; give the same one to all nodes of the log. The command prints
the public keys, one per line. Give them to the people who verify the log: 'semel
evidence verify' needs them.

With --rotate, write the keys of that file and a new one to --out. The new key signs
as soon as a node has the new file. The old key signs the first of its checkpoints,
too, and a node that still has the old file stops signing. In the file of public
keys, a line can limit its key to certain sizes of the log: from=SIZE, until=SIZE.

The JSON has origin, file and public_keys.`,
		Example: `  semel evidence keygen --origin example.com/semel --out evidence.key > evidence.pub
  semel evidence keygen --rotate evidence.key --out evidence-2.key > evidence.pub`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if out == "" || (origin == "") == (rotate == "") {
				return usage("say --out, and either --origin or --rotate")
			}
			keys, err := makeKeys(origin, rotate)
			if err != nil {
				return err
			}
			// A crash may leave a part of the file, and prints no public key. Remove the file
			// before you run the command again.
			err = newFile(out, func(f io.Writer) error {
				_, err := f.Write(keys.Text())
				return err
			})
			if errors.Is(err, fs.ErrExist) {
				return fmt.Errorf("%s is there already, and may be the keys of a log: give another name", out)
			}
			if err != nil {
				return err
			}
			return printOne(cmd, struct {
				Origin string   `json:"origin"`
				File   string   `json:"file"`
				Public []string `json:"public_keys"`
			}{keys.Origin(), out, keys.Trust().Keys()}, strings.TrimSpace(string(keys.Trust().Text())))
		},
	}
	cmd.Flags().StringVar(&origin, "origin", "", "`name` of the log, such as example.com/semel")
	cmd.Flags().StringVar(&out, "out", "", "new `file` for the keys")
	cmd.Flags().StringVar(&rotate, "rotate", "", "`file` with keys that get a further one")
	return jsonFlag(cmd)
}

func makeKeys(origin, rotate string) (*evidence.Keys, error) {
	if rotate == "" {
		return evidence.GenerateKeys(origin)
	}
	text, err := os.ReadFile(rotate)
	if err != nil {
		return nil, usage("--rotate: %w", err)
	}
	old, err := evidence.ParseKeys(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w; 'semel evidence keygen --origin NAME' makes such a file", rotate, err)
	}
	return old.Rotated()
}

// newFile makes a file durable that only its owner may read. It leaves no part of it behind.
func newFile(name string, write func(io.Writer) error) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if err = errors.Join(write(f), f.Sync(), f.Close()); err != nil {
		_ = os.Remove(name)
	}
	return err
}

var errNeedsKeys = errors.New("entries are found, and tenants known, by the secret keys of the log: say --keys, or set evidence.key_file")
