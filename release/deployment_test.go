package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/loader"
	"github.com/compose-spec/compose-go/v2/types"
	"helm.sh/helm/v3/pkg/chart"
	chartloader "helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// wantValid lets the program check a configuration.
func wantValid(t *testing.T, name, text string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "semel.yaml")
	must(0, os.WriteFile(file, []byte(text), 0o600))(t)
	if _, err := output(exec.Command(program(t), "config", "validate", file), t.TempDir()); err != nil {
		t.Errorf("the configuration of %s: %v\n%s", name, err, text)
	}
}

// healthcheck is what asks whether the service is ready, in each of the forms. The image has the
// program at its first element.
var healthcheck = []string{"/usr/bin/semel", "healthcheck", "--url", "http://127.0.0.1:8481"}

// TestUnit: what the unit leaves open is rated at most 2.0 by systemd, and it starts the file that
// the package has.
func TestUnit(t *testing.T) {
	const threshold = "20" // in tenths
	out, err := output(exec.Command("systemd-analyze", "security", "--offline=yes", "--threshold="+threshold, "--no-pager", "packaging/semel.service"), ".")
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	t.Log(out[strings.LastIndex(out, "\n")+1:])
	unit := string(must(os.ReadFile("packaging/semel.service"))(t))
	for _, line := range []string{"Type=notify", "ExecReload=/bin/kill -HUP $MAINPID", "DynamicUser=yes", "StateDirectory=semel", "ProtectSystem=strict"} {
		if !strings.Contains(unit, "\n"+line+"\n") {
			t.Errorf("the unit lacks %s", line)
		}
	}
	open := filepath.Join(t.TempDir(), "semel.service")
	must(0, os.WriteFile(open, []byte(regexp.MustCompile(`(?m)^(Protect|Private|Restrict|SystemCall).*$`).ReplaceAllString(unit, "")), 0o600))(t)
	if _, err := output(exec.Command("systemd-analyze", "security", "--offline=yes", "--threshold="+threshold, "--no-pager", open), "."); err == nil {
		t.Error("a unit without its restrictions passes")
	}
}

// TestUpgradeOfThePackage installs it twice into a root of its own. An upgrade whose program
// refuses the configuration leaves the package unconfigured and restarts nothing.
func TestUpgradeOfThePackage(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give dpkg a root directory of its own")
	}
	r, root := artefacts(t), t.TempDir()
	wantValid(t, "the package", string(must(os.ReadFile("packaging/semel.yaml"))(t)))
	must(0, r.shell(root))(t)
	must(0, r.dpkg(root))(t)
	systemctl := filepath.Join(root, "bin", "systemctl")
	must(0, os.WriteFile(systemctl, []byte("#!/bin/sh\necho \"$*\" >>/asked\n"), 0o755))(t)
	must(0, os.MkdirAll(filepath.Join(root, "run/systemd/system"), 0o755))(t)
	asked := func() string {
		text, _ := os.ReadFile(filepath.Join(root, "asked"))
		_ = os.Remove(filepath.Join(root, "asked"))
		return string(text)
	}
	status := func() string {
		return must(r.command("dpkg-query", "--admindir="+filepath.Join(root, "var/lib/dpkg"), "-W", "-f", "${Status}", "semel"))(t)
	}
	must(0, r.dpkg(root))(t)
	if got := asked(); got != "daemon-reload\ntry-restart semel.service\n" || status() != "install ok installed" {
		t.Errorf("an upgrade asks systemd %q, and is %s", got, status())
	}
	config := filepath.Join(root, "etc/semel/semel.yaml")
	text := must(os.ReadFile(config))(t)
	must(0, os.WriteFile(config, append(text, "no_such_setting: 1\n"...), 0o644))(t)
	if err := r.dpkg(root); err == nil || !strings.Contains(err.Error(), "no_such_setting") {
		t.Errorf("an upgrade with a wrong configuration: %v", err)
	}
	if got := asked(); strings.Contains(got, "restart") || status() != "install ok half-configured" {
		t.Errorf("after it failed it asks systemd %q, and is %s", got, status())
	}
	if changed := must(os.ReadFile(config))(t); !strings.Contains(string(changed), "no_such_setting") {
		t.Error("the upgrade has replaced what an operator wrote")
	}
}

// TestImage: the image runs as a user with a number, and asks itself whether it is ready.
func TestImage(t *testing.T) {
	img := must(artefacts(t).load(t.TempDir(), here().arch))(t)
	file := must(img.ConfigFile())(t)
	c := file.Config
	if c.User != "65532:65532" || !slices.Equal(c.Entrypoint, healthcheck[:1]) || c.Labels["org.opencontainers.image.version"] != artefacts(t).version {
		t.Errorf("user %s, entrypoint %s, labels %v", c.User, c.Entrypoint, c.Labels)
	}
	if !slices.Equal(c.Healthcheck.Test, append([]string{"CMD"}, healthcheck...)) {
		t.Errorf("healthcheck %s", c.Healthcheck.Test)
	}
	if n := strings.Count(authorities(), "BEGIN CERTIFICATE"); n < 50 {
		t.Errorf("the image knows %d authorities", n)
	}
}

