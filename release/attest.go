package main

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/CycloneDX/cyclonedx-go"
	slsa "github.com/in-toto/attestation/go/predicates/provenance/v1"
	intoto "github.com/in-toto/attestation/go/v1"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

const (
	sumsFile       = "SHA256SUMS"
	provenanceFile = "provenance.intoto.json"
)

// boms writes for each program which modules are in it, by what the program itself says.
func (r *release) boms(built []binary) error {
	for _, b := range built {
		info, err := buildinfo.ReadFile(b.file)
		if err != nil {
			return err
		}
		digest, err := digestOf(b.file)
		if err != nil {
			return err
		}
		bom := cyclonedx.NewBOM()
		program := cyclonedx.Component{
			BOMRef: "semel", Type: cyclonedx.ComponentTypeApplication, Name: "semel", Version: r.version, PackageURL: "pkg:golang/github.com/semelhq/semel@v" + r.version,
			Hashes: &[]cyclonedx.Hash{{Algorithm: cyclonedx.HashAlgoSHA256, Value: digest}},
		}
		components := []cyclonedx.Component{{BOMRef: "go", Type: cyclonedx.ComponentTypeLibrary, Name: "std", Version: info.GoVersion, PackageURL: "pkg:golang/std@" + strings.TrimPrefix(info.GoVersion, "go")}}
		for _, m := range info.Deps {
			purl := "pkg:golang/" + m.Path + "@" + m.Version
			components = append(components, cyclonedx.Component{BOMRef: purl, Type: cyclonedx.ComponentTypeLibrary, Name: m.Path, Version: m.Version, PackageURL: purl})
		}
		bom.Metadata = &cyclonedx.Metadata{Timestamp: r.time.Format(time.RFC3339), Component: &program}
		bom.Components = &components
		name := fmt.Sprintf("semel_%s_%s.cdx.json", r.version, b.platform)
		if err := r.create(name, func(w io.Writer) error {
			return cyclonedx.NewBOMEncoder(w, cyclonedx.BOMFileFormatJSON).SetPretty(true).Encode(bom)
		}); err != nil {
			return err
		}
	}
	return nil
}

// provenance writes the commit and the commands behind all artefacts, as a statement of in-toto with the
// predicate of SLSA. It has nothing of the machine, so whoever makes the same bytes can make the
// same statement; who signed the checksums vouches for it.
func (r *release) provenance([]binary) error {
	names, err := r.artefacts()
	if err != nil {
		return err
	}
	statement := &intoto.Statement{Type: intoto.StatementTypeUri, PredicateType: "https://slsa.dev/provenance/v1"}
	for _, name := range names {
		digest, err := digestOf(filepath.Join(r.out, name))
		if err != nil {
			return err
		}
		statement.Subject = append(statement.Subject, &intoto.ResourceDescriptor{Name: name, Digest: map[string]string{"sha256": digest}})
	}
	goVersion, err := r.command("go", "env", "GOVERSION")
	if err != nil {
		return err
	}
	parameters, err := structpb.NewStruct(map[string]any{"version": r.version, "modified": r.modified, "go": goVersion, "flags": strings.Join(r.flags(), " "), "CGO_ENABLED": "0"})
	if err != nil {
		return err
	}
	made := &slsa.Provenance{
		BuildDefinition: &slsa.BuildDefinition{
			BuildType: "https://github.com/semelhq/semel/blob/main/docs/install.md#build-it-again", ExternalParameters: parameters,
			ResolvedDependencies: []*intoto.ResourceDescriptor{{Uri: "git+https://github.com/semelhq/semel", Digest: map[string]string{"gitCommit": r.commit}}},
		},
		RunDetails: &slsa.RunDetails{Builder: &slsa.Builder{Id: "https://github.com/semelhq/semel/tree/main/release"}, Metadata: &slsa.BuildMetadata{FinishedOn: timestamppb.New(r.time)}},
	}
	if err := made.Validate(); err != nil {
		return err
	}
	predicate, err := protojson.Marshal(made)
	if err != nil {
		return err
	}
	statement.Predicate = &structpb.Struct{}
	if err := protojson.Unmarshal(predicate, statement.Predicate); err != nil {
		return err
	}
	if err := statement.Validate(); err != nil {
		return err
	}
	text, err := protojson.Marshal(statement)
	if err != nil {
		return err
	}
	var indented bytes.Buffer // protojson varies its white space on purpose
	if err := json.Indent(&indented, compact(text), "", "  "); err != nil {
		return err
	}
	return r.create(provenanceFile, func(w io.Writer) error { _, err := fmt.Fprintln(w, indented.String()); return err })
}

func compact(text []byte) []byte {
	var b bytes.Buffer
	_ = json.Compact(&b, text) // it is JSON
	return b.Bytes()
}

// artefacts are the names of the files in the directory, sorted.
func (r *release) artefacts() ([]string, error) {
	entries, err := entriesBelow(r.out)
	var names []string
	for _, e := range entries {
		names = append(names, e.name)
	}
	slices.Sort(names)
	return names, err
}

func digestOf(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	h := sha256.New()
	_, err = io.Copy(h, f)
	return hex.EncodeToString(h.Sum(nil)), err
}

// sums writes the checksums of all artefacts, as sha256sum reads them, and signs them if there is
// a key. Everything else is bound by these.
func (r *release) sums() error {
	names, err := r.artefacts()
	if err != nil {
		return err
	}
	var text strings.Builder
	for _, name := range names {
		digest, err := digestOf(filepath.Join(r.out, name))
		if err != nil {
			return err
		}
		fmt.Fprintf(&text, "%s  %s\n", digest, name)
	}
	if err := r.create(sumsFile, func(w io.Writer) error { _, err := io.WriteString(w, text.String()); return err }); err != nil {
		return err
	}
	if r.key == "" {
		fmt.Println("no key was given, so nobody has signed the checksums")
		return nil
	}
	_, err = output(exec.Command("ssh-keygen", "-q", "-Y", "sign", "-n", "semel-release", "-f", r.key, sumsFile), r.out)
	return err
}
