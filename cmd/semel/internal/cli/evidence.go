package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/evidence"
	"github.com/semelhq/semel/server"
)

func evidenceCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "evidence",
		Short: "Make, show, export and verify the tamper-evident log",
		Example: `  semel evidence keygen --origin example.com/semel --out evidence.key > evidence.pub
  semel evidence show --config semel.yaml --tenant acme cmd-1
  semel evidence export --config semel.yaml --out log.jsonl
  semel evidence verify --keys evidence.pub --checkpoints checkpoints/latest log.jsonl`,
	}
	cmd.AddCommand(newEvidenceKeygen(), newEvidenceShow(), newEvidenceExport(), newEvidenceProve(), newEvidenceVerify())
	return cmd
}

func newEvidenceKeygen() *cobra.Command {
	var origin, out, rotate string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "keygen",
		Short: "Make the keys of a log, or a further key for one",
		Long: `Make the keys of a log: one that signs its checkpoints and one that blinds names.
The file is secret; all nodes of the log have the same one. The public keys are
printed, one a line: they are what 'semel evidence verify' needs, and belong to
those who verify.

With --rotate the keys of that file are written to --out with a further one, which
signs as soon as a node has the new file. The first checkpoint that it signs is
signed by the key before too, and a node that still has the old file signs no more.
In the file of public keys a line may say between which sizes of the log its key
counts: from=SIZE, until=SIZE.

The JSON has origin, file and public_keys.`,
		Example: `  semel evidence keygen --origin example.com/semel --out evidence.key > evidence.pub
  semel evidence keygen --rotate evidence.key --out evidence-2.key > evidence.pub`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if out == "" || (origin == "") == (rotate == "") {
				return usage("say --out, and either --origin or --rotate")
			}
			keys, err := makeKeys(origin, rotate)
			if err != nil {
				return err
			}
			f, err := os.OpenFile(out, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
			if errors.Is(err, fs.ErrExist) {
				return fmt.Errorf("%s is there already, and may be the keys of a log: give another name", out)
			}
			if err != nil {
				return err
			}
			_, err = f.Write(keys.Text())
			// A crash before the file is synced may leave a part of it, whose public
			// key wasn't printed. Remove it before you run the command again.
			if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
				_ = os.Remove(out)
				return err
			}
			if asJSON {
				return printJSON(cmd.OutOrStdout(), struct {
					Origin string   `json:"origin"`
					File   string   `json:"file"`
					Public []string `json:"public_keys"`
				}{keys.Origin(), out, keys.Trust().Keys()})
			}
			_, err = cmd.OutOrStdout().Write(keys.Trust().Text())
			return err
		},
	}
	cmd.Flags().StringVar(&origin, "origin", "", "`name` of the log, such as example.com/semel")
	cmd.Flags().StringVar(&out, "out", "", "new `file` for the keys")
	cmd.Flags().StringVar(&rotate, "rotate", "", "`file` with keys that get a further one")
	jsonFlag(cmd, &asJSON)
	return cmd
}

func makeKeys(origin, rotate string) (*evidence.Keys, error) {
	if rotate == "" {
		return evidence.GenerateKeys(origin)
	}
	text, err := os.ReadFile(rotate)
	if err != nil {
		return nil, err
	}
	old, err := evidence.ParseKeys(text)
	if err != nil {
		return nil, err
	}
	return old.Rotated()
}

// evidenceLog is a log that a command has opened.
type evidenceLog struct {
	*evidence.Reader
	log   *evidence.Log // nil without keys
	store semel.Store
}

// evidenceSource says which log a command works on.
type evidenceSource struct {
	configFlags
	keys string
}

func (s *evidenceSource) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&s.file, "config", "", "`file` with the configuration")
	flags.String("store", "", "the store: pebble:DIR or a postgres URL")
	flags.StringVar(&s.keys, "keys", "", "`file` with the secret keys of the log, instead of evidence.key_file")
	s.set = func() map[string]string {
		set := map[string]string{}
		if flags.Changed("store") {
			set["store"] = flags.Lookup("store").Value.String()
		}
		return set
	}
}

// open opens the log. With its keys it signs a checkpoint of all entries first, as the
// last service did unless it crashed.
func (s *evidenceSource) open(cmd *cobra.Command) (*evidenceLog, error) {
	cfg, _, err := s.load(cmd)
	if err != nil {
		return nil, reportConfig(cmd, err)
	}
	at := cfg.Store
	at.Profile, at.Migrate = "standard", false // reading needs no strict profile
	store, err := server.OpenStore(cmd.Context(), at)
	if err != nil {
		return nil, inUse(err, at.URL, false)
	}
	l := &evidenceLog{store: store}
	settings := cfg.Evidence
	if s.keys != "" {
		settings.KeyFile = s.keys
	}
	settings.CheckpointDir, settings.Witnesses = "", nil
	err = l.read(cmd.Context(), func() (err error) {
		l.log, err = server.OpenEvidence(&settings, store, slog.New(slog.DiscardHandler))
		return err
	})
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	return l, nil
}

func (l *evidenceLog) read(ctx context.Context, open func() error) error {
	if l.store.Extras().Evidence == nil {
		return errors.New("this store keeps no evidence")
	}
	err := open()
	if err == nil && l.log != nil {
		err = l.log.Integrate(ctx)
	}
	if err == nil {
		l.Reader, err = evidence.NewReader(ctx, l.store)
	}
	return err
}

// Close closes the store.
func (l *evidenceLog) Close() error { return l.store.Close() }

var errNeedsKeys = errors.New("entries are found, and tenants known, by the secret keys of the log: say --keys, or set evidence.key_file")

// keysOf reads the public keys of a log from files.
func keysOf(file string) (*evidence.Trust, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	trust, err := evidence.ParseTrust(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Base(file), err)
	}
	return trust, nil
}