// TestCompose: the file is what Compose reads, and its configuration what the program does.
func TestCompose(t *testing.T) {
	details := types.ConfigDetails{WorkingDir: ".", ConfigFiles: []types.ConfigFile{{Filename: filepath.Join(artefacts(t).out, "compose.yaml")}}, Environment: types.Mapping{"UPSTREAM": "http://127.0.0.1:3000"}}
	project := must(loader.LoadWithContext(context.Background(), details, func(o *loader.Options) { o.SetProjectName("semel", true) }))(t)
	s := must(project.GetService("semel"))(t)
	if s.Image != "semelhq/semel:"+artefacts(t).version || !s.ReadOnly || !slices.Equal(s.CapDrop, []string{"ALL"}) {
		t.Errorf("image %s, read-only %v, without %s", s.Image, s.ReadOnly, s.CapDrop)
	}
	if !slices.Equal(s.HealthCheck.Test, append([]string{"CMD"}, healthcheck...)) {
		t.Errorf("healthcheck %s", s.HealthCheck.Test)
	}
	wantValid(t, "compose.yaml", project.Configs["semel"].Content)
}

// render renders the chart with values, as helm template does.
func render(t *testing.T, values string) (map[string]string, error) {
	t.Helper()
	c := must(chartloader.LoadFile(filepath.Join(artefacts(t).out, "semel-"+artefacts(t).version+".tgz")))(t)
	return renderChart(t, c, values)
}

func renderChart(t *testing.T, c *chart.Chart, values string) (map[string]string, error) {
	var given map[string]any
	must(0, yaml.Unmarshal([]byte(values), &given))(t)
	all := must(chartutil.ToRenderValues(c, given, chartutil.ReleaseOptions{Name: "shop", Namespace: "default", IsInstall: true}, chartutil.DefaultCapabilities))(t)
	return engine.Engine{Strict: true}.Render(c, all)
}

// objects reads what was rendered as Kubernetes does, and refuses fields that it doesn't have.
func objects(t *testing.T, rendered map[string]string) (set appsv1.StatefulSet, config corev1.ConfigMap, service corev1.Service) {
	t.Helper()
	for name, text := range rendered {
		if !strings.HasSuffix(name, ".yaml") {
			continue
		}
		for part := range strings.SplitSeq(text, "\n---\n") {
			var kind struct{ Kind string }
			must(0, yaml.Unmarshal([]byte(part), &kind))(t)
			into := map[string]any{"StatefulSet": &set, "ConfigMap": &config, "Service": &service}[kind.Kind]
			if err := yaml.UnmarshalStrict([]byte(part), into); err != nil {
				t.Errorf("%s: %v\n%s", name, err, part)
			}
		}
	}
	return set, config, service
}

// helmBlock is the values that docs/install.md shows.
var helmBlock = regexp.MustCompile("<!-- helm -->\n```yaml\n((?s).*?)```")

func TestChart(t *testing.T) {
	version := artefacts(t).version
	t.Run("helm finds nothing to change", func(t *testing.T) {
		l := lint.All("packaging/chart", nil, "default", true)
		for _, m := range l.Messages {
			if m.Severity >= support.WarningSev {
				t.Error(m)
			}
		}
	})
	t.Run("by default it is one node with a volume", func(t *testing.T) {
		set, config, service := objects(t, must(render(t, ""))(t))
		pod := set.Spec.Template.Spec
		c := pod.Containers[0]
		if *set.Spec.Replicas != 1 || len(set.Spec.VolumeClaimTemplates) != 1 || c.Image != "semelhq/semel:"+version || *pod.SecurityContext.RunAsUser != nobody {
			t.Errorf("%d replicas, %d volumes, image %s, user %d", *set.Spec.Replicas, len(set.Spec.VolumeClaimTemplates), c.Image, *pod.SecurityContext.RunAsUser)
		}
		if !slices.Equal(c.ReadinessProbe.Exec.Command, healthcheck) || !slices.Contains(c.LivenessProbe.Exec.Command, "--live") {
			t.Errorf("ready by %s, alive by %s", c.ReadinessProbe.Exec.Command, c.LivenessProbe.Exec.Command)
		}
		for name, value := range service.Spec.Selector {
			if set.Spec.Template.Labels[name] != value {
				t.Errorf("the service selects %s=%s, and pods have %v", name, value, set.Spec.Template.Labels)
			}
		}
		wantValid(t, "the chart", config.Data["semel.yaml"])
	})
	t.Run("the values of the page", func(t *testing.T) {
		m := helmBlock.FindSubmatch(must(os.ReadFile("../docs/install.md"))(t))
		if m == nil {
			t.Fatal("docs/install.md shows no values")
		}
		set, config, _ := objects(t, must(render(t, string(m[1])))(t))
		if *set.Spec.Replicas != 3 || len(set.Spec.VolumeClaimTemplates) != 0 || !strings.Contains(config.Data["semel.yaml"], "payments.charge") {
			t.Errorf("%d replicas, %d volumes\n%s", *set.Spec.Replicas, len(set.Spec.VolumeClaimTemplates), config.Data["semel.yaml"])
		}
		secret := filepath.Join(t.TempDir(), "url")
		must(0, os.WriteFile(secret, []byte("postgres://semel@127.0.0.1/semel"), 0o600))(t)
		wantValid(t, "the page", strings.ReplaceAll(config.Data["semel.yaml"], "/etc/semel-secrets/url", secret))
	})
	t.Run("nodes can't share the embedded store", func(t *testing.T) {
		if _, err := render(t, "replicas: 2"); err == nil || !strings.Contains(err.Error(), "one node") {
			t.Errorf("two replicas on it: %v", err)
		}
	})
}
